"""A trainer with a port that tells which of its engines work, for measurements."""

import numpy as np
from amaranth import Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import Out
from concord.hw.trainer.hazards import ENGINES
from concord.hw.trainer.trainer_core import TrainerCore
from concord.sim.machines.trainer_library import TrainerLibrary
from concord.spec.trainer.config import TrainerConfig

#: Bits of the port `busy`: whether the tensor engine takes a vector, and whether each engine has a job.
WATCHED = ("multiplies", *ENGINES)
_JOBS = 5  #: Bits of the number of jobs that an engine has taken and not ended.


class WatchedTrainer(TrainerCore):
    """A `TrainerCore` with one more port.

    Args:
        config: Sizes.

    Members:
        busy: Out. Bits in the order of WATCHED.
    """

    def __init__(self, config: TrainerConfig):
        self.config = config
        ports = {**TrainerCore(config).signature.members, "busy": Out(len(WATCHED))}
        wiring.Component.__init__(self, ports)

    def elaborate(self, platform):
        m = super().elaborate(platform)
        vector = self.engines["tensor"].vector_read
        m.d.comb += self.busy[0].eq(vector.valid & vector.ready)
        for k, name in enumerate(ENGINES, 1):
            engine, jobs = self.engines[name], Signal(_JOBS, name=f"{name}_jobs")
            m.d.sync += jobs.eq(jobs + (engine.job.valid & engine.job.ready) - engine.ended.valid)
            m.d.comb += self.busy[k].eq(jobs.any())
        return m


class WatchedLibrary(TrainerLibrary):
    """A `TrainerLibrary` that counts cycles of engines; options are its own."""

    def __init__(self, config: TrainerConfig, server: np.ndarray, **options):
        super().__init__(config, server, dut=WatchedTrainer(config), **options)

    def engines(self) -> dict[str, tuple[int, int | None]]:
        """For each engine, cycles in which it has a job, and cycles in which it multiplies a vector, if it does."""
        multiplies, *jobs = (self.busy(number) for number in range(len(WATCHED)))
        return {
            name: (count, multiplies if name == "tensor" else None) for name, count in zip(ENGINES, jobs, strict=True)
        }
