"""The error of the earliest command that has one."""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.accelerator.orders import Ending
from concord.spec.accelerator.commands import PROCESSOR, CommandError

#: What the registers tell of an error.
Failure = data.StructLayout({**Ending.members, "origin": 8})


class FirstError(wiring.Component):
    """Keeps, of the errors of all commands, that of the command with the smallest index.

    Commands of several cores end in any order. As those before a command with an error are all executed, the error that
    is kept in the end is the same whatever time each command takes.

    Args:
        cores: Number of cores.

    Members:
        ended: In(array of {valid, p: Ending}), cores + 1. Commands that end, with or without an error, at the cores and
            at the command processor. A source with an error ends no other command while it is `pending`.
        pending: Out, one bit for each source. Its error will be seen.
        failed: Out(1). There is an error.
        failure: Out(Failure). The error; of none, all is 0.
        reset: In(1). Forgets all errors.

    Timing:
        An error is seen after 3 to cores + 3 cycles.
    """

    def __init__(self, cores: int):
        self.sources = cores + 1
        ending = data.StructLayout({"valid": 1, "p": Ending})
        super().__init__({"ended": In(ending).array(self.sources), "pending": Out(self.sources), "failed": Out(1),
                          "failure": Out(Failure), "reset": In(1)})

    def elaborate(self, platform):
        m = Module()
        turn, seen, earlier = Signal(range(self.sources)), Signal(self.sources), Signal()
        candidate = Signal(Failure)
        m.d.sync += seen.eq(0)
        for number, one in enumerate(self.ended):
            held, pending = Signal(Ending, name=f"held_{number}"), self.pending[number]
            with m.If(one.valid & ~pending):
                m.d.sync += [held.eq(one.p), pending.eq(one.p.error != CommandError.NONE)]
            with m.If(turn == number):
                origin = PROCESSOR if number == self.sources - 1 else number
                m.d.sync += [seen[number].eq(pending), Value.cast(candidate).eq(Cat(held, C(origin, 8)))]
            with m.If(seen[number]):
                m.d.sync += pending.eq(0)
        m.d.sync += turn.eq(Mux(turn == self.sources - 1, 0, turn + 1))
        # Indices are less than 2^31 apart.
        m.d.comb += earlier.eq((candidate.index - self.failure.index)[31])
        with m.If(seen.any() & (earlier | ~self.failed)):
            m.d.sync += [self.failed.eq(1), self.failure.eq(candidate)]
        with m.If(self.reset):
            m.d.sync += [self.failed.eq(0), self.failure.eq(0), self.pending.eq(0), seen.eq(0)]
        return m
