"""Factors by which the ranges of one layer change, from the overflows of its sums, and the change itself.

Source: S3, steps 203 and 205: by magnitude first, then by frequency; smaller where results stay far inside.
"""

from dataclasses import dataclass, field

import numpy as np
import torch
from concord.net.layer_overflow import Count, Widths
from concord.train.overflow.record import RangeSteps
from concord.train.qat.layer import QuantizedLayer

MARGIN = 1.05  #: Ranges stay larger by this factor than those that overflowed. Shrinking by less is not done.


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ShrinkRoom:
    """How far ranges can shrink before more numbers clip.

    Attributes:
        parameters: float64[rows], the largest weight of each row in steps, as a share of the largest integer.
        inputs:     Largest code of the inputs in use, as a share of the largest code.
        lowered:    Whether codes are unsigned, and lowered by half their range for the product. Partial sums then
            depend on the code 0, and only totals depend on the range of the inputs.
    """

    parameters: np.ndarray
    inputs: float
    lowered: bool


@dataclass(kw_only=True, slots=True, eq=False)
class Factors:
    """Ranges of one layer, as multiples of its first ranges, and the ranges under which it overflowed.

    Attributes:
        rows:       Number of rows of the layer.
        parameters: float64[rows], a1, the factor of the range of the weights of each row.
        inputs:     a2, the factor of the range of the inputs.
        overflowed: float64[rows], a1 * a2 with which each row last overflowed. No range shrinks to that again.
        grown:      bool[rows], the rows that have grown since `begin`. They do not shrink before the next `begin`.
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
        """Begin a run of the predictor, before which weights have changed."""
        self.grown = np.zeros(self.rows, bool)

    def change(
        self, count: Count, widths: Widths, room: ShrinkRoom, steps: RangeSteps
    ) -> tuple[np.ndarray, float] | None:
        """Factors of the parameters[rows] and of the inputs for one round, or None if nothing is left to change.

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
    """Largest magnitudes as shares of the storage: of partial sums and products, and of totals. Above 1 is overflow."""

    def ratio(magnitude, bits):
        return (magnitude + 1) / 2.0 ** (bits - 1)

    inner = np.maximum(ratio(count.partial, widths.sum_bits), ratio(count.product, widths.product_bits))
    return inner, ratio(count.total, min(widths.sum_bits, widths.output_bits))


def enlarge_parameters(layer: QuantizedLayer, factor: np.ndarray):
    """Enlarge the range of the weights of each row by factor[rows]. The real weights stay, in fewer steps.

    A factor below 1 shrinks the range, and integers grow. No weight clips if the factor is `weights_used` or more.
    """
    layer.weights.enlarge(torch.from_numpy(np.asarray(factor, np.float64)))


def weights_used(layer: QuantizedLayer) -> np.ndarray:
    """float64[rows]: the largest weight of each row in steps, as a share of the largest integer."""
    with torch.no_grad():
        weights = layer.weights
        steps = weights.bent() * weights.per_weight(1 + weights.change.double())
        return steps.abs().amax(1).double().numpy() / weights.grid.highest


def enlarge_inputs(layer: QuantizedLayer, factor: float):
    """Enlarge the range of the inputs. The real inputs stay, in fewer steps. A factor below 1 shrinks the range."""
    with torch.no_grad():
        layer.inputs.saturation.mul_(factor)
