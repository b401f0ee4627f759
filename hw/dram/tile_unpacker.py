"""Makes records for the matrix register file of the words of packed tiles in Dram."""

from amaranth import *
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2
from concord.hw.dram.burst_reader import group, words_of_beat
from concord.hw.dram.gearbox import Gearbox
from concord.hw.dram.section_cutter import SectionCutter
from concord.hw.lib.message_payloads import packed
from concord.hw.lib.queue import Queue
from concord.spec.isa.dram import words_of_bits
from concord.spec.isa.instructions import ADDRESS_BITS, REGISTER_BITS
from concord.spec.machine.config import Config

TILES = 3  #: Tiles of which words have come, and records are left.

#: Tiles `tile`, `tile` + 1, ... of one chain, `count` of them, one at least.
Job = data.StructLayout({"tile": ADDRESS_BITS, "integer": 1, "diagonal": 1, "count": REGISTER_BITS})

#: One of these tiles; `final` is the last one of its job.
Tile = data.StructLayout({"tile": ADDRESS_BITS, "integer": 1, "diagonal": 1, "final": 1})


class State(enum.Enum):
    """What is asked for next."""

    FREE = 0  #: Nothing: there is no job.
    BEGIN = 1  #: The words of the stored exponents of the next tile; of one without them, its codes.
    CODES = 2  #: The words of the codes of that tile.


