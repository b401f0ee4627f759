"""Executes `measure`: exponents go to the decision of `Measure`, and what it makes of them goes back."""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.trainer.exponent_table import NUMBER
from concord.hw.trainer.measure import ExponentState, Measure, MeasureAnswer
from concord.hw.trainer.wires import LENGTH, Summary
from concord.spec.numbers.lazy import EXPONENT_BITS
from concord.spec.trainer.instructions import MeasureKind

MOST = 3  #: Most exponents of a `measure`.
#: What a core has measured, or all cores of a rendezvous have: lengths of e, ew and eg, and the summary of updates.
Measured = data.StructLayout({"lengths": data.ArrayLayout(LENGTH, MOST), "summary": Summary})


class Measuring(wiring.Component):
    """Executes one `measure` after the other, in two parts.

    Members:
        read: In(1). The first part begins, which reads the exponents. write: In(1). The second one begins, which
            decides and writes them; `joined` then holds what all cores have measured, up to `done`.
        done: Out(1). Pulse: a part has ended.
        kind: In(2). exponents: In(numbers of e, ew and eg). rate: In(8). Held from `read` to the last `done`.
        own: Out(lengths). What this core has measured. joined: In(Measured).
        number, written, wrote: Out. An exponent to be read, or with `wrote` to be written; not while busy.
        state: In(ExponentState). That exponent, one cycle later.
        answer: Out(MeasureAnswer). With the second `done`.
    """

    def __init__(self):
        super().__init__({
            "read": In(1), "write": In(1), "done": Out(1), "kind": In(2),
            "exponents": In(data.ArrayLayout(NUMBER, MOST)), "rate": In(EXPONENT_BITS),
            "own": Out(data.ArrayLayout(LENGTH, MOST)), "joined": In(Measured), "number": Out(NUMBER),
            "state": In(ExponentState), "written": Out(ExponentState), "wrote": Out(1),
            "answer": Out(MeasureAnswer)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.measure = measure = Measure()
        states, count, last = Signal(data.ArrayLayout(ExponentState, MOST)), Signal(range(MOST + 1)), Signal()
        m.d.comb += [
            measure.kind.eq(self.kind), measure.rate.eq(self.rate), measure.summary.eq(self.joined.summary),
            measure.i.p.eq(states[count]), measure.i.p.length.eq(self.joined.lengths[count]),
            last.eq((count == MOST - 1) | (self.kind != MeasureKind.UPDATE)), self.written.eq(measure.o.p),
            self.answer.eq(measure.answer), self.number.eq(self.exponents[count])]
        m.d.comb += [own.eq(state.length) for own, state in zip(self.own, states, strict=True)]
        with m.FSM():
            with m.State("IDLE"):
                m.d.sync += count.eq(0)
                with m.If(self.read):
                    m.next = "READ"
                with m.Elif(self.write):
                    m.next = "GIVE"
            with m.State("READ"):
                m.next = "KEEP"
            with m.State("KEEP"):
                m.d.sync += [states[count].eq(self.state), count.eq(count + 1)]
                m.d.comb += self.done.eq(last)
                m.next = "READ"
                with m.If(last):
                    m.next = "IDLE"
            with m.State("GIVE"):
                m.d.comb += measure.i.valid.eq(1)
                with m.If(measure.i.ready):
                    m.d.sync += count.eq(Mux(last, 0, count + 1))
                    with m.If(last):
                        m.next = "TAKE"
            with m.State("TAKE"):
                m.d.comb += [measure.o.ready.eq(1), self.wrote.eq(measure.o.valid & ~measure.answer.underflow)]
                with m.If(measure.o.valid):
                    m.d.sync += count.eq(count + 1)
                    m.d.comb += self.done.eq(last)
                    with m.If(last):
                        m.next = "IDLE"
        return m
