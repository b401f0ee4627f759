"""Connects the lazy update to host messages."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.lazy.lazy_update import LazyUpdate
from concord.hw.lib import message_payloads
from concord.hw.lib.queue import Queue
from concord.spec.machine.config import Config
from concord.spec.numbers.lazy import LazyFormat


class UpdatePort(wiring.Component):
    """Sends the tensors of UPDATE messages through a lazy-update unit, and makes UPDATED messages of what comes out.

    Args:
        config: The machine; the unit takes mfu_lanes parameters a cycle.

    Members:
        i: In(stream {exponents, change, remaining, words}). Parameters of a tensor.
        o: Out(stream {word, exponents, remaining}). Mantissas and residuals in turn; the word that ends a tensor has
            what the unit asks for in its first lane, and the change in its second.
        events: Out. Increments of the counters of lazy updates, when a final pass ends.

    Timing:
        M parameters every two cycles: two words of a host message carry them away.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "i": In(stream.Signature(message_payloads.update(config))),
            "o": Out(stream.Signature(message_payloads.updated(config))),
            "events": Out(data.StructLayout({"steps": 32, "changes": 1, "rounded": 32, "saturations": 32}))})

    def elaborate(self, platform):
        m = Module()
        m.submodules.unit = unit = LazyUpdate(LazyFormat(), self.config.mfu_lanes)
        block = data.StructLayout({"exponents": 16, "words": 32, "changed": 1})
        m.submodules.blocks = blocks = Queue(block, 4)
        self._enter(m, unit, blocks)
        self._leave(m, unit, blocks)
        return m

    def _enter(self, m, unit, blocks):
        """The first item of a tensor begins it in the unit and notes what its words will want to know."""
        item, begun = self.i.p, Signal()  # the tensor of this item has been announced
        announce = Signal()
        m.d.comb += [
            announce.eq(self.i.valid & ~begun & unit.block.ready & blocks.i.ready),
            unit.block.valid.eq(announce), blocks.i.valid.eq(announce),
            unit.block.p.exponent.eq(item.exponents[:8]), unit.block.p.update_exponent.eq(item.exponents[8:]),
            unit.block.p.change.eq(item.change - 1),
            blocks.i.p.exponents.eq(item.exponents), blocks.i.p.words.eq(Cat(Const(1, 1), item.remaining)),
            blocks.i.p.changed.eq(item.change != 1),
            unit.i.valid.eq(self.i.valid & begun), self.i.ready.eq(unit.i.ready & begun),
            unit.i.p.last.eq(item.remaining == 1)]
        mantissas, residuals, low, high = item.words
        for lane in range(self.config.mfu_lanes):
            m.d.comb += [unit.i.p.mantissas[lane].eq(mantissas[lane]), unit.i.p.residuals[lane].eq(residuals[lane]),
                         unit.i.p.updates[lane].eq(Cat(low[lane], high[lane]))]
        with m.If(announce):
            m.d.sync += begun.eq(1)
        with m.If(self.i.valid & self.i.ready & unit.i.p.last):
            m.d.sync += begun.eq(0)

    def _leave(self, m, unit, blocks):
        """Mantissas, residuals, and after the last ones the answer."""
        second, ending, sent = Signal(), Signal(), Signal(32)
        moved = Signal()
        out, answer, block = self.o, unit.answer, blocks.o.p
        m.d.comb += [
            out.p.exponents.eq(block.exponents), out.p.remaining.eq(block.words - sent),
            moved.eq(out.valid & out.ready)]
        with m.If(ending):
            m.d.comb += [out.valid.eq(answer.valid),
                         out.p.word[0].eq(answer.p.repeat), out.p.word[1].eq(answer.p.change),
                         answer.ready.eq(out.ready), blocks.o.ready.eq(moved)]
        with m.Else():
            m.d.comb += [out.valid.eq(unit.o.valid), unit.o.ready.eq(out.ready & second)]
            for lane, mantissa, residual in zip(out.p.word, unit.o.p.mantissas, unit.o.p.residuals, strict=True):
                m.d.comb += lane.eq(Mux(second, residual, mantissa))
        with m.If(moved):
            m.d.sync += [sent.eq(Mux(ending, 0, sent + 1)), second.eq(~ending & ~second),
                         ending.eq(~ending & second & unit.o.p.last)]
        stands = moved & ending & (answer.p.repeat == 0)
        m.d.comb += [self.events.changes.eq(stands & block.changed),
                     *(self.events[name].eq(Mux(stands, answer.p[name], 0))
                       for name in ("steps", "rounded", "saturations"))]

