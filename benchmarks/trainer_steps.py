"""The same steps of training on a trainer, by golden.lazy and by PyTorch, with a hash of the state after each."""

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import torch
from concord.compiler.training.session import TrainingSession
from concord.datasets import dataset
from concord.golden.lazy import tensor_network, tensor_training
from concord.golden.lazy.lazy_update import Parameters
from concord.golden.lazy.tensor import TrainingTensor, to_training_tensor
from concord.golden.lazy.tensor_layers import whole
from concord.golden.lazy.tensor_network import Layer
from concord.golden.lazy.tensor_training import Rates
from concord.spec.numbers.lazy import Width
from concord.train.bfp import tensor_network as torch_network
from concord.train.bfp.options import UpdateRule
from concord.train.bfp.tensor import exact

RATES = Rates(learning_rate=0.03, momentum=0.9)

#: Parameters and momenta by name.
State = tuple[dict[str, Parameters], dict[str, TrainingTensor]]
#: A step of training on images and labels, which returns the mean loss.
Step = Callable[[TrainingTensor, np.ndarray], float]


@dataclass(slots=True)
class TrainedState:
    """What a way of training has done.

    Attributes:
        hashes:  Hash of mantissas, residuals, momenta and exponents after each step.
        losses:  Mean loss of each step.
        seconds: Time of all steps.
    """

    hashes: list[str] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Batches:
    """Images and labels in steps.

    Attributes:
        x:      All images, under one exponent.
        labels: int64[images].
        sizes:  Number of images of each step.
    """

    x: TrainingTensor
    labels: np.ndarray
    sizes: list[int]

    def __iter__(self):
        first = 0
        for size in self.sizes:
            some = slice(first, first + size)
            yield whole(self.x.mantissas[some], int(self.x.exponent.item()), self.x.bits), self.labels[some]
            first += size


def batches(shape: tuple[int, ...], batch: int, steps: int, last: int) -> Batches:
    """Images of Fashion-MNIST; every third batch has `last` images, if that is not 0."""
    found = dataset.load("fashion-mnist")
    sizes = [last if last and step % 3 == 2 else batch for step in range(steps)]
    count = sum(sizes)
    indices = np.arange(count) % len(found.labels)
    images = found.inputs.view(np.float16)[indices].astype(np.float64)
    x = to_training_tensor(images.reshape(count, *shape), Width.ACTIVATION)
    return Batches(x, found.labels[indices].astype(np.int64), sizes)


def trained(step: Step, state: Callable[[], State], given: Batches) -> TrainedState:
    """Do all steps in one way."""
    found = TrainedState()
    for x, labels in given:
        began = time.perf_counter()
        found.losses.append(step(x, labels))
        found.seconds += time.perf_counter() - began
        found.hashes.append(digest(state()))
    return found


def on_machine(session: TrainingSession, given: Batches) -> TrainedState:
    """Train on a trainer."""
    return trained(session.step, session.parameters, given)


def by_golden(layers: tuple[Layer, ...], begun: dict[str, Parameters], given: Batches) -> TrainedState:
    """Train by golden.lazy."""
    state: State = (dict(begun), {})
    return trained(partial(_golden_step, layers, state), lambda: state, given)


def _golden_step(layers: tuple[Layer, ...], state: State, x: TrainingTensor, labels: np.ndarray) -> float:
    logits, tape = tensor_network.forward(layers, state[0], x)
    loss, real = tensor_training.loss_gradient(logits.values, labels, len(labels))
    gradients = tensor_network.backward(state[0], tape, to_training_tensor(real, Width.GRADIENT))
    tensor_training.train_step(*state, gradients, RATES)
    return loss


def by_torch(layers: tuple[Layer, ...], values: dict[str, np.ndarray], given: Batches) -> TrainedState:
    """Train by PyTorch."""
    network = torch_network.network(layers, UpdateRule.LAZY, RATES, values=values)
    like, kept = torch.empty(0), network.parameters

    def state() -> State:
        return (
            {name: each.golden() for name, each in kept.items()},
            {name: each.momentum.golden() for name, each in kept.items()},
        )

    return trained(lambda x, labels: network.step(exact(x, like), labels), state, given)


def digest(state: State) -> str:
    """A hash of mantissas, residuals, momenta and exponents."""
    found = hashlib.sha256()
    parameters, momenta = state
    for name in sorted(parameters):
        kept, momentum = parameters[name], momenta[name]
        found.update(f"{name} {kept.exponent} {momentum.exponent.item()}".encode())
        for numbers in kept.mantissas, kept.residuals, momentum.mantissas:
            found.update(np.ascontiguousarray(numbers, np.int64).tobytes())
    return found.hexdigest()[:16]
