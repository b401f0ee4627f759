"""The options of training by lazy update, from which the command line and TOML files are made; it needs no PyTorch.

Source: S2.
"""

from dataclasses import dataclass, fields
from enum import StrEnum

from concord.lib import tensor_file
from concord.lib.user_options import UserOptions
from concord.net.quantize.choices import BlockFormats
from concord.spec.accelerator.accelerator import MASKED
from concord.spec.machine.machine_file import find_config


class UpdateRule(StrEnum):
    """What training keeps of a parameter, and so what an update does to it."""

    FP32 = "fp32"  #: FP32 parameters, and training in FP32
    MASTER = "master"  #: an FP32 master copy of 8-bit mantissas
    LAZY = "lazy"  #: 8-bit mantissas and 16-bit residuals: the lazy update
    NONE = "none"  #: 8-bit mantissas, into which updates are rounded
    STOCHASTIC = "stochastic"  #: 8-bit mantissas, into which updates are rounded up or down by chance
    FROZEN = "frozen"  #: the lazy update under the exponent of the start
    RESIDUAL8 = "residual8"  #: the lazy update with 8-bit residuals


class TrainedOn(StrEnum):
    """What computes the steps of training; all of them leave the same bits."""

    PYTORCH = "pytorch"
    GOLDEN = "golden"  #: golden's trainer, in numpy
    LIBRARY = "library"  #: the Verilated trainer


@dataclass(frozen=True, kw_only=True, slots=True)
class LazyOptions(UserOptions):
    """How a network is trained in block floating point from the start, as a user says it.

    Attributes:
        rate:      Learning rate at the beginning, which falls along a half cosine from epoch to epoch.
        momentum:  Momentum, 0 for plain SGD.
        patience:  Epochs in a row without a new smallest loss after which training ends; 0 for all epochs.
        rule:      What training keeps of a parameter.
        processes: Number of processes that share each batch.
        machine:   What computes the steps.
        compare:   "golden": the machine's memory must be golden's after each program; empty for no comparison.
        cores:     Number of trainers that share each batch.
    """

    rate: float = 0.03
    momentum: float = 0.9
    patience: int = 0
    rule: UpdateRule = UpdateRule.LAZY
    processes: int = 1
    machine: TrainedOn = TrainedOn.PYTORCH
    compare: str = ""
    cores: int = 1

    def check(self, *, lazy: bool):
        """Refuse what no training can do.

        Args:
            lazy: Whether the network is trained by lazy update.

        Raises:
            ValueError: a value is out of its range, or an option is for another arithmetic.
        """
        given = [item.name for item in fields(self) if getattr(self, item.name) != item.default]
        if given and not lazy:
            raise ValueError(f"--{given[0]} is for --arithmetic bfp-lazy: leave it out")
        if not 0 < self.rate < 100:
            raise ValueError(f"--rate {self.rate:g}: a learning rate is above 0, such as 0.03")
        if not 0 <= self.momentum < 1:
            raise ValueError(f"--momentum {self.momentum:g}: 0 for none, or a number below 1, such as 0.9")
        if self.patience < 0:
            raise ValueError(f"--patience {self.patience}: 0 for all epochs, or a number of epochs")
        if self.processes < 1:
            raise ValueError(f"--processes {self.processes}: one process at least")
        if self.rule is UpdateRule.FP32:
            raise ValueError("--rule fp32 leaves no mantissas for a model: choose another rule; the FP32 network is "
                             "trained beside each of them, to compare")
        self._check_machine()

    def _check_machine(self):
        """Refuse what a trainer does not do."""
        name = self.machine
        if self.compare not in ("", TrainedOn.GOLDEN):
            raise ValueError(f"--compare {self.compare}: golden is what a machine is compared with")
        if self.compare and name is not TrainedOn.LIBRARY:
            raise ValueError("--compare golden is for --machine library: leave it out, or choose that machine")
        if not 1 <= self.cores <= MASKED:
            raise ValueError(f"--cores {self.cores}: a batch is shared by 1 to {MASKED} trainers")
        if name is TrainedOn.PYTORCH:
            if self.cores > 1:
                raise ValueError(f"--cores {self.cores} is for --machine golden or library: choose one of them")
            return
        if self.rule is not UpdateRule.LAZY:
            raise ValueError(f"--rule {self.rule}: a trainer has the lazy update only; leave --machine {name} out")
        if not self.momentum:
            raise ValueError(f"--momentum 0: a trainer keeps momenta; give one above 0, or leave --machine {name} out")
        if self.processes > 1:
            raise ValueError(f"--processes {self.processes}: one process drives a trainer; leave --machine {name} out")


def formats_of(preset: str = "") -> BlockFormats:
    """The formats of a machine that runs what training by lazy update leaves; by default those of `trainer`.

    Raises:
        ValueError: there is no such machine, or it cannot run that.
    """
    machine = find_config(preset or "trainer")
    if (machine.weights.bits, machine.weights.symmetric) != (8, False):
        raise ValueError(f"--preset {preset}: lazy training leaves mantissas of 8 bits in the full range, which this "
                         "machine does not take; trainer does, and vision_bfp8 for image networks")
    return BlockFormats(weights=machine.weights, inputs=machine.activations, block=machine.native_dim)


#: Files of checkpoints, see `train.bfp.tensor_checkpoint`. Their version rises with the arithmetic, too: training goes
#: on from a checkpoint to the bit.
CHECKPOINT = tensor_file.TensorFileKind(
    key="concord training checkpoint", version=4, name="checkpoint", remedy="copy it again, or train again",
    command="`nnp train --arithmetic bfp-lazy --checkpoint`")
#: The options where nobody gave any.
BY_LAZY_UPDATE = LazyOptions()
