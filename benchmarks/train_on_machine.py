"""From random numbers to answers on one accelerator: a core learns images, and another core classifies others.

`nox -s train_on_machine -- --steps 150`. A perceptron learns Fashion-MNIST on a core that trains; golden.lazy and
PyTorch do the same steps, and all must leave the same checkpoint, byte for byte. The checkpoint becomes firmware, a
list of commands loads it into the neural network processor beside that core and gives it images, and its outputs must
be golden's. Checkpoints are kept after each 10 steps, and the same command goes on from them.
"""

import hashlib
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer
from concord.compiler.network import compile_network
from concord.compiler.training.session import TrainingSession
from concord.datasets.samples import Samples
from concord.firmware.accelerator_session import AcceleratorSession
from concord.firmware.session import Session
from concord.golden.lazy import tensor_network
from concord.golden.lazy.lazy_update import Counts
from concord.golden.lazy.tensor import to_training_tensor
from concord.golden.lazy.tensor_training import Rates, loss_gradient, train_step
from concord.lib.progress import Show, shown
from concord.net import network
from concord.nnp.lib.errors import sentences
from concord.sim.machines.accelerator_trainer import AcceleratorTrainer
from concord.sim.machines.accelerators import ACCELERATOR_KINDS, AcceleratorMachine, accelerator_machine
from concord.sim.machines.host import machine
from concord.spec.accelerator.accelerator import Accelerator
from concord.spec.machine.config import preset
from concord.spec.numbers.lazy import Width
from concord.spec.trainer.config import TrainerConfig
from concord.train.bfp import tensor_checkpoint, tensor_fit
from concord.train.bfp import tensor_network as torch_network
from concord.train.bfp.options import UpdateRule
from concord.train.bfp.tensor import ExactTensor
from concord.train.bfp.tensor_checkpoint import Checkpoint
from concord.train.bfp.tensor_network import TensorNetwork
from concord.train.lib import data
from concord.train.lib.export import floats
from concord.train.lib.fit import reproducible, share
from concord.train.runs.lazy import CHECKPOINT, perceptron
from concord.train.runs.lazy_checkpoint import checkpoint_model
from concord.verification.batches import count_bits
from concord.workflows.machine_training import MachineTraining, duration
from rich.console import Console
from rich.table import Table

LAYERS, NAMES = perceptron((784, 128, 64, 10))
BATCH, RATES = 64, Rates(learning_rate=0.03, momentum=0.9)
PORTION = 10  #: Steps between two checkpoints.
#: The neural network processor: the preset `trainer`, with room for the weights of the perceptron.
NNP = replace(preset("trainer"), matrix_tiles=512)
ACCELERATOR = Accelerator(cores=(TrainerConfig(), NNP), memory_bytes=1 << 24)


class GoldenSteps:
    """Steps of training by golden.lazy, with the members of a `TrainingSession` that a training needs."""

    def __init__(self, layers, shape, config, rates, parameters, momenta, batches):
        self._layers, self._rates, self._state, self.counts = layers, rates, (dict(parameters), dict(momenta)), Counts()

    def step(self, x, labels: np.ndarray) -> float:
        """Train on a batch, and return its mean loss."""
        logits, tape = tensor_network.forward(self._layers, self._state[0], x)
        loss, real = loss_gradient(logits.values, labels, len(labels))
        gradients = tensor_network.backward(self._state[0], tape, to_training_tensor(real, Width.GRADIENT))
        train_step(*self._state, gradients, self._rates, self.counts)
        return loss

    def parameters(self):
        """Parameters and momenta by name."""
        return self._state


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """What a way of training has left.

    Attributes:
        path:    The checkpoint.
        steps:   Steps of this run; those before it were kept.
        seconds: Their time.
        loss:    Mean loss of the last 10 steps.
    """

    path: Path
    steps: int
    seconds: float
    loss: float

    @property
    def digest(self) -> str:
        """A hash of the file."""
        return hashlib.sha256(self.path.read_bytes()).hexdigest()[:16]


