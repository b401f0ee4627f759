"""By how much the ranges of one layer must change, from what its sums did.

Source: S3, steps 203 and 205: by magnitude first, then by frequency; smaller where results stay far inside.
"""

from dataclasses import dataclass, field

import numpy as np
from concord.model.layer_overflow import Count, Widths
from concord.train.overflow.defaults import Steps

MARGIN = 1.05  #: Ranges stay this much above those that overflowed; smaller shrinking is not worth a round.


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Room:
    """How far ranges can shrink until something clips that did not.

    Attributes:
        parameters: float64[rows], largest weight in steps over the largest integer that there is.
        inputs:     Largest input code over the largest that there is.
        lowered:    Codes are unsigned and travel lowered by half their range: partial sums follow the code 0, and only
            totals follow the range of the inputs.
    """

    parameters: np.ndarray
    inputs: float
    lowered: bool


@dataclass(kw_only=True, slots=True, eq=False)
class Factors:
    """Ranges of one layer, as multiples of those that it began with, and its memory of where it overflowed.

    Attributes:
        rows:       Of the layer.
        parameters: float64[rows], a1.
        inputs:     a2.
        overflowed: float64[rows], a1 * a2 where a row last overflowed; no shrinking goes there again.
        grown:      Rows that have grown since `begin`: they do not shrink before the next one.
    """

    rows: int
    parameters: np.ndarray = field(init=False)
    inputs: float = field(init=False, default=1.0)
    overflowed: np.ndarray = field(init=False)
    grown: np.ndarray = field(init=False)

    def __post_init__(self):
        self.parameters, self.overflowed = np.ones(self.rows), np.zeros(self.rows)
        self.begin()

    def begin(self):
        """The predictor runs again: weights have changed since."""
        self.grown = np.zeros(self.rows, bool)

    def change(self, count: Count, widths: Widths, room: Room, steps: Steps) -> tuple[np.ndarray, float] | None:
        """Factors of the parameters[rows] and of the inputs for one round, which are remembered; None to stop.

        A round never both grows and shrinks, and what has grown does not shrink before the next `begin`. Each range
        that overflowed bars all smaller ones for good, so growing and shrinking end.
        """
        inner, outer = _ratios(count, widths)
        if not steps.rows:
            inner, outer = np.full_like(inner, inner.max()), np.full_like(outer, outer.max())
        if count.number > steps.threshold:
            factors = self._grow(inner, outer, count, room, steps)
        elif count.number:
            return None
        else:
            factors = self._shrink(np.maximum(inner, outer), room, steps)
        if factors is not None:
            self.parameters *= factors[0]
            self.inputs *= factors[1]
        return factors

    def _grow(self, inner, outer, count, room, steps) -> tuple[np.ndarray, float]:
        share = count.rows / (count.additions // self.rows)
        gentle = 1 + np.maximum(steps.least, steps.step * np.sqrt(share))

        def wanted(ratio):
            # The magnitude was known in the first round; what is still too large is due to rounding, and to how often.
            growth = np.maximum(ratio * (1 + steps.least), np.where(self.grown, gentle, 1.0))
            return np.where(ratio > 1, growth, 1.0)

        ratio = np.maximum(inner, outer)
        whole, parameters_only = wanted(ratio), wanted(inner) if room.lowered else np.ones(self.rows)
        inputs = float((whole / parameters_only).max() ** steps.inputs)
        over = ratio > 1
        self.overflowed[over] = np.maximum(self.overflowed, self.parameters * self.inputs)[over]
        self.grown |= over
        return np.maximum(1.0, np.maximum(parameters_only, whole / inputs)), inputs

    def _shrink(self, ratio, room, steps) -> tuple[np.ndarray, float] | None:
        now = self.parameters * self.inputs
        # Where all is zero there is no range to shrink.
        inside = (ratio < 2.0**-steps.headroom) & ~self.grown & (room.parameters > 0)
        barred = MARGIN * self.overflowed / now
        wanted = np.maximum(np.maximum(steps.shrink, barred), ratio * 2.0 ** (steps.headroom / 2))
        parameters = np.where(inside, np.minimum(1.0, np.maximum(wanted, room.parameters)), 1.0)
        if not steps.rows:
            parameters[:] = parameters.max()
        # Inputs belong to all rows.
        rest = float((wanted / parameters).max())
        inputs = min(1.0, max(rest, room.inputs)) if inside.all() and room.inputs > 0 else 1.0
        parameters, inputs = (np.where(values * MARGIN > 1, 1.0, values) for values in (parameters, inputs))
        return (parameters, float(inputs)) if (parameters < 1).any() or inputs < 1 else None


def _ratios(count: Count, widths: Widths) -> tuple[np.ndarray, np.ndarray]:
    """How full the storage of partial sums and products, and that of totals, was: above 1 it overflowed."""

    def ratio(magnitude, bits):
        return (magnitude + 1) / 2.0 ** (bits - 1)

    inner = np.maximum(ratio(count.partial, widths.sum_bits), ratio(count.product, widths.product_bits))
    return inner, ratio(count.total, min(widths.sum_bits, widths.output_bits))
