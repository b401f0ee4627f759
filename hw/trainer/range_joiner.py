"""Joins words that follow each other in server memory to ranges."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.dram.burst_reader import LONGEST
from concord.hw.trainer.wires import ADDRESS, COUNT
from concord.hw.trainer.word_walker import Step

#: `count` words from `first` on, or so many words of zeros if they are not `inside`; `last`: the last ones of a view.
Run = data.StructLayout({"first": ADDRESS, "count": COUNT + 1, "inside": 1, "last": 1})


class RangeJoiner(wiring.Component):
    """Make runs of steps: across rows, planes and blocks, until they are as long as a burst.

    Members:
        i: In(stream of Step). Steps of a view.
        o: Out(stream of Run). Runs, from registers.

    Timing:
        One step a cycle. A run leaves when a step comes that does not go with it, or with the end of the view.
    """

    def __init__(self):
        super().__init__({"i": In(stream.Signature(Step)), "o": Out(stream.Signature(Run))})

    def elaborate(self, platform):
        m = Module()
        new, waits, run, o = Signal(Step), Signal(), Signal(Run), self.o  # `new`: a step in registers, if it waits
        there, joins, gives, takes = Signal(), Signal(), Signal(), Signal()
        behind = Signal(ADDRESS)  # the word behind the run
        m.d.comb += [
            joins.eq((run.count < LONGEST) & (new.inside == run.inside) & (~run.inside | (new.word == behind))
                     & ~run.last),
            gives.eq(there & (run.last | (waits & ~joins)) & (~o.valid | o.ready)),
            takes.eq(waits & (~there | joins | gives)), self.i.ready.eq(~waits | takes)]
        with m.If(self.i.ready):
            m.d.sync += [new.eq(self.i.p), waits.eq(self.i.valid)]
        with m.If(gives):
            m.d.sync += [o.p.eq(run), o.valid.eq(1)]
        with m.Elif(o.ready):
            m.d.sync += o.valid.eq(0)
        with m.If(takes):
            m.d.sync += [
                there.eq(1), run.inside.eq(new.inside), run.last.eq(new.last), behind.eq(new.word + new.count),
                run.count.eq(Mux(there & ~gives, run.count, 0) + new.count)]
        with m.Elif(gives):
            m.d.sync += there.eq(0)
        with m.If(takes & (~there | gives)):
            m.d.sync += run.first.eq(new.word)
        return m
