"""The outputs of a network, as text and as a file."""

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from concord.golden.lib.atomic_files import write_all
from concord.model import network
from concord.model.data.samples import Samples


def line(index: int, outputs: np.ndarray, classes: Sequence[str], samples: Samples, place: int) -> str:
    """A line about one sample: its class, and the label if that differs; without class names, the largest output.

    Args:
        index:   Index of the sample in its source.
        outputs: Outputs of the network, uint16[outputs].
        classes: Names of the outputs; may be empty.
        samples: The samples of this run.
        place:   Index of the sample in `samples`.
    """
    kind = int(network.classes(outputs))
    if not classes:
        return f"{index}: output {kind} is the largest, {_value(outputs[kind])}"
    wrong = samples.labels is not None and samples.labels[place] != kind
    return f"{index}: {kind} {classes[kind]}" + (f" (is {classes[samples.labels[place]]})" if wrong else "")


def values(outputs: np.ndarray) -> str:
    """The outputs of a sample as text."""
    return " ".join(_value(value) for value in outputs)


def summary(results: np.ndarray, samples: Samples) -> str:
    """A sentence about the share of correct samples; without labels, about the number of samples."""
    if samples.labels is None:
        return f"{len(results)} samples"
    return f"{np.mean(network.classes(results) == samples.labels):.2%} of {len(results)} right"


def write_outputs(path: Path, results: np.ndarray):
    """Write binary16[samples, outputs] as a .npy file."""
    stream = io.BytesIO()
    np.save(stream, results.view(np.float16))
    write_all(path.parent, {path.name: stream.getvalue()})


def _value(bits: np.uint16) -> str:
    return f"{bits.view(np.float16):.4g}"
