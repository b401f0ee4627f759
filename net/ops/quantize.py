"""Quantisers of networks that are quantised already."""

from dataclasses import asdict, dataclass

from concord.net.ops.grid import IntegerGrid
from concord.net.ops.operator import Operator, Takes


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Quantize(Operator):
    """y = scale * (integer - zero_point), where the integer is the one of the grid that is nearest to x.

    Attributes:
        grid: The integers, with one scale and one zero point.
    """

    grid: IntegerGrid

    kind = "quantize"
    takes = Takes.EITHER

    def __post_init__(self):
        self.grid.check()

    def real(self, x, lengths):
        return self.grid.quantized(x)

    def attributes(self):
        return asdict(self.grid)

    @classmethod
    def restored(cls, attributes, tensors):
        return cls(grid=IntegerGrid(**attributes))
