"""Layers of image networks under integer mode, and those that join several tensors.

An image is uint16[samples, channels * rows * columns] of binary16 patterns, channel by channel, row by row.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import prod

import numpy as np
from concord.golden.mfu.activation import Activation
from concord.model import layer_checks
from concord.spec.formats import Format


class Reduction(StrEnum):
    """What a window becomes."""

    MAX = "max"
    AVERAGE = "average"


class Windows:
    """What layers share that see an image through windows: `shape`, `stride` and `padding` are theirs."""

    __slots__ = ()

    @property
    def window(self) -> tuple[int, int]:
        """Rows and columns of a window."""
        raise NotImplementedError

    @property
    def channels(self) -> int:
        """Of the output."""
        raise NotImplementedError

    @property
    def made(self) -> tuple[int, int, int]:
        """Channels, rows and columns of the output."""
        return self.channels, *layer_checks.counts(self, self.window)

    @property
    def inputs(self) -> int:
        return prod(self.shape)

    @property
    def outputs(self) -> int:
        return prod(self.made)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Conv(Windows):
    """Integer convolution: at each place what `Dense` does to the patch there.

    Attributes:
        name:           Unique in its model.
        weights_format: As in `Dense`, likewise `input_format`, `unsigned`, `p`, `activation`, `ranges` and `real`.
        shape:          Channels, rows and columns of the input.
        stride:         Between neighbouring places.
        padding:        Rows and columns put around the input, before its quantiser.
        groups:         Neighbouring channels that only see each other.
        border:         Binary16 pattern of the padding: zero in the unit in which the input arrives.
        weights:        int16[outputs, channels / groups, rows, columns].
        start:          int64[outputs].
        scale:          uint16[outputs], S.
        offset:         uint16[outputs], T.
        quant_scale:    uint16[channels], R, or None where the input arrives in steps of its code.
        quant_offset:   uint16[channels], O, or None.
    """

    name: str
    weights_format: Format
    input_format: Format
    unsigned: bool
    shape: tuple[int, int, int]
    stride: int
    padding: int
    groups: int
    border: int
    weights: np.ndarray
    start: np.ndarray
    p: int
    scale: np.ndarray
    offset: np.ndarray
    quant_scale: np.ndarray | None = None
    quant_offset: np.ndarray | None = None
    activation: Activation = Activation.NONE
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    real: Mapping[str, np.ndarray] = field(default_factory=dict)

    def __post_init__(self):
        shape = layer_checks.kernels(self, "weights")
        layer_checks.array(self, "weights", np.int16, shape, mantissas=self.weights_format)
        layer_checks.array(self, "start", np.int64, shape[:1])
        for name in "scale", "offset":
            layer_checks.array(self, name, np.uint16, shape[:1])
        for name in "quant_scale", "quant_offset":
            layer_checks.array(self, name, np.uint16, (self.shape[0],), optional=True)
        layer_checks.places(self, "p")
        layer_checks.real(self)

    @property
    def window(self) -> tuple[int, int]:
        return self.weights.shape[2:]

    @property
    def channels(self) -> int:
        return len(self.weights)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Pool(Windows):
    """The largest value of each window, or their sum in row order times binary16(1 / elements), each rounded.

    Attributes:
        name:       Unique in its model.
        reduction:  Of two.
        shape:      Channels, rows and columns of the input.
        size:       Rows and columns of a window.
        stride:     Between neighbouring windows.
        padding:    Rows and columns around the input that no maximum sees; 0 for averages.
        activation: Applied to the result.
    """

    name: str
    reduction: Reduction
    shape: tuple[int, int, int]
    size: int
    stride: int
    padding: int = 0
    activation: Activation = Activation.NONE

    def __post_init__(self):
        layer_checks.image_shape(self)
        layer_checks.windows(self, self.window)
        if self.padding and self.reduction is Reduction.AVERAGE:
            raise ValueError(f"layer {self.name!r}: averages take no padding; pad before, or use none")
        if 2 * self.padding > self.size:
            raise ValueError(f"layer {self.name!r}: padding {self.padding} is more than half of its windows of "
                             f"{self.size}")

    @property
    def window(self) -> tuple[int, int]:
        return self.size, self.size

    @property
    def channels(self) -> int:
        return self.shape[0]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Add:
    """The sum of two tensors, rounded.

    Attributes:
        name:       Unique in its model.
        inputs:     Elements of each.
        activation: Applied to the result.
    """

    name: str
    inputs: int
    activation: Activation = Activation.NONE

    @property
    def outputs(self) -> int:
        return self.inputs


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Concat:
    """Tensors one behind the other.

    Attributes:
        name:  Unique in its model.
        sizes: Elements of each.
    """

    name: str
    sizes: tuple[int, ...]

    @property
    def outputs(self) -> int:
        return sum(self.sizes)
