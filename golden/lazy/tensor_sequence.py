"""Recurrent layers under training in block floating point: a cell's formula over all time steps, and its way back.

Each value of a time step is a training tensor of 8 bits, and each gradient one of 16 bits:

    gate        sums of both products and the bias, exact, to 8 bits
    curve       sigmoid or tanh of 8 bits, of 15 fraction bits, to 8 bits; its derivative, of the result, in 8 bits
    products, sums and differences of two values: exact, to 8 bits
    backward    gradient of 16 bits times values, weights or derivatives of 8 bits, exact, to 16 bits
    parameters  the gradient of each time step, exact, to 32 bits; steps are added from the last to the first in 32 bits

A sample whose sequence has ended has states of zero, and its result is that of its own last time step.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from concord.golden.lazy.tensor import TrainingTensor, requantize, round_shift
from concord.golden.lazy.tensor_layers import REACH, check_terms, parameter_gradient, unit, whole
from concord.spec.numbers.activation import Activation
from concord.spec.numbers.lazy import E_MIN, Width

#: Fraction bits of a curve before it is brought to 8 bits, and of the one in its derivative.
FRACTION_BITS = 15


@dataclass(slots=True, eq=False)
class StepTensor:
    """A value of one time step.

    Attributes:
        tensor:   Its numbers, [samples, elements] or [elements].
        back:     What its gradient is sent to.
        gradient: The gradient of what follows, or None.
    """

    tensor: TrainingTensor
    back: Callable[[TrainingTensor], None] | None = None
    gradient: TrainingTensor | None = None


class Tape:
    """Values of all time steps in the order in which they were computed.

    Args:
        parameters: Training tensors of 8 bits by name.
        requantize: Function that brings exact sums to mantissas, as `tensor.requantize`.
        total:      Function that adds up exact sums over processes.

    Attributes:
        gradients: Those of the parameters by name, 32 bits.
    """

    def __init__(self, parameters: Mapping[str, TrainingTensor], requantize=requantize, total=lambda sums: sums):
        self.parameters, self.requantize, self.total = parameters, requantize, total
        self.steps: list[StepTensor] = []
        self.gradients: dict[str, TrainingTensor] = {}

    def made(self, sums: np.ndarray, lsb: int, back) -> StepTensor:
        """A value of 8 bits from exact sums."""
        self.steps.append(StepTensor(self.requantize(sums, lsb, Width.ACTIVATION), back))
        return self.steps[-1]

    def backward(self, last: StepTensor, gradient: TrainingTensor):
        """Send the gradient of a value, 16 bits, to all that it was computed from."""
        self._send(last, gradient)
        for step in reversed(self.steps):
            if step.gradient is not None and step.back is not None:
                step.back(step.gradient)
            step.gradient = None

    def linear(self, products, bias: str = "") -> StepTensor:
        """The sum of products of weights, by name, with operands, given as pairs, and of a bias by name."""
        pairs = [(self.parameters[name], name, operand) for name, operand in products]
        terms = [(operand.tensor.mantissas @ w.mantissas.T, unit(operand.tensor) + unit(w)) for w, _, operand in pairs]
        if bias:
            terms.append((self.parameters[bias].mantissas, unit(self.parameters[bias])))

        def back(gradient: TrainingTensor):
            for w, name, operand in pairs:
                check_terms(len(gradient.mantissas), f"the gradient of {name!r}")
                g, x, lsb = gradient.mantissas, operand.tensor, unit(gradient)
                self._learn(name, g.T @ x.mantissas, lsb + unit(x))
                self._add(operand, g @ w.mantissas, lsb + unit(w))
            if bias:
                self._learn(bias, gradient.mantissas.sum(0), unit(gradient))

        return self.made(*exact_sum(terms), back)

    def vector(self, name: str) -> StepTensor:
        """A parameter with one element for each cell."""
        def back(gradient: TrainingTensor):
            self._learn(name, gradient.mantissas.reshape(-1, gradient.mantissas.shape[-1]).sum(0), unit(gradient))

        self.steps.append(StepTensor(self.parameters[name], back))
        return self.steps[-1]

    def multiply(self, a: StepTensor, b: StepTensor) -> StepTensor:
        """a * b, element by element."""
        def back(gradient: TrainingTensor):
            for one, other in ((a, b), (b, a)):
                self._add(one, gradient.mantissas * other.tensor.mantissas, unit(gradient) + unit(other.tensor))

        return self.made(a.tensor.mantissas * b.tensor.mantissas, unit(a.tensor) + unit(b.tensor), back)

    def add(self, a: StepTensor, b: StepTensor, sign: int = 1) -> StepTensor:
        """a + sign * b."""
        def back(gradient: TrainingTensor):
            self._send(a, gradient)
            self._add(b, sign * gradient.mantissas, unit(gradient))

        terms = (a.tensor.mantissas, unit(a.tensor)), (sign * b.tensor.mantissas, unit(b.tensor))
        return self.made(*exact_sum(terms), back)

    def curve(self, kind: Activation, x: StepTensor) -> StepTensor:
        """An activation function."""
        def back(gradient: TrainingTensor):
            slope = self.requantize(*derivative(kind, made.tensor), Width.ACTIVATION)
            self._add(x, gradient.mantissas * slope.mantissas, unit(gradient) + unit(slope))

        made = self.made(*curve(kind, x.tensor), back)
        return made

    def masked(self, x: StepTensor, live: np.ndarray) -> StepTensor:
        """The value where `live`, bool[samples, 1], is true, and zero elsewhere; exponents stay."""
        def kept(t: TrainingTensor) -> TrainingTensor:
            return TrainingTensor(t.mantissas * live, t.exponent, t.bits)

        self.steps.append(StepTensor(kept(x.tensor), lambda gradient: self._send(x, kept(gradient))))
        return self.steps[-1]

    def joined(self, values, chosen) -> StepTensor:
        """The sum of values, of each of which only the samples bool[samples, 1] in `chosen` count."""
        pairs = list(zip(values, chosen, strict=True))
        terms = [(value.tensor.mantissas * some, unit(value.tensor)) for value, some in pairs]

        def back(gradient: TrainingTensor):
            for value, some in pairs:
                self._send(value, TrainingTensor(gradient.mantissas * some, gradient.exponent, gradient.bits))

        return self.made(*exact_sum(terms), back)

    def _add(self, to: StepTensor, sums: np.ndarray, lsb: int):
        """Send a gradient, exact sums, to a value."""
        self._send(to, self.requantize(sums, lsb, Width.GRADIENT))

    def _send(self, to: StepTensor, gradient: TrainingTensor):
        if to.gradient is not None:
            terms = [(part.mantissas, unit(part)) for part in (to.gradient, gradient)]
            gradient = self.requantize(*exact_sum(terms), Width.GRADIENT)
        to.gradient = gradient

    def _learn(self, name: str, sums: np.ndarray, lsb: int):
        """Add to the gradient of a parameter; every process holds the whole of it."""
        found, old = parameter_gradient(self.total(sums), lsb), self.gradients.get(name)
        if old is not None:
            found = parameter_gradient(*exact_sum([(part.mantissas, unit(part)) for part in (old, found)]))
        self.gradients[name] = found


def exact_sum(terms) -> tuple[np.ndarray, int]:
    """Exact sum of terms (integers, exponent of their unit), and the exponent of its unit: the finest one, but within
    REACH of the coarsest one."""
    units = [lsb for _, lsb in terms]
    low = max(min(units), max(units) - REACH)
    return sum(round_shift(values, low - lsb) for values, lsb in terms), low


def curve(kind: Activation, x: TrainingTensor) -> tuple[np.ndarray, int]:
    """An activation function of 8-bit numbers, as integers and the exponent of their unit.

    Sigmoid and tanh have FRACTION_BITS fraction bits, round half away and saturate below 1.
    """
    if kind is Activation.RELU:
        return np.maximum(x.mantissas, 0), unit(x)
    values = np.clip(x.values, -64, 64)
    real = np.tanh(values) if kind is Activation.TANH else 1 / (1 + np.exp(-values))
    rounded = np.copysign(np.floor(np.abs(real) * 2**FRACTION_BITS + 0.5), real).astype(np.int64)
    return np.clip(rounded, -(1 << FRACTION_BITS), (1 << FRACTION_BITS) - 1), -FRACTION_BITS


def derivative(kind: Activation, y: TrainingTensor) -> tuple[np.ndarray, int]:
    """The derivative of an activation function from its result, as integers and the exponent of their unit.

    It is y * (1 - y) of a sigmoid and 1 - y**2 of tanh, of y in FRACTION_BITS fraction bits.
    """
    if kind is Activation.RELU:
        return (y.mantissas > 0).astype(np.int64), 0
    one, y = 1 << FRACTION_BITS, round_shift(y.mantissas, -FRACTION_BITS - unit(y))
    return (one * one - y * y if kind is Activation.TANH else y * (one - y)), -2 * FRACTION_BITS


class TensorOperations:
    """What a cell's formula computes with in one time step, see `net.cells.cell.Operations`.

    Args:
        tape:   The tape.
        cell:   The cell.
        prefix: Beginning of the names of the layer's parameters.
        x:      Input of the time step.
    """

    def __init__(self, tape: Tape, cell, prefix: str, x: StepTensor):
        self.tape, self.prefix, self.x = tape, prefix, x
        self.curves = {gate.name: gate.curve for gate in cell.gates}
        self.add, self.mul, self.curve = tape.add, tape.multiply, tape.curve

    def _name(self, gate: str, part: str) -> str:
        return f"{self.prefix}{gate}.{part}"

    def preactivation(self, gate: str, operand: StepTensor) -> StepTensor:
        """W x + R operand + bias of a gate."""
        products = (self._name(gate, "input"), self.x), (self._name(gate, "recurrent"), operand)
        return self.tape.linear(products, self._name(gate, "bias"))

    def input_product(self, gate: str) -> StepTensor:
        """W x + bias of a gate."""
        return self.tape.linear([(self._name(gate, "input"), self.x)], self._name(gate, "bias"))

    def recurrent_product(self, gate: str, operand: StepTensor) -> StepTensor:
        """R operand of a gate."""
        return self.tape.linear([(self._name(gate, "recurrent"), operand)])

    def output(self, gate: str, value: StepTensor) -> StepTensor:
        """The gate's activation function of a value."""
        return self.tape.curve(self.curves[gate], value)

    def vector(self, name: str) -> StepTensor:
        """One of the cell's own vectors of parameters."""
        return self.tape.vector(f"{self.prefix}{name}")

    def sub(self, a: StepTensor, b: StepTensor) -> StepTensor:
        """a - b."""
        return self.tape.add(a, b, -1)