def batches(x: ExactTensor, labels: np.ndarray, first: int, steps: int, seed: int) -> Iterator[tuple]:
    """Inputs and labels of steps `first` to `steps` - 1: random batches, epoch by epoch."""
    generator, done = torch.Generator().manual_seed(seed), 0
    while done < steps:
        for index in torch.randperm(len(labels), generator=generator).split(BATCH)[: len(labels) // BATCH]:
            if first <= done < steps:
                yield torch_network.batch(x, index), labels[index.numpy()]
            done += 1


def kept(path: Path, begun: Checkpoint, steps: int) -> tuple[TensorNetwork, Checkpoint]:
    """The network of a checkpoint, or a new one where there is none.

    Raises:
        ValueError: the checkpoint is of another training, or of a longer one.
    """
    if not path.is_file():
        return torch_network.network(begun.layers, begun.rule, begun.rates, seed=begun.seed), begun
    net, state = tensor_checkpoint.load(path)
    if replace(state, losses=()) != begun or len(state.losses) * PORTION > steps:
        raise ValueError(
            f"{path}: the checkpoint is of another training, or of more than {steps} steps: name another "
            "--folder, or more --steps"
        )
    return net, state


def learn(
    path: Path,
    begun: Checkpoint,
    x: ExactTensor,
    labels: np.ndarray,
    steps: int,
    show: Show,
    moved: Callable[..., TensorNetwork] | None = None,
) -> Learned:
    """Train in one way up to a number of steps, from the checkpoint if there is one.

    Args:
        path:   The checkpoint, which is written after each portion.
        x:      All training images, under one exponent.
        labels: int64[images].
        moved:  What moves the network to a machine; PyTorch trains it otherwise.
    """
    net, state = kept(path, begun, steps)
    losses, first = list(state.losses), len(state.losses) * PORTION
    if moved:
        net = moved(net, begun.layers, begun.shape, begun.rates, [BATCH], steps - first, show)
    path.parent.mkdir(parents=True, exist_ok=True)
    began, recent = time.perf_counter(), []
    for number, some in enumerate(batches(x, labels, first, steps, begun.seed), first + 1):
        recent.append(net.step(*some))
        if number % PORTION == 0:
            losses.append(float(f"{np.mean(recent):.6g}"))
            tensor_checkpoint.save(net, replace(begun, losses=tuple(losses)), path)
            recent.clear()
            show("checkpoints", len(losses), steps // PORTION, "")
    seconds = time.perf_counter() - began
    return Learned(path=path, steps=steps - first, seconds=seconds, loss=losses[-1])


def answer(
    path: Path, accelerator: AcceleratorMachine, base: int, test: Samples, answers: int, console: Console
) -> bool:
    """Classify images by a checkpoint in golden arithmetic and on the core behind the one that trains.

    Args:
        base: First free byte of the accelerator's memory.

    Returns:
        Whether outputs are golden's.
    """
    net, _ = tensor_checkpoint.load(path)
    model = checkpoint_model(path)
    outputs = network.outputs(model, test.inputs)
    exact = tensor_fit.accuracy(net, torch_network.inputs(floats(test.inputs).numpy()), test.labels)
    console.print(
        f"Accuracy on {len(test)} test images: {exact:.2%} in the arithmetic of training, "
        f"{share(network.classes(outputs), test.labels):.2%} on the neural network processor (golden)"
    )
    firmware, samples = compile_network(model, NNP).firmware, list(test.inputs[:answers])
    began = time.perf_counter()
    session = AcceleratorSession(accelerator, firmware, cores=(1,), base=base)
    found = session.infer_all(samples)
    seconds = time.perf_counter() - began
    golden = Session(machine("golden", NNP), firmware).infer_all(samples)
    wrong = count_bits(found, golden) + count_bits(found, outputs[:answers])
    cycles = f", {session.cycles / answers:,.0f} cycles each" if session.cycles else ""
    console.print(
        f"Images on the core beside the trainer: {answers}, {wrong} differing bits, "
        f"{share(network.classes(found), test.labels[:answers]):.2%} right{cycles}, {seconds:.1f} s"
    )
    return not wrong


def report(ways: dict[str, Learned], console: Console) -> bool:
    """Print what each way has left; whether all checkpoints are the same bytes."""
    table = Table("way", "steps of this run", "seconds", "loss", "checkpoint")
    for name, one in ways.items():
        table.add_row(name, str(one.steps), f"{one.seconds:.1f}", f"{one.loss:.4f}", one.digest)
    console.print(table)
    same = len({one.path.read_bytes() for one in ways.values()}) == 1
    console.print(f"Checkpoints are {'the same bytes' if same else 'NOT the same bytes'}.")
    return same


@sentences
def main(
    steps: Annotated[int, typer.Option(help=f"Number of steps, a multiple of {PORTION}.", min=PORTION)] = 150,
    kind: Annotated[
        str, typer.Option("--machine", help=f"The accelerator: {' or '.join(ACCELERATOR_KINDS)}.")
    ] = "golden",
    images: Annotated[int, typer.Option(help="Test images whose accuracy is measured.", min=1)] = 2000,
    answers: Annotated[int, typer.Option(help="Test images that the accelerator classifies.", min=1)] = 50,
    folder: Annotated[Path, typer.Option(help="Folder of the checkpoints.")] = Path("build/train_on_machine"),
) -> None:
    """Train, compare and classify; the exit code is 1 if checkpoints or outputs differ."""
    console = Console(width=None if sys.stdout.isatty() else 120)
    if steps % PORTION:
        raise ValueError(f"--steps {steps}: give a multiple of {PORTION}, after which checkpoints are kept")
    reproducible(0)
    sets = data.image_sets()
    x, labels = torch_network.inputs(floats(sets.train.inputs).numpy()), sets.train.labels.astype(np.int64)
    begun = Checkpoint(
        layers=LAYERS, rule=UpdateRule.LAZY, rates=RATES, seed=0, shape=(784,), names=NAMES, data=sets.name
    )
    began = time.perf_counter()
    console.print(f"{kind}: making the accelerator, which takes minutes where it has not been built before ...")
    accelerator, trainers = accelerator_machine(kind, ACCELERATOR), []

    def on_core(config: TrainerConfig, server: np.ndarray) -> AcceleratorTrainer:
        trainers.append(AcceleratorTrainer(accelerator, server))
        return trainers[-1]

    ways, found = (
        {
            f"accelerator ({kind})": MachineTraining(session=partial(TrainingSession, machine=on_core)),
            "golden.lazy": MachineTraining(session=GoldenSteps),
            "PyTorch": None,
        },
        {},
    )
    for name, moved in ways.items():
        console.print(f"{name}: {steps} steps of {BATCH} images ...")
        with shown(console) as show:
            path = folder / (kind if not found else name) / CHECKPOINT
            found[name] = learn(path, begun, x, labels, steps, show, moved)
    same = report(found, console)
    good = answer(
        next(iter(found.values())).path,
        accelerator,
        trainers[-1].end,
        sets.test.first(images),
        min(answers, images),
        console,
    )
    accelerator.close()
    console.print(f"Done in {duration(time.perf_counter() - began)}.")
    raise typer.Exit(not (same and good))


if __name__ == "__main__":
    typer.run(main)
