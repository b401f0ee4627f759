"""The port of a trainer to server memory: a reader and a writer of ranges of words."""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.dram import axi
from concord.hw.dram.burst_reader import BurstReader
from concord.hw.dram.burst_writer import ROOM, BurstWriter
from concord.hw.lib.outside import Range
from concord.hw.trainer.wires import Word
from concord.spec.trainer.config import LANES

WORDS = axi.BusWords(dram_bus=LANES, mfu_lanes=LANES // 2)


class ServerPort(wiring.Component):
    """Reads one sequence of ranges of server memory and writes another one, each in its order.

    Nothing orders the two.

    Members:
        base: In(32). Address in bytes of word 0, a multiple of 4096; it changes only while idle.
        read_range: In(stream {first, count, tag, last}). Ranges to read; `tag` and `last` do not count.
        words: Out(stream of Word). Their words.
        write_range: In(stream {first, count, tag, last}). Ranges to write.
        write_word: In(stream of Word). Their words; they may come before their range.
        write_room: Out. Number of words that `write_word` takes without a stall from now on.
        write_done: Out(1). Pulse: a range with `last` was written and answered, and all ranges before it.
        failed: Out(1). Pulse: a burst was answered with an error, or with a wrong number of beats.
        reset: In(1). Forgets all ranges, words and failures. Bursts that were given to the port still end; until then
            no range is taken.
        idle: Out(1). No burst is under way, and no failure is still to be told.
        m_axi_...: the port, as `hw.dram.axi.wires` has it.
    """

    def __init__(self):
        ranges, words = stream.Signature(Range), stream.Signature(Word)
        super().__init__({
            "base": In(axi.ADDRESS), "read_range": In(ranges), "words": Out(words), "write_range": In(ranges),
            "write_word": In(words), "write_room": Out(range(ROOM + 1)), "write_done": Out(1), "failed": Out(1),
            "reset": In(1), "idle": Out(1), **axi.bus(WORDS)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.reader = reader = BurstReader(WORDS)
        m.submodules.writer = writer = BurstWriter(WORDS)
        for one in (reader, writer):
            m.d.comb += [one.base.eq(self.base), one.reset.eq(self.reset)]
        wiring.connect(m, wiring.flipped(self.read_range), reader.range)
        wiring.connect(m, wiring.flipped(self.write_range), writer.range)
        self._read(m, reader)
        self._write(m, writer)
        failed = (reader.error.valid | writer.error.valid) & ~self.reset
        m.d.sync += self.failed.eq(failed)
        m.d.comb += self.idle.eq(reader.idle & writer.idle & ~writer.error.valid & ~self.failed)
        return m

    def _constants(self, channel: str) -> list:
        """Wires of AR or AW that are the same in all bursts."""
        size, kind = (getattr(self, f"m_axi_{channel}{wire}") for wire in ("size", "burst"))
        return [size.eq(4), kind.eq(axi.INCR)]

    def _read(self, m, reader):
        ar, r, o = reader.ar, reader.r, reader.o
        m.d.comb += [
            *self._constants("ar"), self.m_axi_araddr.eq(ar.p.addr), self.m_axi_arlen.eq(ar.p.len),
            self.m_axi_arvalid.eq(ar.valid), ar.ready.eq(self.m_axi_arready),
            r.p.data.eq(self.m_axi_rdata), r.p.resp.eq(self.m_axi_rresp), r.p.last.eq(self.m_axi_rlast),
            r.valid.eq(self.m_axi_rvalid), self.m_axi_rready.eq(r.ready),
            self.words.p.eq(o.p.word), self.words.valid.eq(o.valid), o.ready.eq(self.words.ready)]

    def _write(self, m, writer):
        aw, w, b, i = writer.aw, writer.w, writer.b, writer.i
        m.d.comb += [
            *self._constants("aw"), self.m_axi_awaddr.eq(aw.p.addr), self.m_axi_awlen.eq(aw.p.len),
            self.m_axi_awvalid.eq(aw.valid), aw.ready.eq(self.m_axi_awready),
            self.m_axi_wdata.eq(w.p.data), self.m_axi_wstrb.eq(w.p.strb), self.m_axi_wlast.eq(w.p.last),
            self.m_axi_wvalid.eq(w.valid), w.ready.eq(self.m_axi_wready),
            b.p.resp.eq(self.m_axi_bresp), b.valid.eq(self.m_axi_bvalid), self.m_axi_bready.eq(b.ready),
            i.p.eq(self.write_word.p), i.valid.eq(self.write_word.valid), self.write_word.ready.eq(i.ready),
            self.write_room.eq(writer.room), self.write_done.eq(writer.done)]
