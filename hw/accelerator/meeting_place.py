"""Where cores that train wait for each other."""

from functools import reduce
from operator import and_, or_

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.lib.arithmetic import greater, lesser
from concord.hw.trainer.measuring import Measured
from concord.hw.trainer.program_sequencer import CORES, Meeting, Met

#: Cycles after an answer until no core that has got it waits any more.
SETTLE = 2


class MeetingPlace(wiring.Component):
    """Lets the cores of a mask go on when all of them wait with the same instruction and mask.

    Where the cores that some waiting core names all wait or are gone, and none may go on, nobody ever comes: then all
    that wait are stopped.

    Args:
        numbers: Numbers of the cores.

    Members:
        meeting{k}: In(Meeting). Where the core k waits. met{k}: Out(Met). The answer.
        gone{k}: In(1). The program of the core k has ended with an error, or none will begin before a reset.

    Timing:
        The answer comes 4 cycles and one for each core after the last of them has come.
    """

    def __init__(self, numbers: list[int]):
        self.numbers = numbers
        super().__init__({name: member for k in numbers for name, member in (
            (f"meeting{k}", In(Meeting)), (f"met{k}", Out(Met)), (f"gone{k}", In(1)))})

    def elaborate(self, platform):
        m = Module()
        meetings = {k: getattr(self, f"meeting{k}") for k in self.numbers}
        group, left = Signal(CORES), Signal(range(len(self.numbers) + 1))
        complete, stuck = Signal(CORES), Signal()
        found = Cat(self._complete(k, meetings) if k in meetings else C(0) for k in range(CORES))
        m.d.sync += [complete.eq(found), stuck.eq(self._stuck(meetings) & ~found.any())]
        joined, settling = Signal(Measured), Signal(range(SETTLE + 2), init=SETTLE + 1)
        m.d.sync += settling.eq(settling - settling.any())
        with m.FSM():
            with m.State("SEARCH"):
                m.d.sync += left.eq(0)
                for k in reversed(self.numbers):
                    with m.If(complete[k]):
                        m.d.sync += [group.eq(meetings[k].cores), joined.eq(meetings[k].own)]
                with m.If(~settling.any()):
                    with m.If(complete.any()):
                        m.next = "JOIN"
                    with m.Elif(stuck):
                        m.next = "STOP"
            with m.State("JOIN"):
                m.d.sync += left.eq(left + 1)
                for index, k in enumerate(self.numbers):
                    with m.If((left == index) & group.bit_select(k, 1)):
                        m.d.sync += joined.eq(_together(joined, meetings[k].own))
                with m.If(left == len(self.numbers)):
                    m.d.comb += [getattr(self, f"met{k}").go.eq(group[k]) for k in self.numbers]
                    m.d.sync += settling.eq(SETTLE + 1)
                    m.next = "SEARCH"
            with m.State("STOP"):
                m.d.comb += [getattr(self, f"met{k}").stopped.eq(meetings[k].valid) for k in self.numbers]
                m.d.sync += settling.eq(SETTLE + 1)
                m.next = "SEARCH"
        m.d.comb += [getattr(self, f"met{k}").joined.eq(joined) for k in self.numbers]
        return m

    def _complete(self, number: int, meetings: dict):
        """Whether all that a core waits for have come."""
        one = meetings[number]
        others = [~one.cores[k] | (other.valid & (other.op == one.op) & (other.cores == one.cores))
                  for k, other in meetings.items()]
        unknown = Cat(one.cores[k] for k in range(CORES) if k not in meetings).any()
        return one.valid & ~unknown & reduce(and_, others)

    def _stuck(self, meetings: dict):
        """Whether some core waits, and all that are waited for wait too, or are gone."""
        named = reduce(or_, (one.cores & one.valid.replicate(CORES) for one in meetings.values()))
        there = [~named[k] | (meetings[k].valid | getattr(self, f"gone{k}") if k in meetings else 0)
                 for k in range(CORES)]
        return named.any() & Cat(there).all()


def _together(one: data.View, other: data.View) -> Value:
    """What two cores have measured: lengths, flags and extremes of both. Counts stay those of one."""
    lengths = Cat(greater(a, b) for a, b in zip(one.lengths, other.lengths, strict=True))
    summary = {}
    for name in one.summary.shape().members:
        a, b = one.summary[name], other.summary[name]
        if name in ("large", "outside", "holds"):
            summary[name] = a | b
        elif name in ("length", "highest"):
            summary[name] = greater(a, b)
        else:
            summary[name] = lesser(a, b) if name == "lowest" else a
    return Cat(lengths, *(value.as_unsigned()[:one.summary.shape()[name].width]
                          for name, value in summary.items()))
