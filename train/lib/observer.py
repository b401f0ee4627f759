"""What follows training as it goes on: progress, a log of its epochs, checkpoints."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import nn

#: Called as progress(phase, step, steps, note): phase in words, steps done and in all, a note such as the loss.
Progress = Callable[[str, int, int, str], None]


def silent(phase: str, step: int, steps: int, note: str):
    """Report nothing."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EpochRecord:
    """One epoch.

    Attributes:
        phase:    In words.
        epoch:    From 1 in each phase.
        step:     Batches done in this phase.
        rate:     Learning rate of the last of them, of the first group of parameters.
        loss:     Mean over the samples.
        accuracy: Share of the test set, where it was measured.
    """

    phase: str
    epoch: int
    step: int
    rate: float
    loss: float
    accuracy: float | None = None


class Stateful(Protocol):
    """What changes from epoch to epoch beside a network, in values that JSON has."""

    def state_dict(self) -> dict:
        """All that is needed to go on."""

    def load_state_dict(self, state: dict):
        """Go on from there."""


@dataclass(frozen=True, kw_only=True, slots=True)
class State:
    """Everything that a phase of training changes.

    Attributes:
        net:        What is trained.
        optimiser:  With its momentum.
        schedule:   Of its learning rates.
        generators: Random numbers, by name; PyTorch's own are kept too.
        also:       What else changes, by name.
    """

    net: nn.Module
    optimiser: torch.optim.Optimizer
    schedule: torch.optim.lr_scheduler.LRScheduler
    generators: Mapping[str, torch.Generator]
    also: Mapping[str, Stateful]


class Log(Protocol):
    """Where epochs are written to."""

    def write(self, record: EpochRecord):
        """Add an epoch."""

    def close(self):
        """Write what is not written yet."""


class CheckpointStore(Protocol):
    """Where a phase is kept, so that it can be gone on with."""

    def load(self, phase: str, state: State) -> list[EpochRecord]:
        """Bring `state` to what is kept; the epochs behind it, none where nothing is kept."""

    def save(self, records: list[EpochRecord], state: State):
        """Keep `state` as it is after these epochs of a phase."""


class Observer:
    """Progress that logs and keeps training, too. It may stand wherever a `Progress` may.

    Args:
        progress: Shows steps.
        log:      Or None.
        checkpoints:   Or None.
    """

    def __init__(self, progress: Progress = silent, log: Log | None = None, checkpoints: CheckpointStore | None = None):
        self.progress, self.log, self.checkpoints = progress, log, checkpoints
        self.records: list[EpochRecord] = []

    @classmethod
    def of(cls, progress: Progress) -> "Observer":
        """`progress` itself where it is one, else one that does no more."""
        return progress if isinstance(progress, Observer) else cls(progress)

    def __call__(self, phase: str, step: int, steps: int, note: str):
        self.progress(phase, step, steps, note)

    @property
    def measures(self) -> bool:
        """Whether anyone wants to know accuracies."""
        return self.log is not None

    def begin(self, phase: str, state: State) -> list[EpochRecord]:
        """The epochs of a phase that are done, to which `state` is brought."""
        self.records = self.checkpoints.load(phase, state) if self.checkpoints else []
        for record in self.records:
            self.write(record)
        return list(self.records)

    def end(self, record: EpochRecord, state: State):
        """An epoch is done."""
        self.records.append(record)
        self.write(record)
        if self.checkpoints:
            self.checkpoints.save(self.records, state)

    def write(self, record: EpochRecord):
        """Log an epoch."""
        if self.log:
            self.log.write(record)
