"""LSTM layers: FP32, and in integers with a scale for each gate's matrices, in real numbers or as the machine computes.

Source: S1, symmetric; numerics.md of the specification, LSTM.
"""

import numpy as np
import torch
from torch import nn

from golden import activation, lowering
from golden.layers import GATES, LSTM
from spec.formats import Format
from train import ptq
from train.straight_through import Curve, Product, Round, binary16, plain


class FloatLSTM(nn.Module):
    """One FP32 LSTM layer; its gates lie in the order of `GATES`."""

    def __init__(self, inputs: int, hidden: int):
        super().__init__()
        bound = hidden**-0.5
        self.input_weights = nn.Parameter(torch.empty(4, hidden, inputs).uniform_(-bound, bound))
        self.recurrent_weights = nn.Parameter(torch.empty(4, hidden, hidden).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.zeros(4, hidden))
        with torch.no_grad():
            self.bias[GATES.index("f")] = 1.0  # remember at first

    def forward(self, x, lengths):
        """float[samples, time, inputs] to the hidden vectors of all steps and the last one of each sample."""
        w, r = (weights.flatten(0, 1).T for weights in (self.input_weights, self.recurrent_weights))
        u = x @ w + self.bias.flatten()
        return unroll(u, lengths, lambda h: h @ r, torch.sigmoid, torch.tanh, plain)


def unroll(u, lengths, recurrent, sigmoid, tanh, rounded, record: dict | None = None):
    """Run the time steps of one layer.

    Args:
        u:         float[samples, time, 4 * hidden], W x + bias.
        lengths:   int[samples]; behind its end a sample keeps its state.
        recurrent: h to R h, before it is added to u.
        sigmoid:   Of f, i and o.
        tanh:      Of j and c.
        rounded:   Applied to the result of each operation.
        record:    Where given, gets the ranges of R h, of the gates' outputs and of the cell.
    """
    samples, time, width = u.shape
    h = c = torch.zeros(samples, width // 4)
    hidden = []
    for step in range(time):
        r_h = recurrent(h)
        gates = rounded(r_h + u[:, step]).view(samples, 4, -1)
        f, i, o, j = *(sigmoid(gates[:, gate]) for gate in range(3)), tanh(gates[:, 3])
        new_c = rounded(rounded(f * c) + rounded(i * j))
        new_h = rounded(o * tanh(new_c))
        on = (lengths > step)[:, None]
        h, c = torch.where(on, new_h, h), torch.where(on, new_c, c)
        hidden.append(h)
        if record is not None:
            parts = dict(zip(GATES, zip(r_h.view(samples, 4, -1).unbind(1), (f, i, o, j), strict=True), strict=True))
            for gate, (before, output) in parts.items():
                widen(record, f"{gate}.recurrent", before[on[:, 0]])
                widen(record, f"{gate}.output", output[on[:, 0]])
            widen(record, "cell", c)
    return torch.stack(hidden, 1), h


def widen(record: dict, name: str, values):
    """Stretch a recorded range over more values."""
    if values.numel():
        low, high = record.get(name, (np.inf, -np.inf))
        record[name] = (min(low, float(values.min())), max(high, float(values.max())))


class QuantisedLSTM(nn.Module):
    """One LSTM layer in integers, one symmetric scale for each gate's W and R.

    Args:
        layer:          The FP32 layer.
        s_in:           Real value of one step of the codes of x.
        weights_format: Of the weights.
        input_format:   Of the signed codes of x and h.
        shared:         One scale for both matrices of a gate, as the source's claim has it.
    """

    def __init__(self, layer: FloatLSTM, s_in: float, weights_format: Format, input_format: Format, shared=False):
        super().__init__()
        self.weights_format, self.input_format, self.s_in = weights_format, input_format, s_in
        self.s_hidden = 2.0 ** -(input_format.bits - 1)
        w, r = (weights.detach().double() for weights in (layer.input_weights, layer.recurrent_weights))
        steps = []
        for pair in zip(w.numpy(), r.numpy(), strict=True):
            separate = [ptq.symmetric(matrix, weights_format)[1] for matrix in pair]
            steps.append([max(separate)] * 2 if shared else separate)
        self.register_buffer("steps", torch.tensor(steps, dtype=torch.float64).T)  # [W or R, gate]
        # In steps, so that rounding is all that quantisation does; a learning rate in steps suits every gate.
        self.input_weights = nn.Parameter((w / self.steps[0][:, None, None]).float())
        self.recurrent_weights = nn.Parameter((r / self.steps[1][:, None, None]).float())
        self.bias = nn.Parameter(layer.bias.detach().clone())
        bias = layer.bias.detach().numpy()
        self.fp32 = {"input_weights": w.numpy(), "recurrent_weights": r.numpy(), "bias": bias}

    def integers(self) -> tuple[torch.Tensor, torch.Tensor]:
        """W[4, hidden, inputs] and R[4, hidden, hidden]."""
        limit = self.weights_format.highest
        return tuple(Round.apply(w, -limit, limit) for w in (self.input_weights, self.recurrent_weights))

    def forward(self, x, lengths, lowered: bool, record: dict | None = None):
        """As `FloatLSTM`."""
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
        of_h = product(r, self.steps[1], torch.zeros(4 * hidden, dtype=torch.float64), self.s_hidden)
        w_x = of_x.scaled(codes(x, self.s_in))
        sigmoid, tanh = (curve(name, lowered) for name in ("sigmoid", "tanh"))
        if record is not None:
            for gate, values in zip(GATES, w_x.unflatten(2, (4, hidden)).unbind(2), strict=True):
                widen(record, f"{gate}.input", values)
            widen(record, "input", x)
        u = rounded(w_x + of_x.offset)
        return unroll(u, lengths, lambda h: of_h.scaled(codes(h, self.s_hidden)), sigmoid, tanh, rounded, record)

    def lower(self, name: str, ranges: dict) -> LSTM:
        """The layer of the quantised model."""
        with torch.no_grad():
            w, r = (codes.numpy() for codes in self.integers())
            return lowering.lstm(
                name=name,
                input_codes=w,
                recurrent_codes=r,
                input_steps=self.steps[0].numpy(),
                recurrent_steps=self.steps[1].numpy(),
                bias=self.bias.double().numpy(),
                weights_format=self.weights_format,
                input_format=self.input_format,
                s_in=self.s_in,
                ranges=ranges,
                fp32=self.fp32,
            )


def curve(name: str, lowered: bool):
    """An activation function in real numbers, or the machine's."""
    if not lowered:
        return getattr(torch, name)
    return lambda x: Curve.apply(x, getattr(activation, name))
