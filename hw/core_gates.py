"""Gates of a core that a command processor drives."""

from amaranth.lib.wiring import Component
from concord.hw.nnp import NNP
from concord.hw.trainer.trainer_core import TrainerCore
from concord.spec.accelerator.accelerator import Core
from concord.spec.trainer.config import TrainerConfig


def gates(core: Core) -> Component:
    """The machine, which can be watched while it runs, or the trainer, which waits for others."""
    return TrainerCore(core, together=True) if isinstance(core, TrainerConfig) else NNP(core, watched=True)
