"""A network under training in block floating point, and the same network in FP32."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from concord.golden.lazy import tensor_network, tensor_training
from concord.golden.lazy.lazy_update import Counts
from concord.golden.lazy.tensor import to_training_tensor
from concord.golden.lazy.tensor_training import Rates
from concord.spec.numbers.lazy import Width
from concord.train.bfp import tensor_layers
from concord.train.bfp.exact_products import Floating
from concord.train.bfp.onednn_products import Integer8, available
from concord.train.bfp.options import UpdateRule
from concord.train.bfp.parallel import Alone
from concord.train.bfp.parameters import parameter
from concord.train.bfp.tensor import ExactTensor, exact
from torch import nn


def kernels(device: str = "cpu"):
    """The fastest exact kernels of this machine."""
    return Integer8() if device == "cpu" and available() else Floating()


def initial_values(layers: Sequence[tensor_network.Layer], seed: int) -> dict[str, np.ndarray]:
    """Initial weights by He et al. and zero biases: float64 by name. Biases of gates are those of their cell."""
    generator, values = torch.Generator().manual_seed(seed), {}
    for name, layer in tensor_network.named(layers):
        recurrent = isinstance(layer, tensor_network.Recurrent)
        first = {gate.name: gate.first_bias for gate in layer.cell.gates} if recurrent else {}
        for part, shape in layer.shapes.items():
            if len(shape) == 1:
                values[f"{name}.{part}"] = np.full(shape, first.get(part.split(".")[1], 0.0) if recurrent else 0.0)
            else:
                values[f"{name}.{part}"] = tensor_layers.initial(shape, generator, recurrent).numpy()
    return values


class TensorNetwork:
    """Forward, backward and update in block floating point.

    Args:
        layers:     Layers of `golden.lazy.tensor_network`.
        parameters: Parameters by name, see `train.bfp.parameters`.
        group:      Processes that share each batch.
        products:   Kernels, see `exact_products`. The fastest ones by default.
        device:     Device of the parameters.
        counts:     Counts of events so far, which training continues; from zero by default.

    Attributes:
        counts: Counts of events of all parameters together.
    """

    def __init__(self, layers, parameters: dict, group=Alone, products=None, device: str = "cpu",
                 counts: Counts | None = None):
        tensor_network.check(layers)
        self.parameters, self.group, self.device = parameters, group, device
        self.counts = counts or Counts()
        for kept in parameters.values():
            kept.counts = self.counts
        self.layers = tensor_layers.build(layers, parameters, products or kernels(device), group)

    def forward(self, x: ExactTensor) -> ExactTensor:
        """32-bit linear values of the last layer."""
        return tensor_layers.forward(self.layers, x)

    def backward(self, gradient: ExactTensor) -> dict[str, ExactTensor]:
        """Exact sums of all gradients by name, over all processes."""
        tensor_layers.backward(self.layers, gradient)
        return tensor_layers.gradients(self.layers)

    def step(self, x: ExactTensor, labels: np.ndarray) -> float:
        """Train on a batch, or on the share of a process, and return the mean loss of the batch."""
        logits = self.forward(x)
        count = self.group.total(torch.tensor(len(labels), dtype=torch.int64))
        loss, real = tensor_training.loss_gradient(logits.golden().values, labels, int(count))
        for name, found in self.backward(self._quantized(real, logits.values)).items():
            self.parameters[name].update(found)
        return self.group.total_float(loss)

    def _quantized(self, real: np.ndarray, like: torch.Tensor) -> ExactTensor:
        """A gradient in 16 bits, under the exponent of the largest element of all processes."""
        # Doubles of one sign have the order of their bits, so that an integer maximum serves.
        top = self.group.largest(int(np.abs(real).max(initial=0.0).view(np.int64)))
        made = to_training_tensor(np.append(real, np.int64(top).view(np.float64)), Width.GRADIENT)
        mantissas = torch.from_numpy(made.mantissas[:-1].reshape(real.shape)).to(like.device, torch.int16)
        return ExactTensor(mantissas, int(made.lsb.item()), Width.GRADIENT)

    def pace(self, rate: float):
        """Go on with another learning rate."""
        for kept in self.parameters.values():
            kept.pace(rate)


def network(layers, rule: UpdateRule, rates: Rates, *, seed: int = 0, values: dict[str, np.ndarray] | None = None,
            group=Alone, device: str = "cpu") -> TensorNetwork:
    """A network before training.

    Args:
        layers: Layers of `golden.lazy.tensor_network`.
        rule:   What training keeps of parameters.
        rates:  Learning rate and momentum.
        seed:   Seed of the initial parameters, if `values` are not given, and of stochastic rounding.
        values: Real initial parameters by name, such as those of an FP32 model.
        group:  Processes that share each batch.
        device: Device of the parameters.
    """
    values = initial_values(layers, seed) if values is None else values
    made = {name: parameter(rule, value, rates, seed + index, device)
            for index, (name, value) in enumerate(values.items())}
    return TensorNetwork(layers, made, group, device=device)


def inputs(values, device: str = "cpu", lengths=None) -> ExactTensor:
    """Real inputs, quantised as an activation: all of them share one exponent, so that every batch has it.

    Args:
        values:  Real[samples, ...].
        lengths: int[samples], time steps of each sample of sequences.
    """
    made = exact(to_training_tensor(np.asarray(values), Width.ACTIVATION), torch.empty(0, device=device))
    return replace(made, lengths=None if lengths is None else torch.from_numpy(np.asarray(lengths, np.int64)))


def batch(x: ExactTensor, index: torch.Tensor) -> ExactTensor:
    """Some samples of a training tensor."""
    lengths = None if x.lengths is None else x.lengths[index]
    return ExactTensor(x.values[index], x.lsb, x.bits, x.left_shift, lengths=lengths)


class FloatResidual(nn.Module):
    """The sum of two branches in FP32."""

    def __init__(self, body: nn.Module, shortcut: nn.Module):
        super().__init__()
        self.body, self.shortcut = body, shortcut

    def forward(self, x):
        return self.body(x) + self.shortcut(x)


def float_network(layers) -> nn.Sequential:
    """The same layers in FP32, under the same names."""
    made = []
    for layer in layers:
        match layer:
            case tensor_network.Conv():
                made.append(nn.Conv2d(layer.inputs, layer.outputs, layer.size, layer.stride, layer.padding))
            case tensor_network.Dense():
                made.append(FlatLinear(layer.inputs, layer.outputs))
            case tensor_network.MaxPool():
                made.append(nn.MaxPool2d(layer.size, layer.stride))
            case tensor_network.AveragePool():
                made.append(nn.AvgPool2d(layer.size, layer.stride))
            case tensor_network.Relu():
                made.append(nn.ReLU())
            case tensor_network.Residual():
                made.append(FloatResidual(float_network(layer.body), float_network(layer.shortcut)))
    return nn.Sequential(*made)


class FlatLinear(nn.Linear):
    """A dense layer whose input may be images."""

    def forward(self, input):
        return super().forward(input.flatten(1))
