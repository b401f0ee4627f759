"""Instructions in flight: which ones an instruction must wait for, and what they have measured when they end."""

from functools import reduce
from operator import or_

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from concord.hw.trainer.exponent_table import NUMBER, Merged
from concord.hw.trainer.wires import ADDRESS, LENGTH, Ended

FLIGHTS = 8  #: Most instructions in flight.
ENGINES = ("load", "store", "move", "tensor", "pooling", "update")
RANGES = 6  #: Most ranges of an instruction.

#: Words or rows that an instruction reads or writes, both ends included.
Range = data.StructLayout({"space": 2, "low": ADDRESS, "high": ADDRESS, "written": 1})
#: An instruction that goes to an engine, with the exponents that get its lengths: `measured`, and `momentum` of an
#: update. `measures`: a `measure` waits for it.
Flight = data.StructLayout({
    "engine": range(len(ENGINES)), "measures": 1, "measured": NUMBER, "both": 1, "momentum": NUMBER})


class Hazards(wiring.Component):
    """Holds the ranges of instructions in flight, and compares those of the next one with them.

    An instruction conflicts with an older one where one writes what the other one reads or writes. It has a slot from
    `reserve` on, is in flight from `commit` on, and leaves when its engine has ended it and its lengths are told.

    Members:
        free: Out(1). There is a slot for another instruction.
        reserve: In(1). The next instruction begins, without ranges; only when `free`. An instruction that had a slot
            and was not committed is forgotten.
        note: In(1). range: In(Range). It has this range, too; not while busy.
        alone: In(1). The range is not compared with others of the same instruction.
        busy: Out(1). Ranges are compared.
        meets: Out(1). It writes a range that meets another one of its own.
        conflicts: Out(8). Slots of instructions in flight that it must wait for.
        commit: In(1). flight: In(Flight). It is in flight from now on.
        active: Out(8). Slots of instructions that have not ended.
        ended: In(Ended for each engine). momentum: In. Length of T, with the end of an update.
        merge: Out(stream of Merged). What was measured.
        measuring, idle: Out(1). An instruction that measures, or none at all, is in flight.

    Timing:
        `busy` lasts 9 cycles for each range.
    """

    def __init__(self):
        super().__init__({
            "free": Out(1), "reserve": In(1), "note": In(1), "range": In(Range), "alone": In(1), "busy": Out(1),
            "meets": Out(1), "conflicts": Out(FLIGHTS), "commit": In(1), "flight": In(Flight), "active": Out(FLIGHTS),
            "ended": In(data.ArrayLayout(Ended, len(ENGINES))), "momentum": In(LENGTH),
            "merge": Out(stream.Signature(Merged)), "measuring": Out(1), "idle": Out(1)})

    def elaborate(self, platform):
        m = Module()
        self.own, self.live = Signal(range(FLIGHTS)), Signal(FLIGHTS)
        m.d.comb += [self.free.eq(~self.live.all()), self.idle.eq(~self.live.any())]
        with m.If(self.reserve):
            for slot in reversed(range(FLIGHTS)):
                with m.If(~self.live[slot]):
                    m.d.sync += self.own.eq(slot)
        self._compare(m)
        self._flights(m)
        return m

    def _compare(self, m):
        """Walk through the ranges of all slots at once; the new range is stored behind them."""
        new, alone, count, step = Signal(Range), Signal(), Signal(range(RANGES + 1)), Signal(range(RANGES + 4))
        reserved = Signal()
        m.d.comb += self.busy.eq(step != 0)
        m.d.sync += reserved.eq(self.reserve)
        with m.If(self.note):
            m.d.sync += [new.eq(self.range), alone.eq(self.alone), step.eq(RANGES + 3)]
        with m.Elif(self.busy):
            m.d.sync += step.eq(step - 1)
        with m.If(step == 1):
            m.d.sync += count.eq(count + 1)
        with m.If(self.reserve):
            m.d.sync += [self.conflicts.eq(0), self.meets.eq(0), count.eq(0)]
        asked = Signal(range(RANGES))
        m.d.comb += asked.eq(step - 4)
        for slot in range(FLIGHTS):
            mine = Signal(name=f"mine{slot}")
            m.d.comb += mine.eq(self.own == slot)
            meets = self._slot(m, slot, asked, new, count, mine & (step == 1), mine & reserved)
            with m.If((step <= RANGES + 1) & (step >= 2)):
                with m.If(meets & ~mine):
                    m.d.sync += self.conflicts[slot].eq(1)
                with m.If(meets & mine & ~alone):
                    m.d.sync += self.meets.eq(1)
        return m

    def _slot(self, m, slot: int, asked, new, count, store, clear):
        """Whether the range that was asked for two cycles before meets the new one."""
        m.submodules[f"ranges{slot}"] = memory = Memory(shape=Range, depth=8, init=[])
        write, read = memory.write_port(), memory.read_port(domain="comb")
        there, old, valid = Signal(RANGES, name=f"there{slot}"), Signal(Range, name=f"old{slot}"), Signal(
            name=f"valid{slot}")
        below, above, meets = (Signal(name=f"{name}{slot}") for name in ("below", "above", "meets"))
        m.d.comb += [write.addr.eq(count), write.data.eq(new), write.en.eq(store), read.addr.eq(asked)]
        m.d.sync += [old.eq(read.data), valid.eq(there.bit_select(asked, 1))]
        m.d.comb += [below.eq(old.low <= new.high), above.eq(new.low <= old.high)]
        m.d.sync += meets.eq(valid & (old.space == new.space) & (old.written | new.written) & below & above)
        with m.If(clear):
            m.d.sync += there.eq(0)
        with m.Elif(store):
            m.d.sync += there.bit_select(count, 1).eq(1)
        return meets

    def _flights(self, m):
        """Which instructions have ended: that of an engine with none of the same engine ahead."""
        ended, leaving, owed = Signal(FLIGHTS), Signal(FLIGHTS), []
        counts = [Signal(range(FLIGHTS + 1), name=f"count_{name}") for name in ENGINES]
        flights = [Signal(Flight, name=f"flight{slot}") for slot in range(FLIGHTS)]
        ends = [end.valid for end in self.ended]
        for k, (count, end) in enumerate(zip(counts, ends, strict=True)):
            m.d.sync += count.eq(count + (self.commit & (self.flight.engine == k)) - end)
        m.d.comb += self.active.eq(self.live & ~ended)
        for slot, flight in enumerate(flights):
            ahead, lengths = Signal(range(FLIGHTS + 1), name=f"ahead{slot}"), Signal(
                data.ArrayLayout(LENGTH, 2), name=f"lengths{slot}")
            end = Signal(name=f"end{slot}")
            m.d.comb += end.eq(Array(ends)[flight.engine] & self.active[slot])
            with m.If(end):
                m.d.sync += ahead.eq(ahead - 1)
            with m.If(end & (ahead == 0)):
                m.d.sync += [ended[slot].eq(1), lengths[1].eq(self.momentum),
                             lengths[0].eq(Array(each.length for each in self.ended)[flight.engine])]
            with m.If(leaving[slot]):
                m.d.sync += [self.live[slot].eq(0), ended[slot].eq(0)]
            with m.If(self.commit & (self.own == slot)):
                m.d.sync += [flight.eq(self.flight), self.live[slot].eq(1),
                             ahead.eq(Array(counts)[self.flight.engine] - Array(ends)[self.flight.engine])]
            owed.append((ended[slot], flight, lengths))
        m.d.comb += self.measuring.eq(reduce(or_, (
            self.live[slot] & flight.measures for slot, flight in enumerate(flights))))
        self._leave(m, owed, leaving)

    def _leave(self, m, owed, leaving):
        """Tell the lengths of an instruction that has ended, one or two of them."""
        chosen, busy, second = Signal(range(FLIGHTS)), Signal(), Signal()
        flight, lengths = (Signal.like(owed[0][k], name=name) for k, name in ((1, "left"), (2, "told")))
        m.d.comb += [flight.eq(Array(one[1] for one in owed)[chosen]),
                     lengths.eq(Array(one[2] for one in owed)[chosen])]
        m.d.comb += [
            self.merge.valid.eq(busy & flight.measures), self.merge.p.length.eq(Mux(second, lengths[1], lengths[0])),
            self.merge.p.number.eq(Mux(second, flight.momentum, flight.measured))]
        with m.If(~busy):
            m.d.sync += second.eq(0)
            for slot, (ended, _, _) in reversed(list(enumerate(owed))):
                with m.If(ended):
                    m.d.sync += [chosen.eq(slot), busy.eq(1)]
        with m.Elif(~flight.measures | (self.merge.ready & (second | ~flight.both))):
            m.d.comb += leaving.bit_select(chosen, 1).eq(1)
            m.d.sync += busy.eq(0)
        with m.Elif(self.merge.ready):
            m.d.sync += second.eq(1)
