"""A convolution or dense layer behind its quantisers, in real numbers or in the machine's arithmetic.

Source: S0; numerics.md of the specification, integer mode.
"""

import numpy as np
import torch
from concord.golden.mvm.overflow import wrap
from concord.net.arithmetic.integer import largest_sum
from concord.net.arithmetic.windows import Window
from concord.net.layers.convolution import Conv
from concord.net.lowering import lowering
from concord.net.quantize import tensors
from concord.net.quantize.loss import Loss
from concord.net.quantize.ranges import quantized
from concord.net.quantize.recipe import Recipe
from concord.spec.numbers.activation import Activation
from concord.spec.numbers.formats import Format
from concord.train.lib.curves import curve
from concord.train.lib.straight_through import FLOAT32_EXACT, binary16
from concord.train.qat.activations import Activations, activations
from concord.train.qat.affine import affine, total
from concord.train.qat.geometry import Geometry
from concord.train.qat.normalisation import Normalisation
from concord.train.qat.weights import Weights, weights
from torch import nn


class QuantizedLayer(nn.Module):
    """gain * (weights x codes) + constant.

    The input is in real units or in steps of the layer's code. The result is in real units or in steps of the code of
    the next layer.

    Args:
        layer:  nn.Conv2d or nn.Linear, with batch normalisation folded in.
        seen:   float32[samples, ...], the inputs of the layer for a calibration set.
        recipe: How the layer is quantised.
        name:   Name of the layer, for its bits and for messages.
        norm:   Mean and deviation of the layer's results, see `graph.Node`.
        fold:   Factor of batch normalisation in each row of the weights, see `graph.Node`.
        window: Window of a convolution, or None for a dense layer.

    Attributes:
        kind:       Class of the layer in the model, where it has a window.
        weights:    Quantiser of the weights, or None where they stay in FP32.
        inputs:     Quantiser of the inputs, or None where they stay in FP32.
        after:      Layer in whose steps the result is, or None for real units.
        in_steps:   Whether the input arrives in steps of the code.
        activation: Activation function of the result in real units.
        loss:       Loss by quantisation.
        sum_bits:   Bits of an accumulator that wraps, in the machine's arithmetic; None for one that holds every sum.
    """

    kind = Conv

    def __init__(
        self, layer: nn.Conv2d | nn.Linear, seen: torch.Tensor, recipe: Recipe, name: str,
        norm: tuple[torch.Tensor, torch.Tensor] | None = None, fold: torch.Tensor | float = 1.0,
        window: Window | None = None,
    ):
        super().__init__()
        self.geometry = Geometry(layer, window)
        self.name, self.after, self.in_steps = name, None, False
        self.activation, self.sum_bits = Activation.NONE, None
        real = layer.weight.detach().double()
        bias = torch.zeros(len(real)) if layer.bias is None else layer.bias.detach().clone()
        self.fp32 = {"weights": real.numpy(), "bias": bias.numpy().copy()}
        weights_bits, input_bits = recipe.bits_of(name)
        rows, samples = real.flatten(1).numpy(), seen.flatten(1).numpy()
        self.weights = self._quantizer(rows, weights_bits, recipe, fold)
        self.inputs = None if input_bits is None else activations(
            samples, input_bits, recipe, padded=self.geometry.padded)
        if self.weights is None:
            self.weight = nn.Parameter(real.float(), requires_grad=not recipe.frozen)
        self.constant = nn.Parameter(bias)
        self.norm = None
        if recipe.normalise and norm and not recipe.frozen:
            with torch.no_grad():
                integers, gain = self._rows()
                self.norm = Normalisation(gain, bias.double(), total(integers), *_units(self.inputs), *norm)
        self.loss = self._loss(rows, samples)

    def _quantizer(self, rows, bits: int | None, recipe: Recipe, fold) -> Weights | None:
        """The quantiser of the weights; None for weights that stay in FP32."""
        return None if bits is None else weights(rows, bits, recipe, fold)

    @property
    def lost(self) -> str:
        """Loss by quantisation, in words."""
        return str(self.loss)

    def _loss(self, rows, samples) -> Loss:
        found = {}
        if self.weights:
            integers, gain = (part.detach().numpy() for part in self.weights())
            made = gain[:, None] * integers
            found["weights"] = tensors.decibels(rows, made)
        if self.inputs:
            b, m = self.inputs.saturation.item(), self.inputs.offset.item()
            found["inputs"] = tensors.decibels(samples, quantized(samples, b, m, self.inputs.levels))
            found["clipped"] = float(np.mean((samples < m) | (samples > m + b)))
        return Loss(**found)

    def answer_in(self, after: "QuantizedLayer"):
        """Give results in steps of the next layer, whose clip at 0 is the relu."""
        self.activation = Activation.NONE
        object.__setattr__(self, "after", after)  # not a part of this module
        after.in_steps = True

    def forward(self, x: torch.Tensor, lowered: bool = False):
        """The result in real numbers, or in the machine's arithmetic if `lowered`."""
        if self.geometry.dense:
            x = x.flatten(1)
        return self._lowered(x) if lowered else self._real(x)

    def _real(self, x):
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
        if not (self.weights and self.inputs):
            raise ValueError(f"layer {self.name!r} keeps FP32 weights or inputs, so it has no integer arithmetic")
        (integers, gain), (s_out, m_out) = self._rows(), self._behind()
        start, p, exact = self._bounds(integers)
        codes = self._codes(x)
        if not exact:
            codes, integers = codes.double(), integers.double()
        sums = self.geometry.product(codes, integers, None, self._border()) + 0.0
        if self.sum_bits is not None:
            sums = wrap(sums.long(), self.sum_bits).to(sums.dtype)
        row_sums = total(integers).double()
        gain, constant = self.folded(gain, row_sums)
        scale, offset = lowering.requantization(
            gain, constant.double(), row_sums, s_in=self.inputs.step,
            m_in=self.inputs.offset.double(), s_out=s_out, m_out=m_out, p=p)
        shape = (-1, *[1] * (sums.dim() - 2))
        a = binary16(sums * 2.0**-p)
        y = binary16(binary16(a * binary16(scale).view(shape)) + (binary16(offset) + 0.0).view(shape))
        return curve(self.activation, True)(y)

    def _bounds(self, integers):
        """Start values and p of the lowering, and whether float32 holds every sum."""
        codes = integers.detach().flatten(1).numpy()
        fmt = self.input_format
        start = lowering.start_values(codes, fmt, True)
        return start, lowering.places(codes, start, fmt, True), largest_sum(
            codes, start, lowering.largest_code(fmt, True)) < FLOAT32_EXACT

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
        if not self.in_steps:
            step, offset = self.inputs.step, self.inputs.offset
            x = binary16(x * binary16(1 / step))
            if offset.requires_grad or offset != 0:
                x = binary16(x + binary16(-offset.double() / step))
        return self.inputs.codes(x)

    def _border(self) -> float:
        """The code of a real zero in the padding of the input."""
        if not self.geometry.padded or not self.inputs or self.inputs.offset == 0:
            return 0.0
        with torch.no_grad():
            zero = binary16(-self.inputs.offset.double() / self.inputs.step)
            return float(zero.round().clamp(0, self.inputs.levels))

    @property
    def input_format(self) -> Format:
        """Format of the codes of the input.

        Raises:
            ValueError: no machine has operands as wide.
        """
        bits = (self.inputs.levels + 1).bit_length() - 1 + (self.inputs.levels & 1 == 0)
        if not 2 <= bits <= 16:
            raise ValueError(f"layer {self.name!r}: codes of {bits} bits, but operands have 2 to 16")
        return Format(bits=bits, symmetric=self.inputs.levels & 1 == 0)

    @property
    def weights_format(self) -> Format:
        """Format of the integers of the weights."""
        return self.weights.grid.format

    def patches(self, x: torch.Tensor) -> torch.Tensor:
        """Unsigned codes float32[groups, samples * places, columns] that rows multiply in the machine, for an input of
        `forward`. The codes of the padding are among them."""
        if self.geometry.dense:
            return self._codes(x.flatten(1))[None]
        return self.geometry.patches(self._codes(x), self._border())

    def parts(self) -> tuple[list, list]:
        """Trained parameters: those of the layer, and those of its quantiser of inputs with a lower learning rate."""
        own_pace = self.inputs and not self.inputs.learned_step
        slow = [p for p in self.inputs.parameters() if p.requires_grad] if own_pace else []
        apart = {id(p) for p in slow}
        return [p for p in self.parameters() if p.requires_grad and id(p) not in apart], slow


def _units(quantizer: Activations | None) -> tuple[torch.Tensor, torch.Tensor]:
    """Step and offset, float64, of the codes of a quantiser; 1 and 0 where there is none."""
    if quantizer:
        return quantizer.step, quantizer.offset.double()
    return torch.ones((), dtype=torch.float64), torch.zeros((), dtype=torch.float64)
