"""Token numbers of a network that begins with an embedding: the host looks their vectors up in its table."""

from dataclasses import replace
from math import prod

import numpy as np
from concord.datasets.interface import Interface
from concord.datasets.raw import Raw
from concord.datasets.samples import DataSet, Samples
from concord.lib.input_axes import Order


def looked_up(data: DataSet, takes: Interface) -> DataSet:
    """A data set whose token numbers have become vectors in binary16; any other one as it is.

    Raises:
        ValueError: a number is not in the table.
    """
    found = [(name, part, tokens_of(part, takes)) for name, part in data.parts().items() if part]
    if any(tokens is None for _, _, tokens in found):
        return data
    parts = {name: replace(part, inputs=_patterns(part, vectors(tokens, takes)))
             for name, part, tokens in found if tokens is not None}
    return replace(data, shape=takes.axes.file, order=Order.FILE, image=False, refused="", **parts)


def tokens_of(samples: Samples, takes: Interface) -> np.ndarray | None:
    """Token numbers int64[samples, steps], 0 after the last step of a sequence; None where samples are no such numbers.

    Raises:
        ValueError: a number is not in the table.
    """
    return None if samples.raw is None else _tokens(samples.raw, samples.lengths, takes)


def arrayed(array: np.ndarray, takes: Interface, location: str) -> np.ndarray | None:
    """The same for an array of samples."""
    raw = Raw(inputs=array, labels=None, lengths=None, location=location)
    return _tokens(raw, None, takes) if array.dtype.kind in "iu" else None


def vectors(tokens: np.ndarray, takes: Interface) -> np.ndarray:
    """The rows of the table, float[samples, numbers], or float[samples, steps, numbers] for sequences."""
    assert takes.table is not None  # without one there are no tokens
    found = takes.table[tokens]
    return found if takes.sequence else found.reshape(len(found), -1)


def _tokens(raw: Raw, lengths: np.ndarray | None, takes: Interface) -> np.ndarray | None:
    if takes.table is None or lengths is not None and not takes.sequence:
        return None
    rows, size = takes.table.shape
    given = raw.inputs.shape[1:]
    count = raw.inputs[0].size
    if takes.sequence:
        fits = len(given) == 1 or given[1:] == (1,) != (size,)
    else:
        fits = count * size == prod(takes.axes.file) and size > 1
    if not fits:
        return None
    made = raw.inputs.reshape(len(raw.inputs), count).astype(np.int64)
    if lengths is not None:
        made[np.arange(count) >= lengths[:, None]] = 0
    if (wrong := np.argwhere((made < 0) | (made >= rows))).size:
        sample, step = wrong[0].tolist()
        raise ValueError(f"{raw.location}, {raw.sample(sample)}, step {step}: {made[sample, step]} is not in the table "
                         f"of {takes.name}, which has {rows:,} vectors, 0..{rows - 1}; correct it"
                         + ", or give `lengths` where it is padding" * takes.sequence)
    return made


def _patterns(samples: Samples, numbers: np.ndarray) -> np.ndarray:
    """Vectors as binary16 patterns, +0 after the last step of a sequence."""
    halves = numbers.astype(np.float16)
    if samples.lengths is not None:
        halves[np.arange(halves.shape[1]) >= samples.lengths[:, None]] = 0
    return halves.view(np.uint16)
