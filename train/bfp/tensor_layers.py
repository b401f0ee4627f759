"""Layers of training in block floating point, with the bits of `golden.lazy.tensor_layers` and the speed of PyTorch.

A layer keeps from its forward pass what its backward pass needs. Those with parameters leave the exact sums of their
own gradients in `found`, to be added up over processes.
"""

import math
from functools import reduce

import torch
from concord.golden.lazy import tensor_layers, tensor_network
from concord.spec.numbers.lazy import Width
from concord.train.bfp.parallel import Alone
from concord.train.bfp.recurrent import Recurrent
from concord.train.bfp.tensor import ExactTensor, add, largest, requantize, sums


class ProductLayer:
    """A convolution or dense layer.

    Args:
        layer:      Layer of `golden.lazy.tensor_network`.
        name:       Name of the layer, with which the names of its parameters begin.
        parameters: Parameters by name, each with `mantissas` and `lsb`.
        kernels:    Kernels of `exact_products`.
        group:      Processes that share each training tensor.
        wanted:     Whether the gradient of the layer's input is wanted.
    """

    def __init__(self, layer, name: str, parameters: dict, kernels, group=Alone, wanted: bool = True):
        self.layer, self.name, self.kernels, self.group, self.wanted = layer, name, kernels, group, wanted
        self.weight, self.bias = (parameters[f"{name}.{part}"] for part in ("weight", "bias"))
        self.seen, self.unit, self.shape, self.found = None, 0, (), {}

    @property
    def convolution(self) -> bool:
        return isinstance(self.layer, tensor_network.Conv)

    def linear(self, x: ExactTensor) -> ExactTensor:
        """Exact sums with the bias, before they are brought to 8 or 32 bits."""
        self.shape, self.unit = x.shape, x.lsb
        values = x.values << x.left_shift if x.left_shift else x.values
        lsb = x.lsb + self.weight.lsb
        alone = self.bias.lsb - lsb > tensor_layers.BIAS_REACH
        bias = _rounded(self.bias.mantissas.double(), 0 if alone else lsb - self.bias.lsb)
        here = torch.zeros_like(bias) if alone else bias
        if self.convolution:
            total, self.seen = self.kernels.convolve(
                values, self.weight.mantissas, here, self.layer.stride, self.layer.padding)
            bias = bias[:, None, None]
        else:
            total, self.seen = self.kernels.dense(values.flatten(1), self.weight.mantissas, here)
        return ExactTensor(torch.zeros_like(total) + bias, self.bias.lsb) if alone else ExactTensor(total, lsb)

    def forward(self, x: ExactTensor) -> ExactTensor:
        return requantize(self.linear(x), Width.ACTIVATION, self.group)

    def backward(self, gradient: ExactTensor) -> ExactTensor | None:
        terms = self.group.size * gradient.values[:, 0].numel()
        tensor_layers.check_terms(terms, f"the gradient of layer {self.name!r}")
        if gradient.top is None:
            gradient.top = largest(gradient.values, self.group)
        prepared = self.kernels.prepare(gradient.values, gradient.top)
        sent = self._inputs(gradient, prepared) if self.wanted else None
        if self.convolution:
            weight, bias = self.kernels.convolve_weight(
                prepared, self.seen, self.layer.size, self.layer.stride, self.layer.padding)
        else:
            weight, bias = self.kernels.dense_weight(prepared, self.seen)
        self.seen, lsb, left_shift = None, gradient.lsb, gradient.left_shift
        self.found = {f"{self.name}.weight": sums(self.group.total(weight), lsb + self.unit, left_shift),
                      f"{self.name}.bias": sums(self.group.total(bias), lsb, left_shift)}
        return sent

    def _inputs(self, gradient: ExactTensor, prepared) -> ExactTensor:
        if self.convolution:
            total = self.kernels.convolve_input(
                prepared, self.weight.mantissas, self.shape, self.layer.stride, self.layer.padding)
        else:
            total = self.kernels.dense_input(prepared, self.weight.mantissas).view(self.shape)
        products = ExactTensor(total, gradient.lsb + self.weight.lsb, 0, gradient.left_shift)
        return requantize(products, Width.GRADIENT, self.group)


def _rounded(values: torch.Tensor, shift: int) -> torch.Tensor:
    """float64: round(values / 2**shift), half away from zero."""
    return torch.trunc(values * 2.0**-shift + torch.copysign(torch.full_like(values, 0.5), values))


def _pixels(outputs, size: int, stride: int):
    """For each element of a window, row by row: the slices of an image with that element of all windows."""
    across = [slice(None), slice(None)]
    for i in range(size):
        for j in range(size):
            yield (*across, slice(i, i + stride * outputs[0], stride), slice(j, j + stride * outputs[1], stride))


