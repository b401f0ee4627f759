"""Writes native tiles to the matrix register file, from binary16 words or from packed records."""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.lib import message_payloads
from concord.hw.lib.arithmetic import low_high
from concord.hw.lib.elements import magnitude
from concord.hw.lib.payloads import tile_load, word
from concord.hw.lib.pipeline import delay, delay_control
from concord.hw.lib.queue import Queue
from concord.hw.mvm.matrix_rf import mark_write, record_write
from concord.hw.mvm.quantizer import Quantizer
from concord.spec.isa.instructions import ADDRESS_BITS
from concord.spec.machine.config import Config

TILES = 2  # tiles that may be between the input and the output of the quantiser


class MatrixLoader(wiring.Component):
    """Quantises the rows of tiles, writes them lane group by lane group, and stores the zero mark of each tile.

    Args:
        config: The machine.

    Members:
        load: In(stream `tile_load`). Each payload starts one tile; it is taken with the last word of the tile.
        word: In(stream word). Words of the tile, row by row.
        packed: In(stream {tile, integer, row, group, record, last}). Packed records. They may come between those of a
            tile that is `full`, but none while another tile is being loaded.
        write: Out {valid, tile, row, group, record}. Record for the register file.
        mark: Out {valid, tile, mark}. Zero mark for the register file.
        done: Out(1). Pulse for each load: its tile may be read.
        row: Out(1). Pulse: a row has been quantised.
        invalid: Out(1). The word taken in this cycle holds a NaN or an infinity.

    Timing:
        One word a cycle, or one every mfu_lanes/lanes cycles where a word spans several lane groups.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "load": In(stream.Signature(tile_load(config))), "word": In(stream.Signature(word(config))),
            "packed": In(stream.Signature(message_payloads.packed(config))),
            "write": Out(record_write(config)), "mark": Out(mark_write(config)),
            "done": Out(1), "row": Out(1), "invalid": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        config = self.config
        m.submodules.quantizer = quantizer = Quantizer(config.weights, config.mfu_lanes, config.native_dim)
        full = bool(config.dram_words)
        m.submodules.tiles = tiles = Queue(ADDRESS_BITS + full, TILES)  # with the mark of tiles that are full
        self.tile, self.full = (tiles.o.payload[:-1], tiles.o.payload[-1]) if full else (tiles.o.payload, None)
        m.d.comb += [self.row.eq(quantizer.block), self.invalid.eq(quantizer.invalid)]

        place = Signal(range(config.native_dim * config.vector_words))
        first, last = place == 0, place == config.native_dim * config.vector_words - 1
        go = self.load.valid & self.word.valid & (tiles.i.ready | ~first)
        m.d.comb += [
            quantizer.i.valid.eq(go), quantizer.i.p.word.eq(self.word.p), quantizer.i.p.integer.eq(self.load.p.integer),
            self.word.ready.eq(self.load.valid & quantizer.i.ready & (tiles.i.ready | ~first)),
            tiles.i.valid.eq(go & quantizer.i.ready & first),
            tiles.i.payload.eq(Cat(self.load.p.tile, self.load.p.full) if full else self.load.p.tile),
            self.load.ready.eq(go & quantizer.i.ready & last)]
        with m.If(go & quantizer.i.ready):
            m.d.sync += place.eq(place + 1)

        item = Signal(message_payloads.packed(config))
        valid, quantized = Signal(), Signal()
        self._records(m, quantizer, tiles, item, quantized)
        m.d.comb += [self.packed.ready.eq(~quantized), valid.eq(quantized | self.packed.valid)]
        with m.If(~quantized):
            m.d.comb += item.eq(self.packed.p)
        self._writes(m, item, valid, quantized, None if self.full is None else quantized & self.full)
        return m

    def _records(self, m, quantizer, tiles, item, valid):
        """Join the words of the quantiser to lane groups, or split them into lane groups."""
        config = self.config
        per_record, per_word = max(1, config.lanes // config.mfu_lanes), max(1, config.mfu_lanes // config.lanes)
        # The bits are the row, the lane group, and the part of a word or of a lane group.
        place = Signal(range(config.native_dim * config.vector_words * per_word))
        words = Value.cast(quantizer.o.p.mantissas)
        part, count = low_high(place, per_record)
        split, _ = low_high(place, per_word)
        if per_record > 1:
            kept = Signal(len(words) * (per_record - 1))
            with m.If(quantizer.o.valid & quantizer.o.ready):
                m.d.sync += kept.eq(Cat(kept, words)[len(words):])
            words = Cat(kept, words)
        m.d.comb += quantizer.o.ready.eq(split.all())
        with m.If(quantizer.o.valid):
            m.d.sync += place.eq(place + 1)
            m.d.comb += [
                valid.eq(part.all()), item.tile.eq(self.tile), Cat(item.group, item.row).eq(count),
                item.record.eq(Cat(words.word_select(split, config.lanes * config.weights.code_bits),
                                   quantizer.o.p.exponent)),
                item.last.eq(count.all()), tiles.o.ready.eq(part.all() & count.all())]

    def _writes(self, m, item, valid, quantized, full):
        """Write the records of a tile, and two cycles after the last one its mark.

        Args:
            full: The record is one of a tile that is marked as full, among which records of another tile may come; None
                if there are no such tiles.
        """
        config, write = self.config, self.write
        m.d.sync += write.valid.eq(valid)
        with m.If(valid):
            m.d.sync += [write[name].eq(item[name]) for name in ("tile", "row", "group", "record")]

        used = delay(m, Cat(magnitude(code, config.weights) for code in write.record.mantissas).any(), 1)
        known, marked = Signal(range(config.groups + 1)), Signal(range(config.groups + 1))
        group, first = delay(m, write.group, 1), delay(m, (write.row == 0) & (write.group == 0), 1)
        before = Mux(first, 0, known)
        ends, loaded = delay_control(m, valid & item.last, 2), delay_control(m, valid & item.last & quantized, 2)
        m.d.comb += marked.eq(Mux(used & (group >= before), group + 1, before))
        m.d.sync += [self.mark.valid.eq(ends), self.mark.tile.eq(delay(m, write.tile, 1)), self.mark.mark.eq(marked)]
        m.d.comb += self.done.eq(delay_control(m, loaded, 2))
        if full is not None:
            with m.If(delay(m, full, 2)):
                m.d.comb += marked.eq(config.groups)
        with m.If(delay_control(m, valid if full is None else valid & ~full, 2)):
            m.d.sync += known.eq(marked)
