"""Observation of training: progress, a log of epochs, and checkpoints; logs of epochs as CSV or TensorBoard events."""

import csv
import importlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import torch
from concord.lib.progress import Show, silent
from torch import nn

#: Function that shows steps.
Progress = Show


@dataclass(frozen=True, kw_only=True, slots=True)
class EpochRecord:
    """Figures of one epoch.

    Attributes:
        phase:    Name of the phase, in words.
        epoch:    Number of the epoch, from 1 in each phase; 0 for what a phase starts with.
        step:     Number of batches done in this phase.
        rate:     Learning rate of the last batch, of the first group of parameters.
        loss:     Mean loss of the training samples; None before the first epoch.
        accuracy: Share of the test set that is classified correctly, or of another task its first measure, see
            `datasets.measures`; None where it was not measured.
        figures:  Figures of each product that the overflow predictor follows, by its name: "events", overflows on the
            calibration set before its ranges were changed; "excess", the most bits that its storage lacked; "left",
            overflows after the change; "bits", which an accumulator needs then; "weights" and "inputs", the largest
            factors of the ranges since training began.
    """

    phase: str
    epoch: int
    step: int
    rate: float
    loss: float | None
    accuracy: float | None = None
    figures: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


class Stateful(Protocol):
    """State that changes from epoch to epoch beside a network, in values that JSON has."""

    def state_dict(self) -> dict:
        """The values from which training can go on."""

    def load_state_dict(self, state: dict):
        """Take over the values of `state_dict`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingState:
    """Everything that a phase of training changes.

    Attributes:
        net:        Network under training.
        optimiser:  Optimiser, with its momentum.
        schedule:   Schedule of the learning rates.
        generators: Generators of random numbers, by name. PyTorch's own generator is always kept.
        also:       Everything else that changes, by name.
    """

    net: nn.Module
    optimiser: torch.optim.Optimizer
    schedule: torch.optim.lr_scheduler.LRScheduler
    generators: Mapping[str, torch.Generator]
    also: Mapping[str, Stateful]


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingStep:
    """A step that is about to begin.

    Attributes:
        epochs: Number of epochs of the phase.
        steps:  Number of steps of an epoch.
    """

    epochs: int
    steps: int


class Log(Protocol):
    """A log, to which epochs are written."""

    def write(self, record: EpochRecord):
        """Write the figures of an epoch."""

    def close(self):
        """Write everything that is still buffered, and close the log."""


class CheckpointStore(Protocol):
    """Where the state of each phase is kept, so that training can go on from it."""

    def load(self, phase: str, state: TrainingState) -> list[EpochRecord]:
        """Restore the state of a phase, and return the epochs after it; an empty list if nothing is kept."""

    def save(self, records: list[EpochRecord], state: TrainingState):
        """Keep the state that a phase has after these epochs."""


class Observer:
    """A `Progress` that writes a log and checkpoints, too.

    Args:
        progress:    Function that shows steps.
        log:         Log of epochs, or None.
        checkpoints: Where phases are kept, or None.

    Attributes:
        stopped: Whether training ends before its last epoch: no step begins any more.
    """

    stopped = False

    def __init__(self, progress: Progress = silent, log: Log | None = None, checkpoints: CheckpointStore | None = None):
        self.progress, self.log, self.checkpoints = progress, log, checkpoints
        self.records: list[EpochRecord] = []

    @classmethod
    def of(cls, progress: Progress) -> "Observer":
        """`progress` itself if it is an observer, else an observer without log and checkpoints."""
        return progress if isinstance(progress, Observer) else cls(progress)

    def __call__(self, phase: str, step: int, steps: int, note: str):
        self.progress(phase, step, steps, note)

    @property
    def measures(self) -> bool:
        """Whether accuracies are to be measured, since a log shows them."""
        return self.log is not None

    def begin(self, phase: str, state: TrainingState) -> list[EpochRecord]:
        """Restore the state of a phase from its checkpoint, and return the epochs that are done."""
        self.records = self.checkpoints.load(phase, state) if self.checkpoints else []
        for record in self.records:
            self.write(record)
        return list(self.records)

    @property
    def steering(self) -> str:
        """What a user has changed during training, as the end of a sentence about it; empty if nothing was."""
        return ""

    def attend(self, network: nn.Module, inputs: torch.Tensor, lengths: torch.Tensor | None, predictor: object):
        """Take note of the network under training, its calibration set, and its overflow predictor or None."""

    def ready(self, step: TrainingStep, state: TrainingState):
        """Called before each step, which it may change or hold back."""

    def finished(self, loss: float, rate: float):
        """Called after each step, with the mean loss of its batch and its learning rate."""

    def end(self, record: EpochRecord, state: TrainingState):
        """Write the figures of an epoch that has ended, and keep the state."""
        self.records.append(record)
        self.write(record)
        if self.checkpoints:
            self.checkpoints.save(self.records, state)

    def write(self, record: EpochRecord):
        """Log an epoch."""
        if self.log:
            self.log.write(record)


#: Columns of the figures of products.
FIGURES = ("events", "excess", "left", "bits", "weights", "inputs")
COLUMNS = ("phase", "epoch", "step", "learning rate", "loss", "accuracy")


def opened(path: Path) -> Log:
    """The log at a path: a CSV file if the name ends with .csv, else a folder of TensorBoard events.

    Raises:
        ValueError: the folder needs a package that is not there.
    """
    return CsvLog(path) if Path(path).suffix == ".csv" else TensorBoardLog(path)


class CsvLog:
    """A CSV file, into which each line is written as soon as its epoch is done.

    Figures of products go to a file beside it, `epochs-products.csv` for `epochs.csv`, with a line for each.

    Args:
        path: The file. If it exists, the first epoch replaces it.
    """

    def __init__(self, path: Path):
        self.path, self.begun = Path(path), set()
        self.products = self.path.with_name(f"{self.path.stem}-products.csv")

    def write(self, record: EpochRecord):
        self._append(self.path, COLUMNS, [
            (record.phase, record.epoch, record.step, record.rate, record.loss, record.accuracy)])
        if record.figures:
            self._append(self.products, ("phase", "epoch", "step", "product", *FIGURES), [
                (record.phase, record.epoch, record.step, name, *(found[key] for key in FIGURES))
                for name, found in record.figures.items()])

    def close(self):
        """Every line is written already."""

    def _append(self, path: Path, columns: tuple, lines: list[tuple]):
        path.parent.mkdir(parents=True, exist_ok=True)
        first = [] if path in self.begun else [columns]
        with path.open("w" if first else "a", newline="") as file:
            csv.writer(file).writerows([*first, *lines])
        self.begun.add(path)


class TensorBoardLog:
    """TensorBoard events in a folder: a scalar for each figure of an epoch, such as `qat/loss`, at its step.

    Args:
        folder: The folder. Events that it holds already stay.
    """

    def __init__(self, folder: Path):
        self.folder, self.writer = folder, None
        try:
            self.module = importlib.import_module("tensorboardX")
        except ModuleNotFoundError as error:
            raise ValueError(f"{folder}: TensorBoard events need tensorboardX: pip install tensorboardX "
                             "(dependency group logs), or name a file that ends with .csv") from error

    def write(self, record: EpochRecord):
        if not self.writer:
            self.writer = self.module.SummaryWriter(str(self.folder), flush_secs=5)
        phase = re.sub(r"\W+", "-", record.phase.lower())
        values = {"learning rate": record.rate, "loss": record.loss, "accuracy": record.accuracy}
        values |= {f"{name}/{key}": found[key] for name, found in record.figures.items() for key in FIGURES}
        for name, value in values.items():
            if value is not None:
                self.writer.add_scalar(f"{phase}/{re.sub(r'[ ,]+', '-', name)}", value, record.step)

    def close(self):
        if self.writer:
            self.writer.close()
