"""Recurrent layers in integers with a scale for each gate's matrices, in real numbers or as the machine computes.

Source: S1; numerics.md of the specification, LSTM.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from concord.net.layers.recurrent import IntegerRecurrent
from concord.net.lowering import lowering
from concord.net.quantize import gates as scales
from concord.net.quantize import tensors as ptq
from concord.net.quantize.gates import Affine
from concord.net.quantize.recipe import Gates
from concord.spec.numbers.activation import Activation
from concord.spec.numbers.formats import Format
from concord.train.lib.straight_through import Product, Round, binary16, plain
from concord.train.recurrent.bidirectional import Lowered
from concord.train.recurrent.float_layer import FloatRecurrent, states_by_name
from concord.train.recurrent.operations import TorchOperations, unroll, widen
from torch import nn

SYMMETRIC = Gates()


class QuantizedRecurrent(nn.Module):
    """One recurrent layer in integers.

    Args:
        layer:          The FP32 layer.
        s_in:           Real value of one step of the codes of x.
        weights_format: Format of the weights; symmetric.
        input_format:   Format of the signed codes of x and h.
        gates:          How the weights become integers.
        s_hidden:       Real value of one step of the codes of h; 2**-(bits - 1), which suits -1..1, by default.

    Attributes:
        weights_format: Format of what multiplies: q + z.
        affines:        Scale and zero point of W and R, for each gate.
    """

    def __init__(
        self, layer: FloatRecurrent, s_in: float, weights_format: Format, input_format: Format,
        gates: Gates = SYMMETRIC, s_hidden: float | None = None,
    ):
        super().__init__()
        self.cell = layer.cell
        self.weights_format, self.input_format, self.s_in = gates.travels_as(weights_format), input_format, s_in
        self.gate_bits = gates.outputs
        self.s_hidden = 2.0 ** -(input_format.bits - 1) if s_hidden is None else s_hidden
        self.fp32 = layer.parameters_by_name()
        matrices = [m.detach().double().numpy() for m in (layer.input_weights, layer.recurrent_weights)]
        pairs = (scales.of_gate(pair, weights_format.bits, gates) for pair in zip(*matrices, strict=True))
        self.affines = tuple(zip(*pairs, strict=True))  # [W or R][gate]
        self.register_buffer("steps", self._each(lambda affine: affine.step))
        self.input_weights, self.recurrent_weights = (
            nn.Parameter(in_steps(matrix, affines)) for matrix, affines in zip(matrices, self.affines, strict=True)
        )
        self.bias = nn.Parameter(layer.bias.detach().clone())
        self.vectors = nn.ParameterDict({name: value.detach().clone() for name, value in layer.vectors.items()})
        self.register_buffer("first", layer.first.clone())

    def _each(self, of) -> torch.Tensor:
        """A number of every scale, float64[W or R, gate]."""
        return torch.tensor([[of(affine) for affine in affines] for affines in self.affines], dtype=torch.float64)

    def integers(self) -> tuple[torch.Tensor, torch.Tensor]:
        """q + z of W[gates, hidden, inputs] and R[gates, hidden, hidden]."""
        pairs = zip((self.input_weights, self.recurrent_weights), self.affines, strict=True)
        return tuple(
            torch.stack([Round.apply(weights[gate], *affine.ends) for gate, affine in enumerate(affines)])
            for weights, affines in pairs
        )

    @torch.no_grad()
    def decibels(self) -> float:
        """Signal to quantisation noise of the weights of both matrices."""
        made = [codes * step[:, None, None] for codes, step in zip(self.integers(), self.steps, strict=True)]
        return ptq.decibels(*(np.concatenate([np.ravel(part) for part in parts]) for parts in (
            (self.fp32["input_weights"], self.fp32["recurrent_weights"]), made)))

    def forward(self, x, lengths, lowered: bool, record: dict | None = None):
        """As `FloatRecurrent`."""
        rounded = binary16 if lowered else plain
        hidden, low, high = self.bias.shape[1], self.input_format.lowest, self.input_format.highest

        def product(weights, gate_steps, constant, s_in):
            gain = gate_steps.repeat_interleave(hidden)
            units = {"s_in": s_in, "m_in": 0.0, "s_out": 1.0, "m_out": 0.0}
            return Product(weights.flatten(0, 1), self.input_format, False, gain, constant, units, rounded)

        def codes(value, step):
            return Round.apply(rounded(value * rounded(torch.tensor(1 / step))), low, high)

        w, r = self.integers()
        of_x = product(w, self.steps[0], self.bias.double().flatten(), self.s_in)
        of_h = product(r, self.steps[1], torch.zeros(self.bias.numel(), dtype=torch.float64), self.s_hidden)
        w_x = of_x.scaled(codes(x, self.s_in))
        u = rounded(w_x + of_x.offset).unflatten(2, self.bias.shape)
        if record is not None:
            for gate, values in zip(self.cell.gates, w_x.unflatten(2, self.bias.shape).unbind(2), strict=True):
                widen(record, f"{gate.name}.input", values)
            widen(record, "input", x)
        ops = TorchOperations(
            self.cell,
            lambda operand: of_h.scaled(codes(operand, self.s_hidden)),
            self.vectors,
            lowered=lowered,
            outputs=self.gate_output,
            record=record,
        )
        return unroll(ops, self.cell, u, lengths, self.first, record)

    def gate_output(self, y, gate: str):
        """A gate's output to the nearest step, ties to even, as (y + centre) - centre has it in binary16."""
        if not self.gate_bits:
            return y
        signed = self.cell.gates[self.cell.index(gate)].curve is Activation.TANH
        steps = 2.0 ** (self.gate_bits - signed)
        return Round.apply(y * steps, -steps, steps) / steps + 0.0

    def lowered(self, name: str, source: str, x: torch.Tensor, lengths: torch.Tensor, final: bool) -> Lowered:
        """The layer of the quantised model, its ranges recorded. Arguments as in `Bidirectional.lowered`."""
        ranges = {}
        with torch.no_grad():
            hidden, last = self(x, lengths, True, ranges)
        return Lowered(layers=(self.lower(name, ranges),), hidden=hidden, last=last)

    def lower(self, name: str, ranges: dict) -> IntegerRecurrent:
        """The layer of the quantised model."""
        with torch.no_grad():
            w, r = (codes.numpy() for codes in self.integers())
            bias = self.bias.double().numpy()
            layer = lowering.recurrent(
                name=name,
                cell=self.cell,
                input_codes=w,
                recurrent_codes=r,
                input_steps=self.steps[0].numpy(),
                recurrent_steps=self.steps[1].numpy(),
                bias=bias,
                weights_format=self.weights_format,
                input_format=self.input_format,
                s_in=self.s_in,
                s_hidden=self.s_hidden,
                initial=states_by_name(self.cell, self.first),
                vectors={key: value.numpy() for key, value in self.vectors.items()},
                gate_bits=self.gate_bits,
                ranges=ranges,
                fp32=self.fp32,
            )
        zeros = self._each(lambda affine: affine.zero).numpy()
        integers, steps = scales.biases(bias)
        more = {"input_zeros": zeros[0], "recurrent_zeros": zeros[1], "bias_integers": integers, "bias_steps": steps}
        return replace(layer, real=dict(layer.real) | {key: np.float64(value) for key, value in more.items()})


def in_steps(weights: np.ndarray, affines: Sequence[Affine]) -> torch.Tensor:
    """Weights in steps of their gate's scale, float32, that round to the integers q + z of quantisation.

    In steps, rounding is all that quantisation does, and a learning rate in steps suits every gate. Fractions stay, so
    that small gradients can move an integer; the few that float32 would round across a tie begin at their integer.
    """
    starts = []
    for matrix, affine in zip(weights, affines, strict=True):
        integers = torch.from_numpy(scales.quantize(matrix, affine) + affine.zero).float()
        exact = torch.from_numpy(matrix / affine.step).float()
        start = exact.clamp(*affine.ends)
        starts.append(torch.where(start.round() == integers, start, integers))
    return torch.stack(starts)
