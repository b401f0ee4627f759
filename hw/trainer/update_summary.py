"""What updates have met: the lengths of their sums, and the summary from which `measure` decides."""

from operator import add

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from concord.hw.lazy.exponent_search import COUNT
from concord.hw.lib.arithmetic import greater, lesser, tree
from concord.hw.lib.pipeline import delay, delay_control
from concord.hw.trainer.sum_converter import LENGTH_CYCLES, length
from concord.hw.trainer.update_lanes import GROUP, Met
from concord.hw.trainer.wires import LENGTH, MEASURED, Summary

_MEASURED = ("gradient", "momentum", "product")
_COUNTED = {"steps": "moved", "rounded": "rounded", "saturations": "limited"}  # and the flags that they count


class UpdateSummary(wiring.Component):
    """Gathers what groups of lanes meet.

    Members:
        met: In(Met). What a group has met.
        begin: In(1). A job begins: lengths of S and T begin anew.
        clear: In(1). The summary begins anew; no job is under way.
        summary: Out(Summary). Of all jobs since `clear`.
        gradient, momentum: Out(LENGTH). Lengths of S and T since `begin`.

    Timing:
        Everything counts at most `latency` cycles after it was met. `clear` shows in the next cycle.
    """

    latency = 2 * len(_MEASURED) + LENGTH_CYCLES

    def __init__(self):
        super().__init__({"met": In(Met), "begin": In(1), "clear": In(1), "summary": Out(Summary),
                          "gradient": Out(LENGTH), "momentum": Out(LENGTH)})

    def elaborate(self, platform):
        m = Module()
        self._lengths(m)
        self._extremes(m)
        flags, summary = self.met.flags, self.summary
        counted = delay_control(m, flags.valid, 1)
        for name, flag in _COUNTED.items():
            total = summary[name] + delay(m, tree(list(flags[flag]), add), 1)
            with m.If(self.clear):
                m.d.sync += summary[name].eq(0)
            with m.Elif(counted):
                m.d.sync += summary[name].eq(total[:COUNT] | total[COUNT].replicate(COUNT))
        for name in ("outside", "large", "holds"):
            m.d.sync += summary[name].eq(~self.clear & (summary[name] | (flags.valid & flags[name])))
        return m

    def _lengths(self, m):
        """One tree finds all lengths in turns. A length counts as 0 as long as nothing is measured."""
        kept = [Signal(MEASURED, name=name) for name in _MEASURED]
        for name, found in zip(_MEASURED, kept, strict=True):
            with m.If(self.clear if name == "product" else self.begin):
                m.d.sync += found.eq(0)
            with m.Elif(self.met[name].valid):
                m.d.sync += found.eq(found | self.met[name].found)
        turn = Signal(range(len(kept)))
        m.d.sync += turn.eq(Mux(turn == len(kept) - 1, 0, turn + 1))
        asked = Signal(MEASURED)
        with m.Switch(turn):
            for index, found in enumerate(kept):
                with m.Case(index):
                    m.d.comb += asked.eq(found)
        made, answered = length(m, asked), delay_control(m, turn, LENGTH_CYCLES)
        for index, (found, out) in enumerate(zip(kept, (self.gradient, self.momentum, self.summary.length),
                                                 strict=True)):
            last = Signal(LENGTH, name=f"last{index}")
            with m.If(answered == index):
                m.d.sync += last.eq(made)
            m.d.comb += out.eq(Mux(found[-1], last, 0))

    def _extremes(self, m):
        """The extremes of the negative joint values and of 0."""
        falls, levels = self.met.falls, (GROUP - 1).bit_length()
        valid = delay_control(m, falls.valid, levels)
        for name, function in (("lowest", lesser), ("highest", greater)):
            kept, found = self.summary[name], tree(list(falls.lanes), function, lambda value: delay(m, value, 1))
            with m.If(self.clear):
                m.d.sync += kept.eq(0)
            with m.Elif(valid):
                m.d.sync += kept.eq(function(kept, found))