def _outputs(shape, size: int, stride: int) -> list[int]:
    return [(n - size) // stride + 1 for n in shape[2:]]


class MaxPool:
    """Maximum pooling. Of several equal maxima the first takes the gradient."""

    def __init__(self, layer: tensor_network.MaxPool, group=Alone):
        self.size, self.stride, self.group = layer.size, layer.stride, group
        self.x = self.y = None

    def forward(self, x: ExactTensor) -> ExactTensor:
        pixels = _pixels(_outputs(x.shape, self.size, self.stride), self.size, self.stride)
        largest = reduce(torch.maximum, (x.values[pixel] for pixel in pixels))
        self.x, self.y = x.values, largest
        return ExactTensor(largest, x.lsb, x.bits, x.left_shift)

    def backward(self, gradient: ExactTensor) -> ExactTensor:
        overlap = self.stride < self.size
        total = torch.zeros_like(self.x, dtype=torch.float64 if overlap else gradient.values.dtype)
        free = torch.ones_like(self.y, dtype=torch.bool)
        for pixel in _pixels(self.y.shape[2:], self.size, self.stride):
            chosen = (self.x[pixel] == self.y).logical_and_(free)
            free ^= chosen
            part = gradient.values * chosen
            if overlap:
                total[pixel] += part
            else:
                total[pixel] = part
        self.x = self.y = None
        if overlap:
            return requantize(ExactTensor(total, gradient.lsb, 0, gradient.left_shift), Width.GRADIENT, self.group)
        return ExactTensor(total, gradient.lsb, gradient.bits, gradient.left_shift)


class AveragePool:
    """Average pooling."""

    def __init__(self, layer: tensor_network.AveragePool, group=Alone):
        self.size, self.stride, self.group = layer.size, layer.stride, group
        self.shape = ()

    def forward(self, x: ExactTensor) -> ExactTensor:
        self.shape = x.shape
        pixels = _pixels(_outputs(x.shape, self.size, self.stride), self.size, self.stride)
        total = sum(x.values[pixel].double() for pixel in pixels)
        return self._mean(total, x, Width.ACTIVATION)

    def backward(self, gradient: ExactTensor) -> ExactTensor:
        total = gradient.values.new_zeros(self.shape, dtype=torch.float64)
        for pixel in _pixels(gradient.shape[2:], self.size, self.stride):
            total[pixel] += gradient.values
        return self._mean(total, gradient, Width.GRADIENT)

    def _mean(self, total: torch.Tensor, of: ExactTensor, bits: int) -> ExactTensor:
        """Sums over windows of mantissas of a tensor, divided by the size of a window."""
        mantissa, lsb = tensor_layers.reciprocal(self.size**2)
        return requantize(ExactTensor(total.mul_(mantissa), of.lsb + lsb, 0, of.left_shift), bits, self.group)


class Relu:
    """max(x, 0)."""

    def __init__(self):
        self.y = None

    def forward(self, x: ExactTensor) -> ExactTensor:
        self.y = x.values.clamp_min(0)
        return ExactTensor(self.y, x.lsb, x.bits, x.left_shift)

    def backward(self, gradient: ExactTensor) -> ExactTensor:
        passed = gradient.values * self.y.clamp(max=1)
        self.y = None
        return ExactTensor(passed, gradient.lsb, gradient.bits, gradient.left_shift)


class Residual:
    """The sum of two branches.

    Args:
        body:     Layers of the first branch.
        shortcut: Layers of the second branch.
    """

    def __init__(self, body: list, shortcut: list, group=Alone):
        self.body, self.shortcut, self.group = body, shortcut, group

    def forward(self, x: ExactTensor) -> ExactTensor:
        return add(_forward(self.body, x), _forward(self.shortcut, x), Width.ACTIVATION, self.group)

    def backward(self, gradient: ExactTensor) -> ExactTensor | None:
        one, other = backward(self.body, gradient), backward(self.shortcut, gradient)
        return None if one is None or other is None else add(one, other, Width.GRADIENT, self.group)


def _forward(layers: list, x: ExactTensor) -> ExactTensor:
    for layer in layers:
        x = layer.forward(x)
    return x


def backward(layers: list, gradient: ExactTensor | None) -> ExactTensor | None:
    """Send a gradient backward through layers, whose forward pass has run."""
    for layer in reversed(layers):
        gradient = layer.backward(gradient)
    return gradient


def forward(layers: list, x: ExactTensor) -> ExactTensor:
    """Linear values of the last layer of a network, 32 bits."""
    last = layers[-1]
    return requantize(last.linear(_forward(layers[:-1], x)), Width.LINEAR, last.group)


def build(layers, parameters: dict, kernels, group=Alone, prefix: str = "", wanted: bool = False) -> list:
    """Layers as golden describes them. Arguments are those of `ProductLayer`."""
    made = []
    for index, layer in enumerate(layers):
        name = f"{prefix}{index}"
        match layer:
            case tensor_network.Conv() | tensor_network.Dense():
                made.append(ProductLayer(layer, name, parameters, kernels, group, wanted or index > 0))
            case tensor_network.Recurrent():
                made.append(Recurrent(layer, name, parameters, group))
            case tensor_network.MaxPool():
                made.append(MaxPool(layer, group))
            case tensor_network.AveragePool():
                made.append(AveragePool(layer, group))
            case tensor_network.Relu():
                made.append(Relu())
            case tensor_network.Residual():
                branches = (
                    build(branch, parameters, kernels, group, f"{name}.{side}.", wanted or index > 0)
                    for side, branch in (("body", layer.body), ("shortcut", layer.shortcut)))
                made.append(Residual(*branches, group))
    return made


def gradients(layers: list) -> dict[str, ExactTensor]:
    """Exact sums of the gradients of all parameters, by name."""
    found = {}
    for layer in layers:
        if isinstance(layer, ProductLayer | Recurrent):
            found |= layer.found
        elif isinstance(layer, Residual):
            found |= gradients(layer.body) | gradients(layer.shortcut)
    return found


def initial(shape: tuple[int, ...], generator: torch.Generator, recurrent: bool = False) -> torch.Tensor:
    """Initial weights: float64, normal, of variance 2 / inputs by He et al., or 1 / (3 * outputs) of a gate."""
    scale = math.sqrt(1 / 3 / shape[0]) if recurrent else math.sqrt(2 / math.prod(shape[1:]))
    return torch.randn(shape, generator=generator, dtype=torch.float64) * scale
