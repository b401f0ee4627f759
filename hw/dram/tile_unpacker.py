"""Makes records for the matrix register file of the words of packed tiles in Dram."""

from amaranth import *
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2
from concord.hw.dram.gearbox import Gearbox
from concord.hw.lib.message_payloads import packed
from concord.hw.lib.payloads import word
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
    """What the next word is."""

    FREE = 0  #: None: there is no job.
    BEGIN = 1  #: None: the next tile of the job begins.
    EXPONENTS = 2  #: A word of stored exponents.
    CODES = 3  #: A word of codes.


class TileUnpacker(wiring.Component):
    """Cuts packed tiles into the records that PACKED messages have: row by row, lane group by lane group.

    A row of a diagonal tile has its only code at the place of its own column; the code of the zeros beside it is 0 in
    all formats.

    Args:
        config: The machine.

    Members:
        job: In(stream {tile, integer, diagonal, count}). Tiles to come, `count` of them from `tile` on.
        i: In(stream word). Words of these tiles, as `spec.isa.dram` has them. None is taken without a job.
        o: Out(stream {tile, integer, row, group, record, last}). Records; the exponent is 0 in integer mode.
        done: Out(1). Pulse: in the cycle before, the last record of the last tile of a job was taken.

    Timing:
        One record a cycle, or one word if these are narrower; between two tiles, 2 cycles have none. Latency 3 cycles
        from the first word of codes that fills a record.
    """

    def __init__(self, config: Config):
        self.config, fmt, n = config, config.weights, config.native_dim
        self.exponents = words_of_bits(config, n * fmt.exponent_bits)
        self.codes = [words_of_bits(config, count * fmt.code_bits) for count in (n * n, n)]  # not diagonal, diagonal
        super().__init__({
            "job": In(stream.Signature(Job)), "i": In(stream.Signature(word(config))),
            "o": Out(stream.Signature(packed(config))), "done": Out(1)})

    def elaborate(self, platform):
        m = Module()
        # Words and records are at two places: while the last records of a tile leave the gearbox, the next tile's
        # exponents come. Its codes must wait, as what is left in the gearbox is dropped when the tile ends. So when the
        # exponents of a third tile come, the first tile has ended, and those of the second one have moved on.
        fmt, config = self.config.weights, self.config
        m.submodules.tiles = self.tiles = Queue(Tile, TILES)
        m.submodules.gearbox = self.gearbox = Gearbox(16 * config.mfu_lanes, config.lanes * fmt.code_bits)
        self.gathered = Signal(self.exponents * 16 * config.mfu_lanes, reset_less=True)
        self.loaded = Signal()  # `gathered` holds all exponents of a tile, which has no records yet
        self.emptying = Signal()  # the gearbox has all words of its tile
        self.next_row, self.ends = Signal(), Signal()  # a row of stored exponent, or a tile, has its last record
        m.d.comb += self.gearbox.clear.eq(self.ends)
        with m.If(self.ends):
            m.d.sync += self.emptying.eq(0)
        self._words(m)
        self._records(m, self._exponent(m))
        return m

    def _words(self, m):
        """Hand each word to the exponents or to the gearbox, and each tile to the records."""
        state, i, tiles, codes = Signal(State), self.i, self.tiles.i, self.gearbox.i
        job, left = Signal(Job), Signal(range(max(self.exponents, *self.codes)))  # words of this kind after the next
        many, few = self.codes
        words, moved = Mux(job.diagonal, few - 1, many - 1), Signal()
        m.d.comb += [
            self.job.ready.eq(state == State.FREE), tiles.valid.eq(state == State.BEGIN),
            *(tiles.p[name].eq(job[name]) for name in ("tile", "integer", "diagonal")),
            tiles.p.final.eq(job.count == 1),
            codes.p.eq(i.p), codes.valid.eq(i.valid & (state == State.CODES) & ~self.emptying),
            i.ready.eq(Mux(state == State.CODES, codes.ready & ~self.emptying, state == State.EXPONENTS)),
            moved.eq(i.valid & i.ready)]
        with m.If(moved):
            m.d.sync += left.eq(left - 1)
        with m.Switch(state):
            with m.Case(State.FREE):
                m.d.sync += job.eq(self.job.p)
                with m.If(self.job.valid):
                    m.d.sync += state.eq(State.BEGIN)
            with m.Case(State.BEGIN):
                m.d.sync += left.eq(Mux(job.integer, words, self.exponents - 1))
                with m.If(tiles.ready):
                    m.d.sync += state.eq(Mux(job.integer, State.CODES, State.EXPONENTS))
            with m.Case(State.EXPONENTS):
                with m.If(moved):
                    m.d.sync += self.gathered.eq(Cat(self.gathered, i.p)[len(Value.cast(i.p)):])
                    with m.If(left == 0):
                        m.d.sync += [self.loaded.eq(1), left.eq(words), state.eq(State.CODES)]
            with m.Case(State.CODES):
                with m.If(moved & (left == 0)):
                    m.d.sync += [self.emptying.eq(1), job.tile.eq(job.tile + 1), job.count.eq(job.count - 1),
                                 state.eq(Mux(tiles.p.final, State.FREE, State.BEGIN))]

    def _exponent(self, m):
        """The stored exponent of the present row, and whether it is there, as it must be in integer mode."""
        tile, bits, known = self.tiles.o.p, self.config.weights.exponent_bits, Signal()
        exponents = Signal(self.config.native_dim * bits, reset_less=True)
        with m.If(self.next_row):
            m.d.sync += exponents.eq(exponents[bits:])
        with m.If(self.ends & ~tile.integer):
            m.d.sync += known.eq(0)
        with m.If(self.loaded & ~known):
            m.d.sync += [exponents.eq(self.gathered), known.eq(1), self.loaded.eq(0)]
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
