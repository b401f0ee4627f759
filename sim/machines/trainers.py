"""The kinds of trainers that there are."""

import numpy as np
from concord.golden.trainer.cores import golden_machine
from concord.lib.extras import require
from concord.spec.trainer.config import TrainerConfig

TRAINER_KINDS = ("golden", "library")


def trainer_machine(kind: str, config: TrainerConfig, server: np.ndarray, cores: int = 1, **options):
    """Make a trainer of a kind, or several of them.

    Args:
        kind:    "golden" or "library" (Verilated).
        config:  Sizes.
        server:  Server memory, uint8[words, 16].
        cores:   Number of cores, which only golden has several of.
        options: Options of the library, which golden ignores.

    Raises:
        ValueError: there is no such kind, or it has one core, or the packages of its extra are not installed.
    """
    if kind not in TRAINER_KINDS:
        raise ValueError(f"there is no trainer {kind!r}: choose one of {', '.join(TRAINER_KINDS)}")
    if kind == "golden":
        return golden_machine(config, server, cores)
    if cores > 1:
        raise ValueError(f"cores = {cores}: the trainer {kind!r} has one core; several run on 'golden'")
    require("sim")
    from concord.sim.machines.trainer_library import TrainerLibrary

    return TrainerLibrary(config, server, **options)
