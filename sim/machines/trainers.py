"""The kinds of trainers that there are."""

import numpy as np
from concord.golden.trainer.cores import golden_machine
from concord.lib.extras import require
from concord.sim.machines.accelerator_trainer import AcceleratorTrainer
from concord.sim.machines.accelerators import accelerator_machine
from concord.spec.accelerator.accelerator import Accelerator
from concord.spec.trainer.config import TrainerConfig

TRAINER_KINDS = ("golden", "library")
MEMORY_BYTES = 1 << 30  #: Memory of several Verilated cores; one size, so that one build serves all networks.


def trainer_machine(kind: str, config: TrainerConfig, server: np.ndarray, cores: int = 1, **options):
    """Make a trainer of a kind, or several of them.

    Args:
        kind:    "golden" or "library" (Verilated).
        config:  Sizes.
        server:  Server memory, uint8[words, 16].
        cores:   Number of cores; several of the library share server memory under a command processor.
        options: Options of the library, which golden ignores.

    Raises:
        ValueError: there is no such kind, or the packages of its extra are not installed.
    """
    if kind not in TRAINER_KINDS:
        raise ValueError(f"there is no trainer {kind!r}: choose one of {', '.join(TRAINER_KINDS)}")
    if kind == "golden":
        return golden_machine(config, server, cores)
    require("sim")
    if cores > 1:
        accelerator = Accelerator(cores=(config,) * cores, memory_bytes=MEMORY_BYTES)
        return AcceleratorTrainer(accelerator_machine(kind, accelerator, **options), server, range(cores))
    from concord.sim.machines.trainer_library import TrainerLibrary

    return TrainerLibrary(config, server, **options)
