"""The kinds of trainers that there are."""

import numpy as np
from concord.golden.trainer.trainer import Trainer
from concord.lib.extras import require
from concord.spec.trainer.config import TrainerConfig

TRAINER_KINDS = ("golden", "library")


def trainer_machine(kind: str, config: TrainerConfig, server: np.ndarray, **options):
    """Make a trainer of a kind.

    Args:
        kind:    "golden" or "library" (Verilated).
        config:  Sizes.
        server:  Server memory, uint8[words, 16].
        options: Options of the library, which golden ignores.

    Raises:
        ValueError: there is no such kind, or the packages of its extra are not installed.
    """
    if kind not in TRAINER_KINDS:
        raise ValueError(f"there is no trainer {kind!r}: choose one of {', '.join(TRAINER_KINDS)}")
    if kind == "golden":
        return Trainer(config, server)
    require("sim")
    from concord.sim.machines.trainer_library import TrainerLibrary

    return TrainerLibrary(config, server, **options)
