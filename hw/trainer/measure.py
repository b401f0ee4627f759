"""The decision of `measure`: which exponents become which, and whether the pass must be repeated."""

from enum import IntEnum

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.lazy.exponent_search import ExponentSearch
from concord.hw.lazy.lazy_step import change_shape
from concord.hw.lib.arithmetic import clamp
from concord.hw.trainer.wires import LENGTH, Summary
from concord.spec.numbers.lazy import E_MAX, E_MIN, EXPONENT_BITS, LazyFormat, Width
from concord.spec.trainer.instructions import MeasureKind

FORMAT = LazyFormat()
LSB = signed(10)  #: Exponent of one unit of sums.

#: State of one exponent, as `golden.trainer.exponents.Exponent` has it; `now` and `next` are stored as E + 126. A reset
#: makes all of it 0.
ExponentState = data.StructLayout({
    "now": EXPONENT_BITS, "next": EXPONENT_BITS, "length": LENGTH, "lsb": LSB, "written": 1,
    "change": change_shape(FORMAT)})

#: What a `measure` tells: `again` is or-ed to the flag of that name. With `underflow` nothing has changed, and the
#: instruction is an UNDERFLOW. With `stands`, a pass of an update stands: counters add the counts of the summary, and
#: CHANGES adds `changes`.
MeasureAnswer = data.StructLayout({"again": 1, "underflow": 1, "stands": 1, "changes": 1})

_MOST = E_MAX - E_MIN  # the largest stored exponent; the host may store one more
_SAFE = FORMAT.bits + FORMAT.shift  # the stored exponent of parameters from which on no update underflows


class _Step(IntEnum):
    """Exponents that are found, one after the other; the kinds tensor and gradient find the first one alone."""

    GRADIENT = 0
    MOMENTUM = 1
    PARAMETER = 2  # of an update of parameters that are all 0


