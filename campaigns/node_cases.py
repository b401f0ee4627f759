"""ONNX's own node cases: each becomes a network that agrees, or is refused in a sentence: `nox -s node_cases`.

The package onnx brings a model of one node for each operator and its attributes, with inputs and outputs. Each model is
read twice: as it is, and with constants for all inputs but the first one, as a trained network has them. Networks are
compared with onnxruntime, or with the outputs of the case where onnxruntime lacks the operator.
"""

import argparse
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from concord.frontends.onnx.compare import difference
from concord.frontends.onnx.read import Imported, read
from onnx import numpy_helper

FOLDER = Path(onnx.__file__).parent / "backend" / "test" / "data" / "node"
CLOSE = 1e-5  #: Largest difference of an output, relative to the largest output.


@dataclass(frozen=True, kw_only=True, slots=True)
class CaseOutcome:
    """What became of a case.

    Attributes:
        refused:    The sentence that refuses the file, or "".
        difference: Largest difference of an output, relative to the largest output.
    """

    refused: str = ""
    difference: float = 0.0

    @property
    def expected(self) -> bool:
        """Whether the file is refused, or the network computes what the file does."""
        return bool(self.refused) or self.difference < CLOSE


def cases() -> list[str]:
    """Names of all cases that have a model."""
    return sorted(path.parent.name for path in FOLDER.glob("*/model.onnx"))


def write(name: str, path: Path, constants: bool) -> bool:
    """Write the model of a case, and return whether there is one.

    Args:
        name:      Name of the case.
        path:      The file.
        constants: Whether all inputs but the first one are constant.
    """
    model = onnx.load(FOLDER / name / "model.onnx")
    if constants:
        others = model.graph.input[1:]
        if not others or any(not one.type.HasField("tensor_type") for one in others):
            return False
        for index, one in enumerate(others, 1):
            model.graph.initializer.append(numpy_helper.from_array(_given(name, f"input_{index}"), one.name))
        del model.graph.input[1:]
    path.write_bytes(model.SerializeToString())
    return True


def outcome(name: str, path: Path) -> CaseOutcome:
    """Import the file of a case, and compare the network with onnxruntime, or with the outputs of the case."""
    try:
        imported = read(path)
    except ValueError as error:
        return CaseOutcome(refused=str(error))
    try:
        return CaseOutcome(difference=difference(imported))
    except ValueError:  # it cannot run the file, or gives no numbers for random ones, such as roots of negative ones
        return CaseOutcome(difference=_difference_from_case(name, imported))


def _difference_from_case(name: str, imported: Imported) -> float:
    """Difference from the output of the case, relative to its largest number."""
    outputs = [one.name for one in imported.model.graph.output]
    theirs = _given(name, f"output_{outputs.index(imported.tensor)}").astype(np.float64)
    times = (imported.time,) if imported.network.sequence else ()
    samples = np.zeros((imported.samples, *times, *imported.network.shape))
    samples.reshape(-1)[imported.numbers] = _given(name, "input_0")
    ours = imported.network.run(samples).reshape(-1)[imported.indices]
    return float(np.abs(ours - theirs).max() / (np.abs(theirs).max() or 1))


def _given(name: str, tensor: str) -> np.ndarray:
    return numpy_helper.to_array(onnx.load_tensor(FOLDER / name / "test_data_set_0" / f"{tensor}.pb"))


def main():
    """Read all cases, print those that are not refused; end with 1 if an outcome is not expected, or none agrees."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--names", nargs="*", default=cases(), metavar="NAME")
    parser.add_argument("--refusals", action="store_true", help="print the sentences of refused cases, too")
    given, counts = parser.parse_args(), Counter()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "case.onnx"
        for name in given.names:
            for constants in (False, True):
                if not write(name, path, constants):
                    continue
                found = outcome(name, path)
                result = "refused" if found.refused else "agree" if found.expected else "WRONG"
                counts[result] += 1
                if not found.refused or given.refusals:
                    text = found.refused.removeprefix(f"{path}: ") or f"{found.difference:.1e}"
                    print(f"{name}{', constants' if constants else '':11} {result:8} {text}", flush=True)
    print(", ".join(f"{count} {result}" for result, count in sorted(counts.items())))
    if not counts["agree"]:
        print("no case agrees")
    sys.exit(counts["WRONG"] > 0 or not counts["agree"])


if __name__ == "__main__":
    main()
