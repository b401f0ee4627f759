"""Training that changes of a file steer: each takes effect after the same step as when a user made it."""

from collections.abc import Sequence

import torch
from concord.train.lib.observer import (
    CheckpointStore,
    EpochRecord,
    Log,
    Observer,
    Progress,
    TrainingState,
    TrainingStep,
)
from concord.train.live.changes import SteeringChange, words_of
from concord.train.live.steering import apply, set_overflow
from concord.train.network.quantized_network import QuantizedNetwork
from concord.train.overflow.predictor import Predictor


class SteeredObserver(Observer):
    """An observer that repeats changes.

    Args:
        progress:    Function that shows steps.
        log:         Log of epochs, or None.
        checkpoints: Where phases are kept, or None.
        changes:     Changes in the order of their steps.

    Attributes:
        step: Number of steps that are finished, of all phases together.
    """

    def __init__(
        self,
        progress: Progress,
        log: Log | None = None,
        checkpoints: CheckpointStore | None = None,
        changes: Sequence[SteeringChange] = (),
    ):
        super().__init__(progress, log, checkpoints)
        self.changes, self.predictor, self.step, self._next = list(changes), None, 0, 0
        self._state, self._stepping = None, False

    def attend(
        self, network: QuantizedNetwork, inputs: torch.Tensor, lengths: torch.Tensor | None, predictor: Predictor | None
    ):
        """Take note of the network under training, its calibration set, and its predictor."""
        self.predictor = predictor
        if predictor:
            predictor.stuck = self.stuck

    def begin(self, phase: str, state: TrainingState) -> list[EpochRecord]:
        """As `Observer.begin`; settings that had been changed before the checkpoint are set again."""
        done = super().begin(phase, state)
        if done:
            self.step += done[-1].step
            while self._next < len(self.changes) and self.changes[self._next].step < self.step:
                set_overflow(self.changes[self._next], self.predictor)
                self._next += 1
        return done

    def ready(self, step: TrainingStep, state: TrainingState):
        """Let the changes take effect that come before a step.

        Raises:
            ValueError: a change cannot take effect.
        """
        self._state = state
        while self._repeat():
            pass
        self.listen(step, state)
        self._stepping = True

    def listen(self, step: TrainingStep, state: TrainingState):
        """Called before each step, after the changes that are repeated."""

    def stuck(self, error: ValueError):
        """Let the next change take effect, where ranges could not follow and a change let them.

        Raises:
            ValueError: there is no such change, or it stops the training, whose sums overflow.
        """
        if not self._repeat():
            self.await_change(error)
        if self.stopped:
            raise error

    def await_change(self, error: ValueError):
        """Called where ranges could not follow and none of the changes that are repeated lets them.

        Raises:
            ValueError: nobody makes another change.
        """
        raise error

    def finished(self, loss: float, rate: float):
        """Note that a step is finished."""
        self.step, self._stepping = self.step + 1, False

    @property
    def trained(self) -> int:
        """Number of steps that have changed the network: one more than `step` until the ranges have followed."""
        return self.step + self._stepping

    @property
    def steering(self) -> str:
        """The changes that took effect, as the end of a sentence."""
        return words_of(self.changes[: self._next])

    def _repeat(self) -> bool:
        """Let the next change take effect if it is one of now, and say whether it was.

        Raises:
            ValueError: it cannot take effect.
        """
        if self._next == len(self.changes) or self.changes[self._next].step > self.trained:
            return False
        change = self.changes[self._next]
        try:
            self._applied(change, self._state)
        except ValueError as error:
            raise ValueError(f"the change {change}: {error}") from error
        self._next += 1
        return True

    def _applied(self, change: SteeringChange, state: TrainingState):
        apply(change, self.predictor, state)
        self.stopped |= change.what == "stop"
