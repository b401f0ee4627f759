"""Networks in block floating point whose training steps run on a trainer instead of PyTorch, with the same bits."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from concord.compiler.training.session import TrainingSession
from concord.golden.lazy.lazy_update import Counts
from concord.golden.lazy.tensor_layers import whole
from concord.golden.lazy.tensor_network import Layer
from concord.golden.lazy.tensor_training import Rates
from concord.spec.numbers.lazy import Width
from concord.spec.trainer.config import TrainerConfig
from concord.train.bfp import lazy_update
from concord.train.bfp.tensor import ExactTensor, exact
from concord.train.bfp.tensor_network import TensorNetwork
from concord.train.lib.observer import Progress

SECONDS = 15  #: Time between two lines about the progress of an epoch.
PHASE = "steps on the trainer"


class MachineNetwork(TensorNetwork):
    """A network whose steps run on a machine, and whose parameters come from there when somebody asks for them.

    Args:
        net:      The network as it begins.
        session:  The session, with the same parameters.
        steps:    Number of steps that come at most, for the progress.
        progress: Shows the steps.
    """

    def __init__(self, net: TensorNetwork, session: TrainingSession, steps: int, progress: Progress):
        self.group, self.device, self._net, self._session = net.group, net.device, net, session
        self._before, self._moved = replace(net.counts), False
        self._steps, self._done, self._progress = steps, 0, progress
        self._began = self._shown = time.monotonic()

    def step(self, x: ExactTensor, labels: np.ndarray) -> float:
        """Train on a batch, and return its mean loss."""
        loss, self._moved = self._session.step(x.golden(), labels), True
        self._done, now = self._done + 1, time.monotonic()
        if now - self._shown > SECONDS:
            self._shown, left = now, (now - self._began) / self._done * (self._steps - self._done)
            self._progress(PHASE, self._done, self._steps, f"loss {loss:.3f}, about {duration(left)} left at most")
        return loss

    def pace(self, rate: float):
        self._session.pace(rate)

    @property
    def counts(self) -> Counts:
        """Counts of events of all parameters together."""
        before, now = self._before, self._session.counts
        return Counts(
            before.steps + now.steps,
            before.changes + now.changes,
            before.rounded + now.rounded,
            before.saturations + now.saturations,
        )

    @property
    def parameters(self) -> dict:
        """Parameters by name, as the machine has them now."""
        if self._moved:
            parameters, momenta = self._session.parameters()
            for name, kept in self._net.parameters.items():
                kept.kept = lazy_update.from_golden(parameters[name], self.device)
                kept.momentum = exact(momenta[name], kept.kept.mantissas)
            self._moved = False
        return self._net.parameters

    def forward(self, x: ExactTensor) -> ExactTensor:
        """32-bit linear values of the last layer."""
        return exact(self._session.forward(x.golden()), x.values)


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineTraining:
    """Moves networks to a machine: what `train.runs.lazy.train_lazy` takes as `machine`.

    Attributes:
        session: What makes a session of layers, shape of a sample, core, rates, parameters, momenta and batches.
        config:  A core.
    """

    session: Callable[..., TrainingSession] = TrainingSession
    config: TrainerConfig = TrainerConfig()

    def __call__(
        self,
        net: TensorNetwork,
        layers: Sequence[Layer],
        shape: Sequence[int],
        rates: Rates,
        batches: Sequence[int],
        steps: int,
        progress: Progress,
    ) -> MachineNetwork:
        """The network on the machine; a step on a machine of its own first tells how long all will take.

        Args:
            net:      The network, with parameters under the rule `lazy`.
            layers:   Its layers.
            shape:    Shape of one sample.
            rates:    Learning rate and momentum.
            batches:  Sizes of batches that come.
            steps:    Number of steps that come at most.
            progress: Shows the steps.

        Raises:
            ValueError: what `TrainingSession` refuses.
        """
        parameters = {name: kept.golden() for name, kept in net.parameters.items()}
        momenta = {name: kept.momentum.golden() for name, kept in net.parameters.items() if kept.momentum is not None}
        made = (layers, shape, self.config, rates, parameters, momenta)
        seconds = step_seconds(self.session(*made, batches[:1]), (batches[0], *shape))
        progress(PHASE, 0, steps, f"of about {seconds:.2g} s each: {duration(steps * seconds)} at most")
        return MachineNetwork(net, self.session(*made, batches), steps, progress)


def step_seconds(session: TrainingSession, shape: tuple[int, ...]) -> float:
    """Seconds of a step of random samples, of a shape with the batch."""
    mantissas = np.random.default_rng(0).integers(-128, 128, shape)
    began = time.monotonic()
    session.step(whole(mantissas, 0, Width.ACTIVATION), np.zeros(shape[0], np.int64))
    return time.monotonic() - began


def duration(seconds: float) -> str:
    """A time in words."""
    for name, unit in (("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * unit:
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds:.0f} seconds"
