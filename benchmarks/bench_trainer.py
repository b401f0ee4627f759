"""Steps of training on golden's machine, beside golden.lazy and PyTorch: `nox -s bench_trainer`.

A network learns images of Fashion-MNIST. After the last step, a hash of all parameters, residuals, momenta and
exponents must be the same of all three. The table says what a step costs a trainer: cycles by formula, an estimate.
"""

import hashlib
import sys
import time
from dataclasses import dataclass, field
from typing import Annotated

import numpy as np
import torch
import typer
from concord.compiler.training.costs import explained
from concord.compiler.training.program import TrainingProgram
from concord.compiler.training.session import TrainingSession
from concord.datasets import dataset
from concord.golden.lazy import tensor_network, tensor_training
from concord.golden.lazy.lazy_update import Parameters, initial_parameters
from concord.golden.lazy.tensor import TrainingTensor, to_training_tensor
from concord.golden.lazy.tensor_layers import whole
from concord.golden.lazy.tensor_network import AveragePool, Conv, Dense, Layer, MaxPool, Relu, Residual
from concord.golden.lazy.tensor_training import Rates
from concord.spec.numbers.lazy import LazyFormat, Width
from concord.spec.trainer.config import TrainerConfig
from concord.train.bfp import tensor_network as torch_network
from concord.train.bfp.options import UpdateRule
from concord.train.bfp.tensor import exact
from rich.console import Console
from rich.table import Table

PIXELS = 28
#: Shape of a sample, layers, and the batch by name.
MODELS: dict[str, tuple[tuple[int, ...], tuple[Layer, ...], int]] = {
    "perceptron": (
        (PIXELS * PIXELS,),
        (Dense(784, 128), Relu(), Dense(128, 64), Relu(), Dense(64, 10)),
        64,
    ),
    "cnn": (
        (1, PIXELS, PIXELS),
        (
            *(Conv(1, 16, 3, 1, 1), Relu(), MaxPool(2, 2)),
            *(Conv(16, 32, 3, 1, 1), Relu(), MaxPool(2, 2)),
            Dense(32 * 7 * 7, 10),
        ),
        32,
    ),
    "residual": (
        (1, PIXELS, PIXELS),
        (
            *(Conv(1, 16, 3, 1, 1), Relu(), MaxPool(3, 2)),
            Residual((Conv(16, 32, 3, 2, 1), Relu(), Conv(32, 32, 3, 1, 1)), (Conv(16, 32, 1, 2),)),
            *(Relu(), Residual((Conv(32, 32, 3, 1, 1), Relu(), Conv(32, 32, 3, 1, 1))), Relu()),
            *(AveragePool(3, 2), Dense(32 * 3 * 3, 10)),
        ),
        32,
    ),
}
RATES = Rates(learning_rate=0.03, momentum=0.9)

State = tuple[dict[str, Parameters], dict[str, TrainingTensor]]


@dataclass(slots=True)
class TrainedState:
    """What a way of training ends with.

    Attributes:
        state:   Parameters and momenta by name.
        losses:  Mean loss of each step.
        seconds: Time of all steps.
    """

    state: State
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
    places = np.arange(count) % len(found.labels)
    images = found.inputs.view(np.float16)[places].astype(np.float64)
    x = to_training_tensor(images.reshape(count, *shape), Width.ACTIVATION)
    return Batches(x, found.labels[places].astype(np.int64), sizes)


def on_machine(session: TrainingSession, given: Batches) -> TrainedState:
    """Train on golden's machine."""
    began = time.perf_counter()
    losses = [session.step(x, labels) for x, labels in given]
    return TrainedState(session.parameters(), losses, time.perf_counter() - began)


def by_golden(layers: tuple[Layer, ...], begun: dict[str, Parameters], given: Batches) -> TrainedState:
    """Train by golden.lazy."""
    parameters, found = dict(begun), TrainedState(({}, {}))
    began = time.perf_counter()
    for x, labels in given:
        logits, tape = tensor_network.forward(layers, parameters, x)
        loss, real = tensor_training.loss_gradient(logits.values, labels, len(labels))
        gradients = tensor_network.backward(parameters, tape, to_training_tensor(real, Width.GRADIENT))
        tensor_training.train_step(parameters, found.state[1], gradients, RATES)
        found.losses.append(loss)
    return TrainedState((parameters, found.state[1]), found.losses, time.perf_counter() - began)


def by_torch(layers: tuple[Layer, ...], values: dict[str, np.ndarray], given: Batches) -> TrainedState:
    """Train by PyTorch."""
    network = torch_network.network(layers, UpdateRule.LAZY, RATES, values=values)
    like = torch.empty(0)
    began = time.perf_counter()
    losses = [network.step(exact(x, like), labels) for x, labels in given]
    seconds = time.perf_counter() - began
    kept = network.parameters
    state = (
        {name: each.golden() for name, each in kept.items()},
        {name: each.momentum.golden() for name, each in kept.items()},
    )
    return TrainedState(state, losses, seconds)


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


def report_costs(made: TrainingProgram, batch: int, console: Console):
    """Print what a step costs."""
    console.print(f"Estimate for batch {batch}: cycles of each engine by formula, without repeated passes, and bytes.")
    console.print(explained(made), highlight=False, soft_wrap=True)
    console.print(
        f"Programs: {len(made.forward):,} and {len(made.backward):,} words; server memory: "
        f"{made.places.words / 64:,.0f} KB"
    )


def report_hashes(trained: dict[str, TrainedState], console: Console):
    """Print what each way of training ends with."""
    hashes = Table("", "hash of the state", "first loss", "last loss", "seconds")
    for name, one in trained.items():
        hashes.add_row(name, digest(one.state), f"{one.losses[0]:.4f}", f"{one.losses[-1]:.4f}", f"{one.seconds:.1f}")
    console.print(hashes)


def main(
    model: Annotated[str, typer.Option(help=f"One of {', '.join(MODELS)}.")] = "perceptron",
    batch: Annotated[int, typer.Option(help="Samples of a batch; 0 for those of the model.", min=0)] = 0,
    steps: Annotated[int, typer.Option(help="Number of steps.", min=1)] = 20,
    last: Annotated[
        int, typer.Option(help="Samples of every third batch, as of the last one of an epoch; 0 for as many.", min=0)
    ] = 0,
) -> None:
    """Train three times, print costs and hashes; the exit code is 1 if the hashes differ."""
    console = Console(width=None if sys.stdout.isatty() else 150)
    if model not in MODELS:
        console.print(f"--model {model}: choose one of {', '.join(MODELS)}")
        raise typer.Exit(2)
    shape, layers, usual = MODELS[model]
    batch = batch or usual
    given = batches(shape, batch, steps, last)
    values = torch_network.initial_values(layers, 0)
    begun = {name: initial_parameters(value, LazyFormat()) for name, value in values.items()}
    session = TrainingSession(layers, shape, TrainerConfig(), RATES, begun, batches=sorted({batch, last or batch}))
    report_costs(session.programs[batch], batch, console)
    ways = {
        "golden's machine": lambda: on_machine(session, given),
        "golden.lazy": lambda: by_golden(layers, begun, given),
        "PyTorch": lambda: by_torch(layers, values, given),
    }
    trained = {}
    for name, train in ways.items():
        console.print(f"{name}, number of steps: {steps} ...")
        trained[name] = train()
    console.print(f"Repeated passes of golden's machine: {session.trainer.repeats}")
    report_hashes(trained, console)
    raise typer.Exit(len({digest(one.state) for one in trained.values()}) != 1)


if __name__ == "__main__":
    typer.run(main)
