"""Codes of the outputs of gates: the steps that an output is rounded to, and the operations that round it.

Source: claims 3 and 4 of the second document, which quantise the output of each gate, symmetrically or not.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, floor, frexp, inf
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
from concord.spec.numbers.activation import Activation

if TYPE_CHECKING:
    from concord.net.cells.cell import Cell, Operations, Value

#: Where each curve of a gate ends.
ENDS = {Activation.SIGMOID: (0.0, 1.0), Activation.TANH: (-1.0, 1.0), Activation.RELU: (0.0, inf)}
#: Exponents of steps; coarser ones have no centre in binary16.
FINEST, COARSEST = -14, 4
#: Every whole number up to this one is exact in binary16.
EXACT = 2048
#: A sum of 1536 steps has steps as its last place, and keeps them for numbers of up to 512 steps on either side.
CENTRE, AROUND = 1536, 512


@dataclass(frozen=True, slots=True)
class OutputCodes:
    """The codes of the output of one gate, whole steps of a power of two.

    Attributes:
        curve:    Activation function of the gate.
        exponent: A step is 2**exponent.
        lowest:   Smallest code. A smaller output becomes this one.
        highest:  Largest code. A larger output becomes this one.
    """

    curve: Activation
    exponent: int
    lowest: int
    highest: int

    @classmethod
    def of_curve(cls, curve: Activation, bits: int) -> "OutputCodes":
        """The codes over all that a bounded curve gives, both ends included: steps of 2**-bits for a sigmoid."""
        low, high = ENDS[curve]
        steps = 1 << bits - (low < 0)
        return cls(curve, (low < 0) - bits, int(low) * steps, int(high) * steps)

    @classmethod
    def of_range(cls, curve: Activation, bits: int, symmetric: bool, low: float, high: float) -> "OutputCodes":
        """The codes of `bits` bits with the finest step that hold a range.

        Codes that an asymmetric range leaves over extend it, first downward, to where the curve ends.

        Args:
            symmetric: Whether the codes lie about zero, with as many on either side.
            low, high: The smallest and the largest output of the gate.

        Raises:
            ValueError: no step that the machine's additions can round to is coarse enough.
        """
        most = (1 << bits - 1) - 1
        for exponent in range(FINEST, COARSEST + 1):
            step = 2.0**exponent
            lowest, highest = (-most, most) if symmetric else (floor(low / step), ceil(high / step))
            over = (1 << bits) - 1 - (highest - lowest)
            fits = max(-low, high) <= most * step if symmetric else over >= 0
            if fits and max(-lowest, highest) <= EXACT:
                break
        else:
            raise ValueError(f"outputs of gates up to {max(-low, high):.3g} do not fit {bits} bits in steps of at most "
                             f"{2.0**COARSEST:g}: give --gate-bits more, or leave it out")
        if not symmetric:
            down = min(over, max(0, lowest - floor(max(ENDS[curve][0] / step, -AROUND))))
            lowest, highest = lowest - down, min(highest + over - down, EXACT)
        return cls(curve, exponent, lowest, highest)

    @classmethod
    def of_record(cls, curve: Activation, record: np.ndarray) -> "OutputCodes":
        """The codes of int64[3]: exponent, lowest, highest."""
        return cls(curve, *map(int, record))

    @property
    def record(self) -> tuple[int, int, int]:
        """Exponent, lowest and highest code."""
        return self.exponent, self.lowest, self.highest

    @property
    def count(self) -> int:
        """Number of codes."""
        return self.highest - self.lowest + 1

    @property
    def step(self) -> float:
        """The real value of one code."""
        return 2.0**self.exponent

    @property
    def clips(self) -> tuple[bool, bool]:
        """Whether the curve passes the lowest code, and the highest."""
        low, high = ENDS[self.curve]
        return low < self.lowest * self.step, self.highest * self.step < high

    def quantized(self, y: np.ndarray) -> np.ndarray:
        """The real numbers that the codes of real numbers stand for."""
        return np.clip(np.rint(y / self.step), self.lowest, self.highest) * self.step

    def rounded(self, ops: "Operations[Value]", y: "Value") -> "Value":
        """An output in whole steps, by additions whose last place is a step, and comparisons where the curve clips.

        (y + centre) - centre rounds to the nearest step, ties to even, as each addition of binary16 does. Where outputs
        clip above, centre - max(centre - y, centre - highest) does so as well.
        """
        below, above = self.clips
        near = self.lowest >= -AROUND and self.highest <= AROUND
        centre = CENTRE if near else CENTRE + self._middle
        of_ops = ops.constant(centre * self.step)
        if near and not above:
            made = ops.sub(ops.add(y, of_ops), of_ops)
        else:
            made = ops.sub(of_ops, y)
            if above:
                made = ops.larger(made, ops.constant((centre - self.highest) * self.step, bound=True))
            made = ops.sub(of_ops, made)
        return ops.larger(made, ops.constant(self.lowest * self.step, bound=True)) if below else made

    @property
    def _middle(self) -> int:
        """The middle of the codes, so that the centre and it are an even number of steps that binary16 has."""
        middle = (self.lowest + self.highest) // 2
        last = max(1, frexp(CENTRE + abs(middle))[1] - 10)
        return middle >> last << last


#: Where the outputs of gates keep all bits.
NO_CODES: Mapping[str, OutputCodes] = MappingProxyType({})


def output_codes(cell: "Cell", bits: int, record: np.ndarray | None) -> Mapping[str, OutputCodes]:
    """The codes of each gate's output by the gate's name: of its curve without a record; none for 0 bits.

    Args:
        record: int64[gates, 3], see `OutputCodes.record`; None for the codes of the curves.
    """
    if not bits:
        return NO_CODES
    return {gate.name: OutputCodes.of_curve(gate.curve, bits) if record is None else (
        OutputCodes.of_record(gate.curve, record[index])) for index, gate in enumerate(cell.gates)}
