"""Two readers and a writer of Dram behind one port of AXI4."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2
from concord.hw.dram.axi import ADDRESS, INCR, bus
from concord.hw.dram.burst_reader import BurstReader, group
from concord.hw.dram.burst_writer import ROOM, BurstWriter
from concord.hw.lib.outside import Failure, Range
from concord.hw.lib.payloads import word
from concord.spec.machine.config import Config

READERS = ("words", "tiles")  #: By the ID of their bursts.


class DramPort(wiring.Component):
    """Reads two sequences of ranges of Dram, and writes a third one, each in its order.

    Nothing orders the three. The readers take turns on AR; their bursts have different IDs, so that a slow answer of
    one holds up the other only in the memory. Reads go beside writes.

    Args:
        config: The machine.

    Members:
        base: In(32). Address in bytes of word 0, a multiple of 4096; it changes only while idle.
        words_range, tiles_range: In(stream {first, count, tag, last}). Ranges to read.
        words: Out(stream {word, last}). Words; `last` is the last word of a range that has `last`.
        tiles: Out(stream {words, count, last}). Words, as many at once as a beat holds of their range.
        write_range: In(stream {first, count, tag, last}). Ranges to write.
        write_word: In(stream word). Their words; they may come before their range.
        write_room: Out. Number of words that `write_word` takes without a stall from now on.
        write_done: Out(1). Pulse: a range with `last` was written and answered, and all ranges before it.
        error: Out({valid, tag}). Pulse: an access of this range failed. Of errors that come close together, some may be
            left out, but never the first.
        reset: In(1). Forgets all ranges, words and errors. Bursts that were given to the port still end.
        idle: Out(1). No burst is under way, no range is being cut, and no error waits.
        m_axi_*: the port, as `hw.dram.axi.bus` has it.

    Timing:
        As that of BurstReader and BurstWriter; a burst takes one cycle more to AR, and an error two more. No output of
        the port depends on an input in the same cycle.
    """

    def __init__(self, config: Config):
        self.config = config
        ranges, out = stream.Signature(Range), data.StructLayout({"word": word(config), "last": 1})
        super().__init__({
            "base": In(ADDRESS), "reset": In(1), "idle": Out(1), "error": Out(Failure),
            **{f"{name}_range": In(ranges) for name in (*READERS, "write")}, "words": Out(stream.Signature(out)),
            "tiles": Out(stream.Signature(group(config))),
            "write_word": In(stream.Signature(word(config))), "write_room": Out(range(ROOM + 1)), "write_done": Out(1),
            **bus(config)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.writer = writer = BurstWriter(self.config)
        readers = [BurstReader(self.config, groups=name == "tiles") for name in READERS]
        for name, reader in zip(READERS, readers, strict=True):
            m.submodules[f"{name}_reader"] = reader
            wiring.connect(m, wiring.flipped(getattr(self, f"{name}_range")), reader.range)
            wiring.connect(m, reader.o, wiring.flipped(getattr(self, name)))
        wiring.connect(m, wiring.flipped(self.write_range), writer.range)
        wiring.connect(m, wiring.flipped(self.write_word), writer.i)
        units = (*readers, writer)
        m.d.comb += [self.write_room.eq(writer.room), self.write_done.eq(writer.done)]
        for one in units:
            m.d.comb += [one.base.eq(self.base), one.reset.eq(self.reset)]
        self._read(m, *readers)
        self._write(m, writer)
        self._errors(m, units)
        return m

    def _constants(self, channel: str) -> list:
        """Wires of AR or AW that are the same in all bursts."""
        size, kind = (getattr(self, f"m_axi_{channel}{wire}") for wire in ("size", "burst"))
        return [size.eq(exact_log2(self.config.dram_bus)), kind.eq(INCR)]

    def _read(self, m, words, tiles):
        """Give the bursts of both readers in turns, and each its beats."""
        free, second = Signal(), Signal()  # `second`: the turn is that of `tiles`, or only they have a burst
        id_ = self.m_axi_arid
        m.d.comb += [
            *self._constants("ar"), free.eq(~self.m_axi_arvalid | self.m_axi_arready),
            second.eq(tiles.ar.valid & (~words.ar.valid | ~id_)),
            words.ar.ready.eq(free & ~second), tiles.ar.ready.eq(free & second)]
        with m.If(free):
            m.d.sync += self.m_axi_arvalid.eq(words.ar.valid | tiles.ar.valid)
            with m.If(words.ar.valid | tiles.ar.valid):
                chosen = Mux(second, Value.cast(tiles.ar.p), Value.cast(words.ar.p))
                m.d.sync += [id_.eq(second), Cat(self.m_axi_araddr, self.m_axi_arlen).eq(chosen)]
        # A beat waits while either of them fills up an answer that was too short: `rready` may not depend on `rid`.
        m.d.comb += self.m_axi_rready.eq(words.r.ready & tiles.r.ready)
        for number, (one, other) in enumerate(((words, tiles), (tiles, words))):
            m.d.comb += [
                one.r.valid.eq(self.m_axi_rvalid & (self.m_axi_rid == number) & other.r.ready),
                one.r.p.data.eq(self.m_axi_rdata), one.r.p.resp.eq(self.m_axi_rresp),
                one.r.p.last.eq(self.m_axi_rlast)]

    def _write(self, m, writer):
        """The channels of the writer are those of the port."""
        aw, w, b = writer.aw, writer.w, writer.b
        m.d.comb += [
            *self._constants("aw"), self.m_axi_awaddr.eq(aw.p.addr), self.m_axi_awlen.eq(aw.p.len),
            self.m_axi_awvalid.eq(aw.valid), aw.ready.eq(self.m_axi_awready),
            self.m_axi_wdata.eq(w.p.data), self.m_axi_wstrb.eq(w.p.strb), self.m_axi_wlast.eq(w.p.last),
            self.m_axi_wvalid.eq(w.valid), w.ready.eq(self.m_axi_wready),
            b.p.resp.eq(self.m_axi_bresp), b.valid.eq(self.m_axi_bvalid), self.m_axi_bready.eq(b.ready)]

    def _errors(self, m, units):
        """Give the errors of all units, one at a time. The port is idle once all are given: none comes into a program
        that starts then.
        """
        kept = [Signal(Failure, name=f"kept_{number}") for number in range(len(units))]
        free = C(1)  # no error before this one is given
        m.d.sync += self.error.valid.eq(0)
        for unit, one in zip(units, kept, strict=True):
            with m.If(one.valid & free):
                m.d.sync += [self.error.eq(one), one.valid.eq(0)]
            with m.If(unit.error.valid & (~one.valid | free)):
                m.d.sync += one.eq(unit.error)
            free &= ~one.valid
        late = units[-1].error.valid  # of the writer; the readers report while they are busy
        m.d.comb += self.idle.eq(Cat(one.idle for one in units).all() & ~Cat(
            late, self.error.valid, *(one.valid for one in kept)).any())
        with m.If(self.reset):
            m.d.sync += [self.error.valid.eq(0), *(one.valid.eq(0) for one in kept)]
