"""A zoo of ONNX files as tools write them: each is imported and equals onnxruntime, or is refused by name.

`nox -s zoo` runs all of it; `tests/frontends/test_zoo.py` takes a quick selection. Each entry writes its file to a
path. With `--twins`, each network that is imported becomes firmware and a software twin, too.
"""

import argparse
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from concord.campaigns.makers.onnx_graphs import CLOSE
from concord.campaigns.zoo import from_keras, from_scikit, from_torch, quantized, transformers
from concord.frontends.onnx.compare import difference
from concord.frontends.onnx.read import read
from concord.net.graph import Graph
from concord.net.quantize.plan import plan
from concord.train.overflow.kind import kind_of

#: Entries by name: what writes the file, and a part of the refusal, or "" where the import must succeed.
ZOO: dict[str, tuple[Callable[[Path], None], str]] = {
    **from_torch.ENTRIES, **transformers.ENTRIES, **from_scikit.ENTRIES, **from_keras.ENTRIES, **quantized.ENTRIES}


@dataclass(frozen=True, kw_only=True, slots=True)
class ZooImport:
    """What became of an entry.

    Attributes:
        difference: Difference from onnxruntime relative to the largest output, or None if the file is refused.
        text:       Operations of the network, or the refusal.
        expected:   Whether this is what the entry must give.
        network:    The network, or None if the file is refused.
        kind:       Its kind, which chooses the defaults of overflow-aware training; "" where it cannot be quantised.
    """

    difference: float | None
    text: str
    expected: bool
    network: Graph | None = None
    kind: str = ""


def outcome(name: str, folder: Path) -> ZooImport:
    """Write the file of an entry and import it."""
    write, refusal = ZOO[name]
    path = folder / f"{name}.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # exporters have warnings of their own
        write(path)
    try:
        imported = read(path)
    except ValueError as error:
        return ZooImport(difference=None, text=str(error), expected=bool(refusal) and refusal in str(error))
    worst = difference(imported)
    labels = [node.op.label for node in imported.network.nodes]
    kind = recognised(imported.network)
    by_labels = next((name for name in ("lstm", "gru", "rnn") if name in labels), "cnn" if "conv" in labels else "dnn")
    return ZooImport(
        difference=worst, text=" ".join(labels), network=imported.network, kind=kind,
        expected=not refusal and worst < CLOSE and kind in ("", by_labels))


def recognised(network: Graph) -> str:
    """The kind of a network; "" where it has an operation that cannot be quantised."""
    try:
        return kind_of(part.op for part in plan(network).parts)
    except ValueError:
        return ""


def print_twins(name: str, network: Graph) -> Counter[str]:
    """Print what becomes of a network's twins; returns the number of each state."""
    from concord.campaigns.zoo.twins import twins

    counts: Counter[str] = Counter()
    for made in twins(network):
        counts[made.state] += 1
        print(f"{name:28} {made.state:5} {'twin     ' if made.equal is not None else '  '} {made.text}", flush=True)
    return counts


def printed(name: str, folder: Path) -> ZooImport | None:
    """Import an entry and print what became of it; None where a package of its tool is not installed."""
    try:
        found = outcome(name, folder)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "concord":
            raise
        print(f"{name:28} left out: {error.name} is not installed", flush=True)
        return None
    result = "refused" if found.difference is None else f"{found.difference:.1e}"
    text = found.text.splitlines()[-1].strip()[:120]
    print(f"{name:28} {'ok   ' if found.expected else 'WRONG'} {result:8} {found.kind:4} {text}", flush=True)
    return found


def main():
    """Run the zoo, and end with 1 if an entry is not what it must be, or nothing has been compared."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--names", nargs="*", default=list(ZOO), choices=list(ZOO), metavar="NAME")
    parser.add_argument("--twins", action="store_true", help="make a software twin of each network, and compare it "
                        "with golden, with the names of the firmware and without them")
    given = parser.parse_args()
    imported: list[ZooImport] = []
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        for name in given.names:
            found = printed(name, Path(folder))
            if found:
                imported.append(found)
                if given.twins and found.network:
                    counts += print_twins(name, found.network)
    nothing = not imported or given.twins and not counts["ok"] + counts["WRONG"]
    if nothing:
        print("no twin has been compared with golden" if imported else "every entry is left out")
    sys.exit(nothing or counts["WRONG"] > 0 or not all(found.expected for found in imported))


if __name__ == "__main__":
    main()
