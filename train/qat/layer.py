"""A convolution, dense layer or average after its quantisers, in real numbers or in the machine's arithmetic.

Source: S0; numerics.md of the specification, integer mode.
"""

from dataclasses import replace

import numpy as np
import torch
from concord.net.arithmetic.integer import largest_sum
from concord.net.lowering import lowering
from concord.net.quantize.integers import Integers, Rows
from concord.net.quantize.plan import Part
from concord.net.quantize.recipe import Recipe
from concord.spec.numbers.activation import Activation
from concord.spec.numbers.formats import Format
from concord.train.lib.curves import curve
from concord.train.lib.straight_through import FLOAT32_EXACT, binary16
from concord.train.qat.activations import Activations, SignedCodes, activations
from concord.train.qat.affine import affine, total
from concord.train.qat.geometry import Geometry
from concord.train.qat.normalisation import Normalisation
from concord.train.qat.parts import TrainedParts
from concord.train.qat.weights import TrainedWeights, keep_structure, weights
from torch import nn

#: Learning rate of saturations and offsets, as a share of that of weights.
QUANTISER_RATE = 0.1


class QuantizedLayer(nn.Module):
    """gain * (weights x codes) + constant.

    The input is in real units or in steps of the layer's code. The result is in real units or in steps of the code of
    the next layer.

    Args:
        part:   The layer in the plan of its network.
        rows:   The integers from which training starts.
        recipe: How the layer is quantised.

    Attributes:
        weights:    Quantiser of the weights, or None where they stay in FP32.
        inputs:     Quantiser of the inputs, or None where they stay in FP32.
        line:       What the network makes of each channel of its input ahead of the codes, which R and O do in the
            machine; None for nothing.
        parts:      What training makes of this line where the input has parts, or None where the line stays.
        after:      Layer in whose steps the result is, or None for real units.
        in_steps:   Whether the input arrives in steps of the code.
        activation: Activation function of the result in real units.
    """

    def __init__(self, part: Part, rows: Rows, recipe: Recipe):
        super().__init__()
        self.geometry = Geometry.of(part)
        self.name, self.after, self.in_steps = part.name, None, False
        self.activation = part.activation
        self.weights, self.inputs = self._quantizer(part, rows, recipe), activations(
            rows.inputs, recipe, part.shapes[0])
        self.line = rows.line
        self.parts = TrainedParts(rows.line, self.inputs, recipe) if rows.divided else None
        if self.weights is None:
            self.weight = nn.Parameter(torch.from_numpy(rows.op.weight.copy()), requires_grad=not recipe.frozen)
        self.constant = nn.Parameter(torch.from_numpy(rows.constant).float())
        trained = [self.weights.weight, self.weights.change] if self.weights else [self.weight]
        keep_structure(part.op, *trained, self.constant)
        self.norm = None
        if recipe.normalise and part.spread and not recipe.frozen:
            with torch.no_grad():
                integers, gain = self._rows()
                self.norm = Normalisation(gain, self.constant.double(), total(integers), *_units(self.inputs),
                                          *map(torch.from_numpy, part.spread))

    def _quantizer(self, part: Part, rows: Rows, recipe: Recipe) -> TrainedWeights | None:
        """The quantiser of the weights; None for weights that stay in FP32."""
        if rows.weights is None:
            return None
        return weights(rows.op.weight.reshape(rows.weights.shape), rows, recipe, part.fold)

    def answer_in(self, after: "QuantizedLayer"):
        """Give results in steps of the next layer, whose clip at 0 is the relu."""
        self.activation = Activation.NONE
        object.__setattr__(self, "after", after)  # not a part of this module
        after.in_steps = True

    def read(self, steps: torch.Tensor) -> torch.Tensor:
        """What the codes of an input say in real units; the input is in steps of these codes."""
        return self.inputs.codes(steps) * self.inputs.step + self.inputs.offset

    def forward(self, x: torch.Tensor, lengths: torch.Tensor | None = None, *, lowered: bool = False):
        """The result in real numbers, or in the machine's arithmetic if `lowered`."""
        if self.geometry.dense:
            x = x.flatten(1)
        return self._lowered(x) if lowered else self._real(x)

    def _real(self, x):
        if self.line is not None:
            scale, offset = self._line()
            x = (x * scale + offset).float()
        norm = self.norm if self.training else None
        rows, change, constant = self.weights, None, self.constant
        if rows and (norm or not self.norm):
            weight, change, gain = rows.weight, rows.change, norm.gain if norm else None
        else:
            rows, (weight, gain) = None, self._rows()
            if norm:
                gain = norm.gain
            elif self.norm:
                gain, constant = self.folded(gain, total(weight))
        y = affine(x, weight, change, gain, constant, self.inputs, self.after and self.after.inputs,
                   geometry=self.geometry, in_steps=self.in_steps, border=self._border(), norm=norm, rows=rows)
        return curve(self.activation, False)(y)

    def _lowered(self, x):
        self._check_integers()
        (integers, gain), (s_out, m_out) = self._rows(), self._behind()
        start, p, exact = self._bounds(integers)
        codes = self._codes(x)
        if not exact:
            codes, integers = codes.double(), integers.double()
        sums = self.geometry.product(codes, integers, None, self._border()) + 0.0
        row_sums = total(integers).double()
        gain, constant = self.folded(gain, row_sums)
        p = lowering.of_normal_scales(p, (gain * self.inputs.step / s_out).detach())
        scale, offset = lowering.requantization(
            gain, constant.double(), row_sums, s_in=self.inputs.step,
            m_in=self.inputs.offset.double(), s_out=s_out, m_out=m_out, p=p)
        shape = (-1, *[1] * (sums.dim() - 2))
        a = binary16(sums * 2.0**-p)
        y = binary16(binary16(a * binary16(scale).view(shape)) + (binary16(offset) + 0.0).view(shape))
        return curve(self.activation, True)(y)

    def _check_integers(self):
        if not (self.weights and self.inputs):
            raise ValueError(f"layer {self.name!r} keeps FP32 weights or inputs, so it has no integer arithmetic")

    def _bounds(self, integers):
        """Start values and p of the lowering, and whether float32 holds every sum."""
        codes = integers.detach().flatten(1).numpy()
        fmt = self.input_format
        unsigned = self.inputs.unsigned
        start = lowering.start_values(codes, fmt, unsigned)
        return start, lowering.right_shift(codes, start, fmt, unsigned), largest_sum(
            codes, start, lowering.largest_code(fmt, unsigned)) < FLOAT32_EXACT

    def _behind(self):
        """Step and offset of the unit of the result."""
        return _units(self.after and self.after.inputs)

    def folded(self, gain: torch.Tensor, total: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Gain and constant of each row with normalisation folded in; `total` is the sum of the integers of a row."""
        return self.norm.fold(self.constant, total, *_units(self.inputs)) if self.norm else (gain, self.constant)

    def _rows(self):
        """Integers in the layer's own shape, and the gain of each row."""
        integers, gain = self.weights() if self.weights else (
            self.weight, torch.ones(len(self.constant), dtype=torch.float64))
        return self.geometry.shaped(integers), gain

    def _codes(self, x):
        """The codes that enter the machine's product."""
        return self.inputs.codes(x if self.in_steps else self._steps(x))

    def _steps(self, x):
        """Real numbers in steps of the codes, x R + O."""
        step, offset = self.inputs.step, self.inputs.offset
        if self.line is None:
            x = binary16(x * binary16(1 / step))
            return binary16(x + binary16(-offset.double() / step)) if offset.requires_grad or offset != 0 else x
        scale, shift = self._line()
        x = binary16(x * binary16(scale / step))
        return binary16(x + binary16((shift - offset.double()) / step))

    def _line(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Scales and offsets of the line: float64[1, channels, 1, 1] of images, float64[1, elements] of vectors."""
        found = self.parts() if self.parts else map(torch.from_numpy, (self.line.scale, self.line.offset))
        scale, offset = (one.view(1, -1, *[1] * (0 if self.geometry.dense else 2)) for one in found)
        return scale, offset

    def _border(self) -> float:
        """The code of a real zero in the padding of the input."""
        if not self.geometry.padded or not self.inputs:
            return 0.0
        with torch.no_grad():
            if self.line is not None:
                zero = torch.full((1, len(self.line.zero), 1, 1), float(np.float16(self.line.zero[0])))
                return float(self.inputs.codes(self._steps(zero))[0, 0])
            if self.inputs.offset == 0:
                return 0.0
            zero = binary16(-self.inputs.offset.double() / self.inputs.step)
            return float(zero.round().clamp(*self.inputs.ends))

    @property
    def input_format(self) -> Format:
        """Format of the codes of the input.

        Raises:
            ValueError: no machine has operands as wide.
        """
        try:
            return self.inputs.found.format
        except ValueError as error:
            raise ValueError(f"layer {self.name!r}: {error}") from error

    @property
    def weights_format(self) -> Format:
        """Format of the integers of the weights."""
        return self.weights.grid.format

    def bound(self):
        """Keep the parameters of the quantisers in their ranges."""
        for one in (self.inputs, self.parts):
            if one:
                one.bound()

    def write(self, arithmetic: Integers, name: str):
        """Write the numbers of the layer into an arithmetic, as those of a part.

        Raises:
            ValueError: the layer has no integers.
        """
        self._check_integers()
        integers, gain = self.weights()
        gain, constant = self.folded(gain, integers.double().sum(1))
        rows = arithmetic.rows[name] if self.parts is None else self.parts.written(arithmetic.rows[name])
        arithmetic.rows[name] = replace(
            rows, weights=integers.numpy().astype(np.int32), gain=gain.numpy(), constant=constant.double().numpy(),
            inputs=replace(rows.inputs, step=float(self.inputs.step), offset=float(self.inputs.offset)))

    def patches(self, x: torch.Tensor) -> torch.Tensor:
        """Unsigned codes float32[groups, samples * positions, columns] that rows multiply in the machine, for an input
        of `forward`. The codes of the padding are among them."""
        if self.geometry.dense:
            return self._codes(x.flatten(1))[None]
        return self.geometry.patches(self._codes(x), self._border())

    def rates(self) -> dict[float, list[nn.Parameter]]:
        """Parameters by their share of the learning rate."""
        slow = list(self.inputs.parameters()) if self.inputs and not self.inputs.learned_step else []
        slow += self.parts.parameters() if self.parts else []
        apart = {id(one) for one in slow}
        return {1: [one for one in self.parameters() if id(one) not in apart], QUANTISER_RATE: slow}


def _units(quantizer: Activations | SignedCodes | None) -> tuple[torch.Tensor, torch.Tensor]:
    """Step and offset, float64, of the codes of a quantiser; 1 and 0 where there is none."""
    if quantizer:
        return quantizer.step, quantizer.offset.double()
    return torch.ones((), dtype=torch.float64), torch.zeros((), dtype=torch.float64)


class Ones(TrainedWeights):
    """Integers that are all 1, with a gain that stays."""

    def begin(self, codes, fraction):
        return torch.from_numpy(codes)

    def per_weight(self, grown):
        return 1.0


class QuantizedAverage(QuantizedLayer):
    """(1 / pixels) * (sum of the codes of a window). Arguments are those of `QuantizedLayer`."""

    def __init__(self, *given):
        super().__init__(*given)
        self.constant.requires_grad_(False)

    def _quantizer(self, part, rows, recipe):
        return Ones(rows.weights.astype(np.float64), rows.gain, rows.grid, 0.0, 1.0).requires_grad_(False)
