"""LSTM layers: FP32, and in integers with a scale for each gate's matrices, in real numbers or as the machine computes.

Source: S1; numerics.md of the specification, LSTM.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from concord.golden.mfu import activation
from concord.model import lowering
from concord.model.cells.lstm import LSTM
from concord.model.layers.recurrent import IntegerRecurrent
from concord.spec.formats import Format
from concord.train.lib.methods import Gates, InitialState
from concord.train.lib.straight_through import Curve, Product, Round, binary16, plain
from concord.train.ptq import gates as scales
from concord.train.ptq.gates import Affine
from torch import nn

SYMMETRIC = Gates()
GATES = tuple(gate.name for gate in LSTM.gates)


class FloatLSTM(nn.Module):
    """One FP32 LSTM layer; its gates lie in the order of `GATES`.

    Attributes:
        first: float32[2, hidden], binary16 numbers: h and c before the first time step.
    """

    def __init__(self, inputs: int, hidden: int):
        super().__init__()
        bound = hidden**-0.5
        self.input_weights = nn.Parameter(torch.empty(4, hidden, inputs).uniform_(-bound, bound))
        self.recurrent_weights = nn.Parameter(torch.empty(4, hidden, hidden).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.zeros(4, hidden))
        self.register_buffer("first", torch.zeros(2, hidden))
        with torch.no_grad():
            self.bias[GATES.index("f")] = 1.0  # remember at first

    def forward(self, x, lengths):
        """float[samples, time, inputs] to the hidden vectors of all steps and the last one of each sample."""
        w, r = (weights.flatten(0, 1).T for weights in (self.input_weights, self.recurrent_weights))
        u = x @ w + self.bias.flatten()
        return unroll(u, lengths, self.first, lambda h: h @ r, torch.sigmoid, torch.tanh, plain)


def unroll(u, lengths, first, recurrent, sigmoid, tanh, rounded, record: dict | None = None, outputs=lambda y, gate: y):
    """Run the time steps of one layer.

    Args:
        u:         float[samples, time, 4 * hidden], W x + bias.
        lengths:   int[samples]; behind its end a sample keeps its state.
        first:     float[2, hidden], h and c before the first step.
        recurrent: h to R h, before it is added to u.
        sigmoid:   Of f, i and o.
        tanh:      Of j and c.
        rounded:   Applied to the result of each operation.
        record:    Where given, gets the ranges of R h, of the gates' outputs and of the cell.
        outputs:   Applied to the gates' outputs: value and gate to value.
    """
    samples, time, _ = u.shape
    h, c = (state.expand(samples, -1) for state in first)
    hidden = []
    for step in range(time):
        r_h = recurrent(h)
        gates = rounded(r_h + u[:, step]).view(samples, 4, -1)
        curves = (sigmoid, sigmoid, sigmoid, tanh)
        f, i, o, j = (outputs(curve(gates[:, k]), GATES[k]) for k, curve in enumerate(curves))
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


def initial_state(process: InitialState, shape: Sequence[int], seed) -> torch.Tensor:
    """h and c before the first time step, float32[2, hidden]: binary16 numbers in -1..1, the same for the same seed."""
    rng = np.random.default_rng(seed)
    values = {
        InitialState.ZERO: lambda: np.zeros(shape),
        InitialState.UNIFORM: lambda: rng.uniform(-1, 1, shape),
        InitialState.NORMAL: lambda: rng.normal(0, 0.1, shape).clip(-1, 1),
    }[process]()
    return torch.from_numpy(values.astype(np.float16).astype(np.float32))


class QuantisedLSTM(nn.Module):
    """One LSTM layer in integers.

    Args:
        layer:          The FP32 layer.
        s_in:           Real value of one step of the codes of x.
        weights_format: Of the weights; symmetric.
        input_format:   Of the signed codes of x and h.
        gates:          How the weights become integers.

    Attributes:
        weights_format: Of what multiplies: q + z.
        affines:        Scale and zero point of W and R, for each gate.
    """

    def __init__(
        self, layer: FloatLSTM, s_in: float, weights_format: Format, input_format: Format, gates: Gates = SYMMETRIC
    ):
        super().__init__()
        self.weights_format, self.input_format, self.s_in = gates.travels_as(weights_format), input_format, s_in
        self.gate_bits = gates.outputs
        self.s_hidden = 2.0 ** -(input_format.bits - 1)
        matrices = [m.detach().double().numpy() for m in (layer.input_weights, layer.recurrent_weights)]
        pairs = (scales.of_gate(pair, weights_format.bits, gates) for pair in zip(*matrices, strict=True))
        self.affines = tuple(zip(*pairs, strict=True))  # [W or R][gate]
        self.register_buffer("steps", self._each(lambda affine: affine.step))
        self.input_weights, self.recurrent_weights = (
            nn.Parameter(in_steps(matrix, affines)) for matrix, affines in zip(matrices, self.affines, strict=True)
        )
        self.bias = nn.Parameter(layer.bias.detach().clone())
        self.register_buffer("first", layer.first.clone())
        bias = layer.bias.detach().numpy()
        self.fp32 = {"input_weights": matrices[0], "recurrent_weights": matrices[1], "bias": bias}

    def _each(self, of) -> torch.Tensor:
        """A number of every scale, float64[W or R, gate]."""
        return torch.tensor([[of(affine) for affine in affines] for affines in self.affines], dtype=torch.float64)

    def integers(self) -> tuple[torch.Tensor, torch.Tensor]:
        """q + z of W[4, hidden, inputs] and R[4, hidden, hidden]."""
        pairs = zip((self.input_weights, self.recurrent_weights), self.affines, strict=True)
        return tuple(
            torch.stack([Round.apply(weights[gate], *affine.ends) for gate, affine in enumerate(affines)])
            for weights, affines in pairs
        )

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

        def recurrent(h):
            return of_h.scaled(codes(h, self.s_hidden))

        return unroll(u, lengths, self.first, recurrent, sigmoid, tanh, rounded, record, self.gate_output)

    def gate_output(self, y, gate: str):
        """A gate's output to the nearest step, ties to even, as (y + centre) - centre has it in binary16."""
        if not self.gate_bits:
            return y
        steps = 2.0 ** (self.gate_bits - (gate == "j"))
        return Round.apply(y * steps, -steps, steps) / steps + 0.0

    def lower(self, name: str, ranges: dict) -> IntegerRecurrent:
        """The layer of the quantised model."""
        with torch.no_grad():
            w, r = (codes.numpy() for codes in self.integers())
            bias = self.bias.double().numpy()
            layer = lowering.recurrent(
                name=name,
                cell=LSTM,
                input_codes=w,
                recurrent_codes=r,
                input_steps=self.steps[0].numpy(),
                recurrent_steps=self.steps[1].numpy(),
                bias=bias,
                weights_format=self.weights_format,
                input_format=self.input_format,
                s_in=self.s_in,
                initial=dict(zip(LSTM.states, self.first.numpy(), strict=True)),
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
        integers = torch.from_numpy(scales.quantise(matrix, affine) + affine.zero).float()
        exact = torch.from_numpy(matrix / affine.step).float()
        start = exact.clamp(*affine.ends)
        starts.append(torch.where(start.round() == integers, start, integers))
    return torch.stack(starts)


def curve(name: str, lowered: bool):
    """An activation function in real numbers, or the machine's."""
    if not lowered:
        return getattr(torch, name)
    return lambda x: Curve.apply(x, getattr(activation, name))
