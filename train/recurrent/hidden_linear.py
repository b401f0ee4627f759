"""Dense layers on hidden vectors under quantisation-aware training, in real numbers or in the machine's arithmetic.

Source: S1; numerics.md of the specification, integer mode, items 1 to 8.
"""

import numpy as np
import torch
from concord.net.layers.dense import Dense
from concord.net.lowering import lowering
from concord.net.quantize import tensors as ptq
from concord.spec.numbers.activation import Activation
from concord.spec.numbers.formats import Format
from concord.train.lib.curves import curve
from concord.train.lib.straight_through import Product, Round, binary16, plain
from torch import nn


class SignedLinear(nn.Module):
    """A dense layer that reads hidden vectors: signed codes of fixed steps, one scale for each row.

    Args:
        linear:         The FP32 layer.
        weights_format: Of the weights.
        input_format:   Of the signed codes of h.
        s_in:           Real value of one step of the codes; 2**-(bits - 1), which suits -1..1, by default.
        activation:     Activation function of the result.
    """

    def __init__(
        self, linear: nn.Linear, weights_format: Format, input_format: Format, s_in: float | None = None,
        activation: Activation = Activation.NONE,
    ):
        super().__init__()
        self.weights_format, self.input_format, self.activation = weights_format, input_format, activation
        self.s_in = 2.0 ** -(input_format.bits - 1) if s_in is None else s_in
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
        codes = Round.apply(rounded(h * rounded(torch.tensor(1 / self.s_in))), fmt.lowest, fmt.highest)
        return curve(self.activation, lowered)(product(codes))

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
                quantize_input=True,
                activation=self.activation,
                ranges=ranges,
                fp32=self.fp32,
            )
