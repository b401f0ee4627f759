"""Factors by which the ranges of one product change, from the overflows of its sums.

Source: S3, steps 203 and 205: by magnitude first, then by frequency; smaller where results stay far inside.
"""

from dataclasses import dataclass, field

import numpy as np
from concord.net.layer_overflow import Count, Widths
from concord.train.overflow.record import Adjusted, RangeSteps

MARGIN = 1.05  #: Ranges stay larger by this factor than those that overflowed. Shrinking by less is not done.


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ShrinkRoom:
    """How far ranges can shrink before more numbers clip.

    Attributes:
        parameters: float64[ranges], the largest weight of each range in steps, as a share of the largest integer.
        inputs:     Largest code of the inputs in use, as a share of the largest code. From 1 on, nothing shrinks.
        lowered:    Whether codes are unsigned, and lowered by half their range for the product. Partial sums then
            depend on the code 0, and only totals depend on the range of the inputs.
    """

    parameters: np.ndarray
    inputs: float
    lowered: bool


@dataclass(kw_only=True, slots=True, eq=False)
class Factors:
    """Ranges of one product, as multiples of its first ranges, and the ranges under which it overflowed.

    Attributes:
        ranges:     Number of ranges of the weights.
        shared:     Number of neighbouring rows that share a range.
        parameters: float64[ranges], a1, the factor of each range of the weights.
        inputs:     a2, the factor of the range of the inputs.
        overflowed: float64[ranges], a1 * a2 with which each range last overflowed. No range shrinks to that again.
        grown:      bool[ranges], the ranges that have grown since `begin`. They do not shrink before the next `begin`.
    """

    ranges: int
    shared: int = 1
    parameters: np.ndarray = field(init=False)
    inputs: float = field(init=False, default=1.0)
    overflowed: np.ndarray = field(init=False)
    grown: np.ndarray = field(init=False)

    def __post_init__(self):
        self.parameters, self.overflowed = np.ones(self.ranges), np.zeros(self.ranges)
        self.begin()

    def begin(self):
        """Begin a run of the predictor, before which weights have changed."""
        self.grown = np.zeros(self.ranges, bool)

    def change(
        self, count: Count, widths: Widths, room: ShrinkRoom, steps: RangeSteps
    ) -> tuple[np.ndarray, float] | None:
        """Factors of the parameters[ranges] and of the inputs for one round, or None if nothing is left to change.

        A round never both grows and shrinks, and what has grown does not shrink before the next `begin`. Each range
        that overflowed bars all smaller ones for good, so growing and shrinking end.
        """
        inner, outer = (ratio.reshape(-1, self.shared).max(1) for ratio in _ratios(count, widths))
        if count.number > steps.threshold:
            factors = self._grow(inner, outer, count, room, steps)
        elif count.number or steps.by is Adjusted.DATA:
            return None
        else:
            factors = self._shrink(np.maximum(inner, outer), room, steps)
        if factors is not None and steps.by is Adjusted.RANGES:
            self.parameters *= factors[0]
            self.inputs *= factors[1]
        return factors

    def _grow(self, inner, outer, count, room, steps) -> tuple[np.ndarray, float]:
        share = count.rows.reshape(-1, self.shared).mean(1) / (count.additions // len(count.rows))
        gentle = 1 + np.maximum(steps.least, steps.step * np.sqrt(share))

        def wanted(ratio):
            # The magnitude was known in the first round; what is still too large is due to rounding, and to how often.
            growth = np.maximum(ratio * (1 + steps.least), np.where(self.grown, gentle, 1.0))
            return np.where(ratio > 1, growth, 1.0)

        ratio = np.maximum(inner, outer)
        over = ratio > 1
        whole, parameters_only = wanted(ratio), wanted(inner) if room.lowered else np.ones(self.ranges)
        if steps.weights_factor is not None:
            parameters_only = np.where(over, steps.weights_factor, 1.0)
        inputs = float((whole / parameters_only).max() ** steps.inputs)
        if steps.inputs_factor is not None:
            inputs = steps.inputs_factor
        self.overflowed[over] = np.maximum(self.overflowed, self.parameters * self.inputs)[over]
        self.grown |= over
        if steps.weights_factor is None:
            parameters_only = np.maximum(parameters_only, whole / inputs)
        return np.maximum(1.0, parameters_only), inputs

    def _shrink(self, ratio, room, steps) -> tuple[np.ndarray, float] | None:
        now = self.parameters * self.inputs
        # Where all is zero there is no range to shrink.
        inside = (ratio < 2.0**-steps.headroom) & ~self.grown & (room.parameters > 0)
        barred = MARGIN * self.overflowed / now
        wanted = np.maximum(np.maximum(steps.shrink, barred), ratio * 2.0 ** (steps.headroom / 2))
        parameters = np.where(inside, np.minimum(1.0, np.maximum(wanted, room.parameters)), 1.0)
        # Inputs belong to all rows.
        rest = float((wanted / parameters).max())
        inputs = min(1.0, max(rest, room.inputs)) if inside.all() and room.inputs > 0 else 1.0
        parameters, inputs = (np.where(values * MARGIN > 1, 1.0, values) for values in (parameters, inputs))
        return (parameters, float(inputs)) if (parameters < 1).any() or inputs < 1 else None


def _ratios(count: Count, widths: Widths) -> tuple[np.ndarray, np.ndarray]:
    """Largest magnitudes as shares of the storage: of partial sums and products, and of totals. Above 1 is overflow."""

    def ratio(magnitude, bits):
        return (magnitude + 1) / 2.0 ** (bits - 1)

    inner = np.maximum(ratio(count.partial, widths.sum_bits), ratio(count.product, widths.product_bits))
    return inner, ratio(count.total, min(widths.sum_bits, widths.output_bits))
