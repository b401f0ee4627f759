"""Networks under training in block floating point: their layers as data, run forward and backward by name.

A convolution or dense layer gives 8-bit activations, except where it is the network's last: its 32-bit linear value is
the output. The gradient of that arrives in 16 bits.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from concord.golden.lazy import tensor_layers
from concord.golden.lazy.lazy_update import Parameters
from concord.golden.lazy.tensor import TrainingTensor
from concord.golden.lazy.tensor_layers import Gradients
from concord.golden.lazy.tensor_sequence import Tape, unrolled
from concord.spec.numbers.lazy import Width


@dataclass(frozen=True, slots=True)
class Conv:
    """A convolution.

    Attributes:
        inputs, outputs: Number of channels of the input and of the output.
        size:            Number of rows and of columns of a kernel.
        stride:          Distance between neighbouring positions of the kernel.
        padding:         Number of zeros on each of the four sides of the input.
    """

    inputs: int
    outputs: int
    size: int
    stride: int = 1
    padding: int = 0

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the parameters by name."""
        return {"weight": (self.outputs, self.inputs, self.size, self.size), "bias": (self.outputs,)}


@dataclass(frozen=True, slots=True)
class Dense:
    """A fully connected layer; what comes from images is laid out by channels, rows, columns."""

    inputs: int
    outputs: int

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the parameters by name."""
        return {"weight": (self.outputs, self.inputs), "bias": (self.outputs,)}


@dataclass(frozen=True, slots=True)
class Recurrent:
    """Recurrent layers over each other, from a sequence to the last hidden vector; only the first layer of a network.

    Attributes:
        cell:   The cell of each layer, see `net.cells.cell.Cell`.
        inputs: Number of elements of a time step.
        hidden: Sizes of the layers.
    """

    cell: Any
    inputs: int
    hidden: tuple[int, ...]

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the parameters by name."""
        found = {}
        for index, (inputs, size) in enumerate(zip((self.inputs, *self.hidden), self.hidden, strict=False)):
            for gate in self.cell.gates:
                name = f"{index}.{gate.name}"
                found |= {f"{name}.input": (size, inputs), f"{name}.recurrent": (size, size), f"{name}.bias": (size,)}
            found |= {f"{index}.{vector}": (size,) for vector in self.cell.vectors}
        return found


@dataclass(frozen=True, slots=True)
class MaxPool:
    """The largest of windows of `size` x `size`."""

    size: int
    stride: int


@dataclass(frozen=True, slots=True)
class AveragePool:
    """Means of windows of `size` x `size`."""

    size: int
    stride: int


@dataclass(frozen=True, slots=True)
class Relu:
    """max(x, 0)."""


@dataclass(frozen=True, slots=True)
class Residual:
    """The sum of two branches; a branch of no layers is its input."""

    body: tuple["Layer", ...]
    shortcut: tuple["Layer", ...] = ()


Layer = Conv | Dense | Recurrent | MaxPool | AveragePool | Relu | Residual


def named(layers: tuple[Layer, ...], prefix: str = ""):
    """Every layer that has parameters, with its name: its index, and those of the branches it is in."""
    for index, layer in enumerate(layers):
        name = f"{prefix}{index}"
        match layer:
            case Conv() | Dense() | Recurrent():
                yield name, layer
            case Residual():
                yield from named(layer.body, f"{name}.body.")
                yield from named(layer.shortcut, f"{name}.shortcut.")


def check(layers: tuple[Layer, ...]):
    """Refuse networks that cannot be trained.

    Raises:
        ValueError: a network that does not end in a layer with parameters, or an empty branch on both sides.
    """
    if not layers or not isinstance(layers[-1], Conv | Dense):
        raise ValueError("a network must end in a Conv or Dense layer, whose linear value is its output; add one")
    if any(isinstance(layer, Recurrent) for _, layer in named(layers[1:])):
        raise ValueError("a recurrent layer takes the network's input; put it first")


def shapes(layers: tuple[Layer, ...]) -> dict[str, tuple[int, ...]]:
    """Shapes of all parameters by name."""
    return {f"{name}.{part}": shape for name, layer in named(layers) for part, shape in layer.shapes.items()}


def training_tensor(parameters: Parameters) -> TrainingTensor:
    """The parameters as the forward pass uses them."""
    return tensor_layers.whole(parameters.mantissas, parameters.exponent, parameters.fmt.bits)


def forward(
    layers: tuple[Layer, ...], parameters: dict[str, Parameters], x: TrainingTensor, lengths: np.ndarray | None = None
) -> tuple[TrainingTensor, list]:
    """Run a network.

    Args:
        layers:     Checked.
        parameters: By name, "0.weight" and "0.bias" for layer 0.
        x:          8 bits, [samples, inputs], [samples, channels, rows, columns] or [samples, time, inputs].
        lengths:    int[samples], time steps of each sequence; all of them if None.

    Returns:
        The linear value of the last layer, 32 bits, and what `backward` needs.
    """
    *inner, last = layers
    tape, y = [], x
    if inner and isinstance(inner[0], Recurrent):
        y, kept = _recurrent(inner[0], parameters, x, lengths)
        tape = [(inner[0], "0", x, kept)]
    y, found = branch(tuple(inner[len(tape):]), parameters, y, "", len(tape))
    tape, name = tape + found, str(len(inner))
    return _linear(last, parameters, y, name, Width.LINEAR), [*tape, (last, name, y, None)]


