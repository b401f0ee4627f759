"""Dense layers under quantisation-aware training, in real numbers or in the machine's arithmetic.

Source: S0; numerics.md of the specification, integer mode, items 1 to 8.
"""

import numpy as np
import torch
from torch import nn

from golden import lowering
from golden.layers import Dense
from spec.formats import Format
from train import ptq
from train.methods import Methods
from train.straight_through import Codes, Product, Round, binary16, plain

MMSE = Methods()


class QuantisedLinear(nn.Module):
    """A dense layer and the quantiser in front of it: WRPN weights with an adjusted start, a learned scale a row.

    Args:
        linear:         The FP32 layer.
        inputs:         Real[samples, inputs], its inputs on a calibration set.
        weights_format: Of the weights.
        input_format:   Of the unsigned input codes.
        unrounded:      Start from the FP32 weights over their scale, not from the integers: the same network at first,
            but small gradients move it sooner.
        methods:        How integers, scales, saturation and offset are found.

    Attributes:
        lost: What that costs, in words.
    """

    def __init__(
        self,
        linear,
        inputs,
        weights_format: Format,
        input_format: Format,
        unrounded: bool,
        methods: Methods = MMSE,
    ):
        super().__init__()
        self.weights_format, self.input_format = weights_format, input_format
        weights = linear.weight.detach().double().numpy()
        parts = np.zeros(len(weights), int) if methods.tensor else None
        codes, scales = ptq.weights(weights, weights_format, methods.weights, parts)
        seen, levels = inputs.numpy(), input_format.levels
        saturation, offset = ptq.activations(seen, levels, methods.activations)
        made = ptq.quantised(seen, saturation, offset, levels)
        self.lost = (
            f"weights {ptq.decibels(weights, scales[:, None] * codes):.1f} dB, "
            f"inputs {ptq.decibels(seen, made):.1f} dB, "
            f"{np.mean((seen < offset) | (seen > offset + saturation)):.1%} clipped"
        )
        fraction = np.clip(weights / scales[:, None] - codes, -0.499, 0.499) if unrounded else 0.0
        self.half = 2.0 ** (weights_format.bits - 1)
        self.weight = nn.Parameter(torch.from_numpy((codes + fraction) / self.half).float())
        # A scale is its PTQ value times 1 + change, so that one learning rate suits scales of any size.
        self.register_buffer("scale", torch.from_numpy(scales))
        self.fp32 = {"weights": weights, "bias": linear.bias.detach().numpy()}
        self.change = nn.Parameter(torch.zeros(len(scales)))
        self.constant = nn.Parameter(linear.bias.detach().clone())
        self.saturation = nn.Parameter(torch.tensor(saturation, dtype=torch.float32))
        self.offset = nn.Parameter(torch.tensor(offset, dtype=torch.float32))

    @property
    def step(self) -> torch.Tensor:
        """Real value of one step of the input codes."""
        return self.saturation.double() / self.input_format.levels

    @property
    def gain(self) -> torch.Tensor:
        """Real value of one step of the integer weights, for each row."""
        return self.scale * (1 + self.change.double())

    def integers(self) -> torch.Tensor:
        return Round.apply(self.weight * self.half, self.weights_format.lowest, self.weights_format.highest)

    def forward(self, y, after: "QuantisedLinear | None", lowered: bool):
        """From its input in steps of its code to the next layer's, or to real units behind the last one."""
        units = {
            "s_in": self.step,
            "m_in": self.offset.double(),
            "s_out": after.step if after else 1.0,
            "m_out": after.offset.double() if after else 0.0,
        }
        rounded = binary16 if lowered else plain
        product = Product(self.integers(), self.input_format, True, self.gain, self.constant.double(), units, rounded)
        return product(Codes.apply(y, self.saturation, self.input_format.levels))

    def lower(self, name: str, after: "QuantisedLinear | None", *, quantise_input: bool, ranges: dict) -> Dense:
        """The layer of the quantised model, as `forward` computes it."""
        with torch.no_grad():
            return lowering.dense(
                name=name,
                codes=self.integers().numpy(),
                gain=self.gain.numpy(),
                constant=self.constant.double().numpy(),
                weights_format=self.weights_format,
                input_format=self.input_format,
                unsigned=True,
                s_in=self.step,
                m_in=self.offset,
                s_out=after.step if after else 1.0,
                m_out=after.offset if after else 0.0,
                quantise_input=quantise_input,
                ranges=ranges,
                fp32=self.fp32,
            )


class SignedLinear(nn.Module):
    """A dense layer that reads hidden vectors: signed codes of fixed steps 2**-(bits - 1), one scale for each row.

    Args:
        linear:         The FP32 layer.
        weights_format: Of the weights.
        input_format:   Of the signed codes of h.
    """

    def __init__(self, linear: nn.Linear, weights_format: Format, input_format: Format):
        super().__init__()
        self.weights_format, self.input_format = weights_format, input_format
        self.s_in = 2.0 ** -(input_format.bits - 1)
        codes, scales = ptq.weights(linear.weight.detach().double().numpy(), weights_format)
        self.fp32 = {"weights": linear.weight.detach().numpy(), "bias": linear.bias.detach().numpy()}
        self.weight = nn.Parameter(torch.from_numpy(codes.astype(np.float32)))
        self.register_buffer("gain", torch.from_numpy(scales))
        self.constant = nn.Parameter(linear.bias.detach().clone())

    def integers(self) -> torch.Tensor:
        return Round.apply(self.weight, self.weights_format.lowest, self.weights_format.highest)

    def forward(self, h, lowered: bool):
        """From h in real units to real units."""
        rounded, fmt = binary16 if lowered else plain, self.input_format
        units = {"s_in": self.s_in, "m_in": 0.0, "s_out": 1.0, "m_out": 0.0}
        product = Product(self.integers(), fmt, False, self.gain, self.constant.double(), units, rounded)
        return product(Round.apply(rounded(h / self.s_in), fmt.lowest, fmt.highest))

    def lower(self, name: str, ranges: dict) -> Dense:
        """The layer of the quantised model, behind a recurrent one."""
        with torch.no_grad():
            return lowering.dense(
                name=name,
                codes=self.integers().numpy(),
                gain=self.gain.numpy(),
                constant=self.constant.double().numpy(),
                weights_format=self.weights_format,
                input_format=self.input_format,
                unsigned=False,
                s_in=self.s_in,
                quantise_input=True,
                ranges=ranges,
                fp32=self.fp32,
            )