def unrolled(
    tape: Tape, cell, hidden: tuple[int, ...], prefix: str, x: TrainingTensor, lengths: np.ndarray
) -> StepTensor:
    """The last hidden vectors, 8 bits, of recurrent layers over each other.

    Args:
        cell:    The cell, see `net.cells.cell.Cell`.
        hidden:  Sizes of the layers.
        prefix:  Beginning of the names of the parameters; that of a layer follows, its number and a point.
        x:       8 bits, [samples, time, inputs].
        lengths: int[samples], time steps of each sample.
    """
    samples, times, _ = x.mantissas.shape
    steps = [StepTensor(whole(x.mantissas[:, t], x.exponent.item(), x.bits)) for t in range(times)]
    live = [(lengths > t)[:, None] for t in range(times)]
    for index, size in enumerate(hidden):
        zeros = whole(np.zeros((samples, size), np.int64), E_MIN, Width.ACTIVATION)
        states = tuple(StepTensor(zeros) for _ in cell.states)
        for t, now in enumerate(steps):
            found = cell.step(TensorOperations(tape, cell, f"{prefix}{index}.", now), *states)
            states = tuple(tape.masked(state, live[t]) for state in found)
            steps[t] = states[0]
    return tape.joined(steps, [(lengths == t + 1)[:, None] for t in range(times)])