def backward(parameters: dict[str, Parameters], tape: list, gradient: TrainingTensor) -> dict[str, TrainingTensor]:
    """Gradients of all parameters, by name, 32 bits, from that of the network's output, 16 bits."""
    found = {}
    branch_back(parameters, tape, gradient, found, wanted=False)
    return found


def _recurrent(layer: Recurrent, parameters, x: TrainingTensor, lengths: np.ndarray | None):
    samples, times = x.mantissas.shape[:2]
    tape = Tape({name: training_tensor(parameters[name]) for name in shapes((layer,))})
    lengths = np.full(samples, times) if lengths is None else np.asarray(lengths)
    last = unrolled(tape, layer.cell, layer.hidden, "0.", x, lengths)
    return last.tensor, (tape, last)


def branch(layers: tuple[Layer, ...], parameters: dict[str, Parameters], x: TrainingTensor, prefix: str = "",
           first: int = 0) -> tuple[TrainingTensor, list]:
    """Run layers that are not the network's last: 8 bits, and what `branch_back` needs.

    Args:
        layers, parameters, x: As for `forward`.
        prefix, first: Beginning of the layers' names, and index of the first of them.
    """
    tape = []
    for index, layer in enumerate(layers, first):
        name, kept = f"{prefix}{index}", None
        match layer:
            case Conv() | Dense():
                y = _linear(layer, parameters, x, name, Width.ACTIVATION)
            case MaxPool():
                y, kept = tensor_layers.max_pool(x, layer.size, layer.stride)
            case AveragePool():
                y = tensor_layers.average_pool(x, layer.size, layer.stride)
            case Relu():
                y = kept = tensor_layers.relu(x)
            case Residual():
                body, one = branch(layer.body, parameters, x, f"{name}.body.")
                shortcut, other = branch(layer.shortcut, parameters, x, f"{name}.shortcut.")
                y, kept = tensor_layers.add(body, shortcut), (one, other)
        tape.append((layer, name, x, kept))
        x = y
    return x, tape


def _linear(layer, parameters, x: TrainingTensor, name: str, bits: int) -> TrainingTensor:
    weight, bias = (training_tensor(parameters[f"{name}.{part}"]) for part in ("weight", "bias"))
    if isinstance(layer, Dense):
        return tensor_layers.dense(_flat(x), weight, bias, bits)
    return tensor_layers.convolve(x, weight, bias, layer.stride, layer.padding, bits)


def branch_back(parameters: dict[str, Parameters], tape: list, gradient: TrainingTensor | None,
                found: dict[str, TrainingTensor], wanted: bool) -> TrainingTensor | None:
    """Send a gradient of 16 bits back through layers: that of their input, if it is wanted, and those of parameters, 32
    bits, into `found`."""
    for index, (layer, name, x, kept) in reversed(list(enumerate(tape))):
        shape = x.mantissas.shape
        assert gradient is not None  # only the first layer sends none
        match layer:
            case Conv() | Dense():
                gradient = _linear_back(layer, parameters, x, gradient, name, found, wanted or index > 0)
            case Recurrent():
                inner, last = kept
                inner.backward(last, gradient)
                found |= inner.gradients
                gradient = None
            case MaxPool():
                gradient = tensor_layers.max_pool_back(gradient, kept, shape, layer.size, layer.stride)
            case AveragePool():
                gradient = tensor_layers.average_pool_back(gradient, shape, layer.size, layer.stride)
            case Relu():
                gradient = tensor_layers.relu_back(gradient, kept)
            case Residual():
                one, other = (branch_back(parameters, way, gradient, found, wanted or index > 0) for way in kept)
                gradient = None if one is None or other is None else tensor_layers.add_gradients(one, other)
    return gradient


def _linear_back(
    layer, parameters, x: TrainingTensor, gradient: TrainingTensor, name: str, found: dict, wanted: bool
) -> TrainingTensor | None:
    weight = training_tensor(parameters[f"{name}.weight"])
    if isinstance(layer, Dense):
        sent: Gradients = tensor_layers.dense_back(_flat(x), weight, gradient, wanted)
        inputs = sent.inputs and TrainingTensor(
            sent.inputs.mantissas.reshape(x.mantissas.shape), sent.inputs.exponent.reshape(x.exponent.shape),
            Width.GRADIENT)
    else:
        sent = tensor_layers.convolve_back(x, weight, gradient, layer.stride, layer.padding, wanted)
        inputs = sent.inputs
    found |= {f"{name}.weight": sent.weight, f"{name}.bias": sent.bias}
    return inputs


def _flat(x: TrainingTensor) -> TrainingTensor:
    return tensor_layers.whole(x.mantissas.reshape(len(x.mantissas), -1), x.exponent.item(), x.bits)
