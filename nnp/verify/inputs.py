"""What a network is run on: its own test set, that of a folder, or the numbers of a file."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from concord.golden.host.firmware import Firmware
from concord.model import dataset
from concord.model.dataset import Samples
from concord.model.model import Model
from concord.model.npy_file import read_numbers
from concord.nnp.lib.options import sample_range
from concord.nnp.verify.batches import one_sample

#: Samples that a sentence names at most.
NAMED = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """Where inputs come from, and which of them are used.

    Attributes:
        inputs:  A file of real numbers [samples, ...], or [samples, steps, ...] for a recurrent network; or None.
        data:    A folder that holds a test set, or None.
        samples: As `--samples` says; None for `default` of them, or all where there are fewer.
        first:   Index of the first sample.
        default: How many samples are used where `samples` is None.

    Raises:
        ValueError: both places are named.
    """

    inputs: Path | None
    data: Path | None
    samples: str | None
    first: int
    default: int

    def __post_init__(self):
        if self.inputs and self.data:
            raise ValueError("--inputs and --data are two places that inputs come from: name one of them")


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Inputs:
    """The samples that were chosen.

    Attributes:
        samples: Their numbers, and labels where they are known.
        chosen:  Which ones of their source they are.
        name:    Of their source, for people.
        odd:     A sentence about numbers that are not finite or beyond binary16; empty where there are none.
    """

    samples: Samples
    chosen: slice
    name: str
    odd: str

    def __iter__(self):
        """Index and binary16 patterns of each sample, without the padding behind its end."""
        for index in range(len(self.samples)):
            yield self.chosen.start + index, one_sample(self.samples, index)


def read(network: Firmware | Model, source: Source) -> Inputs:
    """The inputs of a network.

    Raises:
        ValueError: there are no such inputs, or they do not fit the network.
    """
    odd = ""
    if source.inputs:
        name = str(source.inputs)
        numbers = _shaped(network, source.inputs)
        with np.errstate(over="ignore"):
            found = Samples(inputs=numbers.astype(np.float16).view(np.uint16), lengths=None, labels=None, classes=())
    elif source.data or network.inputs:
        name = str(source.data or network.data)
        found = _test_set(network, source.data)
    else:
        name, found = "nothing", Samples(inputs=np.zeros((1, 0), np.uint16), lengths=None, labels=None, classes=())
    chosen = sample_range(source.samples, source.first, len(found), source.default)
    if source.inputs:
        odd = oddities(name, numbers[chosen], chosen.start)
    return Inputs(samples=found.part(chosen), chosen=chosen, name=name, odd=odd)


def oddities(name: str, numbers: np.ndarray, first: int) -> str:
    """A sentence about numbers that binary16 does not hold; empty where there are none.

    Args:
        name:    Where the numbers come from.
        numbers: Real[samples, ...].
        first:   Index of the first sample.
    """
    finite = np.isfinite(numbers)
    with np.errstate(over="ignore"):
        beyond = finite & ~np.isfinite(numbers.astype(np.float16))
    odd = ~finite | beyond
    if not odd.any():
        return ""
    rows = np.flatnonzero(odd.reshape(len(odd), -1).any(axis=1)) + first
    return (f"{name}: of {odd.size:,} values {int((~finite).sum()):,} are not finite and {int(beyond.sum()):,} too "
            f"large for binary16, which makes them infinite; results of {_listed(rows.tolist())} mean nothing")


def _listed(rows: Sequence[int]) -> str:
    """Indices of samples in words, the first few of many."""
    text = ", ".join(map(str, rows[:NAMED]))
    return f"sample{'s' * (len(rows) > 1)} {text}" + f" and {len(rows) - NAMED:,} more" * (len(rows) > NAMED)


def _shaped(network: Firmware | Model, path: Path) -> np.ndarray:
    """Numbers[samples, inputs] or [samples, steps, inputs] of a file; further axes are flattened in C order."""
    array, axes = read_numbers(path), 2 if network.recurrent else 1
    if array.ndim <= axes or np.prod(array.shape[axes:]) != network.inputs:
        shape = f"[samples, steps, {network.inputs}]" if network.recurrent else f"[samples, {network.inputs}]"
        raise ValueError(f"{path}: {network.name} takes numbers{shape}, not {array.dtype}{list(array.shape)}")
    return array.reshape(*array.shape[:axes], network.inputs)


def _test_set(network: Firmware | Model, folder: Path | None) -> Samples:
    """The test set of a network, from a folder where one is named."""
    if folder is None and network.data not in dataset.SHIPPED:
        has = "no test set" if network.data == "none" else f"the test set of {network.data}, which is not shipped"
        raise ValueError(f"{network.name} has {has}: give inputs with --inputs FILE.npy, or a test set with --data "
                         "FOLDER")
    found = dataset.load(network.data) if folder is None else dataset.of_folder(folder)
    if found.inputs.ndim != (3 if network.recurrent else 2) or found.inputs.shape[-1] != network.inputs:
        kind = "sequences of vectors" if network.recurrent else "vectors"
        raise ValueError(f"{folder or network.data}: {network.name} takes {kind} of {network.inputs} numbers, the test "
                         f"set holds {'x'.join(map(str, found.inputs.shape[1:]))}; name another one with --data")
    if found.labels.max() >= network.outputs:
        raise ValueError(f"{folder or network.data}: the test set has class {found.labels.max()}, {network.name} has "
                         f"{network.outputs} outputs; name another one with --data")
    return found
