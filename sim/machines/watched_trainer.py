"""A trainer with a port that tells which of its engines work, for measurements."""

from amaranth import Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import Out
from concord.hw.trainer.hazards import ENGINES
from concord.hw.trainer.trainer_core import TrainerCore
from concord.spec.trainer.config import TrainerConfig

#: Bits of the port `busy`: whether the tensor engine takes a vector, and whether each engine has a job.
WATCHED = ("vectors", *ENGINES)
_JOBS = 5  #: Bits of the number of jobs that an engine has taken and not ended.


class WatchedTrainer(TrainerCore):
    """A `TrainerCore` with one more port.

    Args:
        config: Sizes.

    Members:
        busy: Out. Bits in the order of WATCHED.
    """

    def __init__(self, config: TrainerConfig):
        super().__init__(config)
        self.busy = Signal(len(WATCHED))

    @property
    def signature(self) -> wiring.Signature:
        """All ports."""
        return wiring.Signature({**super().signature.members, "busy": Out(len(WATCHED))})

    def elaborate(self, platform):
        m = super().elaborate(platform)
        vector = self.engines["tensor"].vector_read
        m.d.comb += self.busy[0].eq(vector.valid & vector.ready)
        for k, name in enumerate(ENGINES, 1):
            engine, jobs = self.engines[name], Signal(_JOBS, name=f"{name}_jobs")
            taken = engine.job.valid & engine.job.ready
            m.d.sync += jobs.eq(jobs + taken - engine.ended.valid)
            with m.If(self.registers.reset):
                m.d.sync += jobs.eq(0)
            m.d.comb += self.busy[k].eq(jobs.any())
        return m