class TileUnpacker(wiring.Component):
    """Cuts packed tiles into the records that PACKED messages have: row by row, lane group by lane group.

    A row of a diagonal tile has its only code in its own column; the code of the zeros beside it is 0 in
    all formats.

    Args:
        config: The machine.

    Members:
        job: In(stream {tile, integer, diagonal, count}). Tiles to come, `count` of them from `tile` on.
        i: In(stream {words, count, last}). Words of these tiles, as `spec.isa.dram` has them, in groups that begin and
            end at any word. None is taken without a job.
        o: Out(stream {tile, integer, row, group, record, last}). Records; the exponent is 0 in integer mode.
        done: Out(1). Pulse: in the cycle before, the last record of the last tile of a job was taken.

    Timing:
        One record a cycle, or one group of words if these are fewer bits; neighbouring tiles lose no cycle where their
        exponents and codes begin and end with groups. Latency 3 cycles from the first group of codes that fills a
        record.
    """

    def __init__(self, config: Config):
        self.config, fmt, n = config, config.weights, config.native_dim
        self.exponents = words_of_bits(config, n * fmt.exponent_bits)
        self.codes = [words_of_bits(config, count * fmt.code_bits) for count in (n * n, n)]  # not diagonal, diagonal
        super().__init__({
            "job": In(stream.Signature(Job)), "i": In(stream.Signature(group(config))),
            "o": Out(stream.Signature(packed(config))), "done": Out(1)})

    def elaborate(self, platform):
        m = Module()
        # Words and records are at two stages: while the last records of a tile leave the gearbox, the next tile's
        # exponents and codes come. What its last word has beyond its codes is dropped with its last record. Exponents
        # of a third tile wait until those of the second one have moved on.
        config, self.size = self.config, 16 * self.config.mfu_lanes * words_of_beat(self.config)  # bits of a block
        m.submodules.tiles = self.tiles = Queue(Tile, TILES)
        m.submodules.cutter = self.cutter = SectionCutter(config)
        m.submodules.gearbox = self.gearbox = Gearbox(
            self.size, config.lanes * config.weights.code_bits, apart=True)
        self.loaded = Signal()  # `gathered` holds all exponents of a tile, which has no records yet
        self.hands_over = Signal()  # these exponents become those of the present tile
        self.next_row, self.ends = Signal(), Signal()  # a row of stored exponent, or a tile, has its last record
        m.d.comb += self.gearbox.skip.eq(self.ends)
        wiring.connect(m, wiring.flipped(self.i), self.cutter.i)
        self._sections(m)
        self._records(m, self._exponent(m, self._words(m)))
        return m

    def _sections(self, m):
        """Ask for the words of exponents and codes, and hand each tile to the records."""
        state, tiles, section, job = Signal(State), self.tiles.i, self.cutter.section, Signal(Job)
        many, few = self.codes
        begins, codes, moved = Signal(), Signal(), Signal()
        m.d.comb += [
            self.job.ready.eq(state == State.FREE), begins.eq(state == State.BEGIN),
            *(tiles.p[name].eq(job[name]) for name in ("tile", "integer", "diagonal")),
            tiles.p.final.eq(job.count == 1), tiles.valid.eq(begins & section.ready),
            section.valid.eq(Mux(begins, tiles.ready, state == State.CODES)), codes.eq(~begins | job.integer),
            section.p.codes.eq(codes), section.p.count.eq(Mux(codes, Mux(job.diagonal, few, many), self.exponents)),
            moved.eq(section.valid & section.ready)]
        with m.If(state == State.FREE):
            m.d.sync += job.eq(self.job.p)
            with m.If(self.job.valid):
                m.d.sync += state.eq(State.BEGIN)
        with m.Elif(moved & codes):
            m.d.sync += [job.tile.eq(job.tile + 1), job.count.eq(job.count - 1),
                         state.eq(Mux(tiles.p.final, State.FREE, State.BEGIN))]
        with m.Elif(moved):
            m.d.sync += state.eq(State.CODES)

    def _words(self, m):
        """Hand each block of words to the exponents or to the gearbox.

        Returns:
            The stored exponents of a tile, once `loaded` is set.
        """
        o, codes = self.cutter.o, self.gearbox.i
        words, blocks = o.p.words.as_value(), -(-self.exponents // words_of_beat(self.config))
        gathered = Signal(blocks * self.size, reset_less=True)
        m.d.comb += [
            codes.p.eq(words), codes.valid.eq(o.valid & o.p.codes),
            o.ready.eq(Mux(o.p.codes, codes.ready, ~self.loaded))]
        with m.If(self.hands_over):
            m.d.sync += self.loaded.eq(0)
        with m.If(o.valid & o.ready & ~o.p.codes):
            m.d.sync += gathered.eq(Cat(gathered, words)[self.size:])
            with m.If(o.p.last):
                m.d.sync += self.loaded.eq(1)
        return gathered

    def _exponent(self, m, gathered):
        """The stored exponent of the present row, and whether it is there, as it must be in integer mode."""
        tile, bits, known = self.tiles.o.p, self.config.weights.exponent_bits, Signal()
        exponents = Signal(self.config.native_dim * bits, reset_less=True)
        with m.If(self.next_row):
            m.d.sync += exponents.eq(exponents[bits:])
        used = self.ends & ~tile.integer
        m.d.comb += self.hands_over.eq(self.loaded & (~known | used))
        with m.If(used):
            m.d.sync += known.eq(0)
        with m.If(self.hands_over):
            m.d.sync += [exponents.eq(gathered), known.eq(1)]
        return Mux(tile.integer, 0, exponents[:bits]), known | tile.integer

    def _records(self, m, exponent):
        """Make records of codes and exponents."""
        config, tile, codes, o = self.config, self.tiles.o, self.gearbox.o, self.o
        lanes, bits = config.lanes, config.weights.code_bits
        place, final, moved = Signal(range(config.native_dim * config.groups)), Signal(), Signal()
        group_bits = exact_log2(config.groups)
        group, row = place[:group_bits], place[group_bits:]
        stored, there = exponent
        # The codes of a diagonal tile fill one record for each lane group, which stays for the rows of that group.
        lane, own_group = row[:exact_log2(lanes)], group == row[exact_log2(lanes):]
        chosen = [~tile.p.diagonal | (own_group & (lane == k)) for k in range(lanes)]
        m.d.comb += [
            moved.eq(tile.valid & codes.valid & there & (~o.valid | o.ready)), self.ends.eq(moved & place.all()),
            tile.ready.eq(self.ends), codes.ready.eq(moved & (~tile.p.diagonal | (group.all() & lane.all()))),
            self.next_row.eq(moved & group.all() & ~tile.p.integer)]
        m.d.sync += self.done.eq(o.valid & o.ready & o.p.last & final)
        with m.If(moved):
            m.d.sync += [
                o.valid.eq(1), place.eq(place + 1), final.eq(tile.p.final), o.p.tile.eq(tile.p.tile),
                o.p.integer.eq(tile.p.integer), o.p.row.eq(row), o.p.group.eq(group), o.p.last.eq(place.all()),
                o.p.record.eq(Cat(*(codes.p.word_select(k, bits) & chosen[k].replicate(bits) for k in range(lanes)),
                                  stored))]
        with m.Elif(o.ready):
            m.d.sync += o.valid.eq(0)