class Measure(wiring.Component):
    """Makes new states of the exponents that a `measure` names, one measure after the other.

    Members:
        kind: In(2). `spec.trainer.instructions.MeasureKind`, held from the first state that goes in until the last one
            has come out, as `rate` and `summary` are.
        rate: In(8). E + 126 of the learning rate.
        summary: In(Summary). What the updates have met, for the kind update; otherwise it does not count.
        i: In(stream of ExponentState). The state of `e`; for the kind update those of `ew` and `eg` behind it. Lengths
            are those of all cores.
        o: Out(stream of ExponentState). As many new states, in the same order.
        answer: Out(MeasureAnswer). Counts while `o` is valid, and is the same for all states of a measure.

    Timing:
        The first state comes out at most 30 cycles after the last one went in. What comes out is held until it is
        taken; the next measure may begin in the cycle after the last state was taken.
    """

    def __init__(self):
        super().__init__({"kind": In(2), "rate": In(EXPONENT_BITS), "summary": In(Summary),
            "i": In(stream.Signature(ExponentState)), "o": Out(stream.Signature(ExponentState)),
            "answer": Out(MeasureAnswer)})

    def elaborate(self, platform):
        m = Module()
        # The three states move through one shift register, in and out, so that `e` is always the first one: of the
        # other kinds, two states follow that nobody gives.
        self.e, self.ew, self.eg = states = [Signal(ExponentState, name=name) for name in ("e", "ew", "eg")]
        self.update, self.step = Signal(), Signal(_Step)
        m.submodules.exponent_search = self.search = ExponentSearch(FORMAT)
        count, last, moves = Signal(2), Signal(), Signal()
        m.d.comb += [self.update.eq(self.kind == MeasureKind.UPDATE), last.eq(count == 2),
                     self.o.payload.eq(self.e)]
        with m.If(moves):
            m.d.sync += [one.eq(other) for one, other in zip(states, (*states[1:], self.i.payload), strict=True)]
            m.d.sync += count.eq(count + 1)
        self._find(m)
        given = self.search.i.p
        m.d.comb += [given[name].eq(self.summary[name]) for name in ("lowest", "highest", "outside", "large")]
        m.d.comb += [given.exponent.eq(clamp(self.ew.now, 0, _MOST)), given.changes.eq(self.ew.change != 0)]
        with m.FSM():
            with m.State("TAKE"):
                m.d.comb += [self.i.ready.eq(self.update | (count == 0)), moves.eq(self.i.valid | ~self.i.ready)]
                m.d.sync += [self.step.eq(_Step.GRADIENT), self.answer.eq(0)]
                with m.If(moves & last):
                    m.d.sync += count.eq(0)
                    m.next = "SELECT"
            for before, after in (("SELECT", "ADD"), ("ADD", "LIMIT"), ("LIMIT", "DECIDE")):
                with m.State(before):
                    m.next = after
            with m.State("DECIDE"):
                self._decide(m)
            with m.State("SEARCH"):
                m.d.comb += self.search.i.valid.eq(1)
                m.next = "STAND"
            with m.State("STAND"):
                m.d.comb += self.search.o.ready.eq(1)
                with m.If(self.search.o.valid):
                    self._stand(m)
            with m.State("GIVE"):
                m.d.comb += [self.o.valid.eq(1), moves.eq(self.o.ready)]
                with m.If(moves & (last | ~self.update)):
                    m.d.sync += count.eq(0)
                    m.next = "TAKE"
        return m

    def _find(self, m):
        """`found`, the stored exponent of the present step, three cycles after it has begun."""
        e, eg, parameter = self.e, self.eg, self.step == _Step.PARAMETER
        gradient = Mux(self.update, self.step == _Step.GRADIENT, self.kind == MeasureKind.GRADIENT)
        unit = self.rate + self.e.next - 2 * (Width.GRADIENT - 1 - E_MIN)
        length, lsb, total, least = Signal(LENGTH), Signal(LSB), Signal(signed(11)), Signal(signed(11))
        self.found, self.low, self.any = Signal(EXPONENT_BITS), Signal(), Signal()
        with m.If(parameter):
            m.d.sync += [length.eq(self.summary.length), lsb.eq(unit)]
        with m.Elif(self.update & gradient):
            m.d.sync += [length.eq(eg.length), lsb.eq(eg.lsb)]
        with m.Else():
            m.d.sync += [length.eq(e.length), lsb.eq(e.lsb)]
        m.d.sync += [total.eq(Mux(length.any(), length + lsb - (1 + E_MIN), 0)),
                     least.eq(lsb + (Width.LINEAR - 1 - E_MIN))]
        found = Mux(gradient & (least > total), least, total)
        m.d.sync += [self.found.eq(clamp(found, 0, _MOST)), self.low.eq(total < 0), self.any.eq(length.any())]

    def _decide(self, m):
        """Take what is found of a step, or go on to the next one."""
        e, ew, eg, found, sync = self.e, self.ew, self.eg, self.found, m.d.sync
        m.next = "SELECT"
        with m.If(~self.update):
            sync += [e.now.eq(found), e.next.eq(found)]
            self._end(m, again=found != e.next)
        with m.Elif(self.step == _Step.GRADIENT):
            sync += self.step.eq(_Step.MOMENTUM)
            with m.If(found != eg.next):
                sync += [eg.now.eq(found), eg.next.eq(found)]
                self._end(m, again=1)
        with m.Elif(self.step == _Step.MOMENTUM):
            sync += self.step.eq(_Step.PARAMETER)
            with m.If(found != e.next):
                sync += e.next.eq(found)
                self._end(m, again=1)
        with m.Elif(self.low & (ew.now < _SAFE)):
            sync += self.answer.underflow.eq(1)
            m.next = "GIVE"
        with m.Elif(self.any & ~self.summary.holds & (found != ew.now)):
            sync += [ew.now.eq(found), ew.next.eq(found)]
            self._end(m, again=1)
        with m.Else():
            m.next = "SEARCH"

    def _stand(self, m):
        """Change the exponent of the parameters in one pass more, or end the update."""
        e, ew, change, sync = self.e, self.ew, self.search.o.p.change, m.d.sync
        now = clamp(ew.now + ew.change, 0, _MOST)
        with m.If(change != 0):
            sync += ew.change.eq(change)
            self._end(m, again=1)
        with m.Else():
            sync += [ew.now.eq(now), ew.next.eq(now), ew.change.eq(0), e.now.eq(e.next),
                     self.answer.stands.eq(1), self.answer.changes.eq(ew.change != 0)]
            self._end(m, again=0)

    def _end(self, m, again):
        """Give the states, whose sums begin anew."""
        for state in (self.e, self.eg):
            m.d.sync += [state.length.eq(0), state.written.eq(0)]
        m.d.sync += self.answer.again.eq(again)
        m.next = "GIVE"
