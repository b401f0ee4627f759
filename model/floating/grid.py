"""Integers of networks that are quantised already."""

from dataclasses import dataclass, replace

import numpy as np
from concord.model.floating.network import Node, Op

WIDEST = 16  #: Most bits of an integer.


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Grid:
    """Which numbers a tensor of integers can hold: scale * (integer - zero_point).

    Attributes:
        scale:      Step between neighbouring numbers: float64, or float64 of any shape.
        zero_point: The integer that stands for zero, of the shape of the scale.
        bits:       Bits of the integers.
        signed:     Whether they have a sign.
        narrow:     Whether one integer fewer is used: the lowest of signed ones, the highest of others.
    """

    scale: float | np.ndarray
    zero_point: float | np.ndarray
    bits: int
    signed: bool
    narrow: bool = False

    @property
    def lowest(self) -> int:
        """The smallest integer."""
        return -(1 << self.bits - 1) + self.narrow if self.signed else 0

    @property
    def highest(self) -> int:
        """The largest integer."""
        return (1 << self.bits - self.signed) - 1 - (self.narrow and not self.signed)

    def clipped(self, lowest: int, highest: int) -> "Grid | None":
        """The same grid with fewer integers, or None if no bits have these."""
        lowest, highest = max(lowest, self.lowest), min(highest, self.highest)
        found = (replace(self, bits=bits, signed=signed, narrow=narrow)
                 for bits in range(1, WIDEST + 1) for signed in (True, False) for narrow in (False, True))
        return next((one for one in found if (one.lowest, one.highest) == (lowest, highest)), None)

    def integers(self, x: np.ndarray) -> np.ndarray:
        """float64 integers that stand for numbers, rounded half to even and clipped."""
        return np.clip(np.round(x / self.scale) + self.zero_point, self.lowest, self.highest)

    def quantized(self, x: np.ndarray) -> np.ndarray:
        """The numbers that these integers stand for, in float64."""
        return (self.integers(x) - self.zero_point) * self.scale


def grid_of(node: Node) -> Grid:
    """The grid of a `quantize` node."""
    return Grid(**{key: node.attributes[key] for key in ("scale", "zero_point", "bits", "signed", "narrow")})


def weight_grid(node: Node) -> Grid | None:
    """The grid of a layer's weights, in the shape that fits them, or None if they are float32."""
    if "weight_scale" not in node.tensors:
        return None
    beside = [1] * (node.tensors["weight"].ndim - 1)
    scale, zero = (node.tensors[key].astype(np.float64).reshape(-1, *beside)
                   for key in ("weight_scale", "weight_zero_point"))
    return Grid(scale=scale, zero_point=zero, **{
        key: node.attributes[f"weight_{key}"] for key in ("bits", "signed", "narrow")})


def check_grid(node: Node):
    """Refuse a grid that no integers lie on.

    Raises:
        ValueError: a scale is not above zero, the bits are too few or too many, or weights do not lie on their grid.
    """
    grid = grid_of(node) if node.op is Op.QUANTIZE else weight_grid(node)
    if grid is None:
        return
    if not 1 <= grid.bits <= WIDEST:
        raise ValueError(f"node {node.name!r} has integers of {grid.bits} bits; 1 to {WIDEST} are possible")
    if not (np.all(np.isfinite(grid.scale)) and np.all(np.greater(grid.scale, 0))):
        raise ValueError(f"node {node.name!r} has a scale that is not above zero")
    if np.any(np.less(grid.zero_point, grid.lowest)) or np.any(np.greater(grid.zero_point, grid.highest)):
        raise ValueError(f"node {node.name!r} has a zero point outside {grid.lowest}..{grid.highest}")
    if node.op is not Op.QUANTIZE:
        weight = node.tensors["weight"].astype(np.float64)
        # Products of integers and scales are rounded to float32.
        if not np.allclose(grid.quantized(weight), weight, rtol=1e-5, atol=0):
            raise ValueError(f"node {node.name!r} has weights that are no integers of {grid.bits} bits times its scale")
