"""Moves words and tiles between Dram and the pipelines: the queues and addresses behind the port."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.dram.burst_reader import group, words_of_beat
from concord.hw.dram.mover import Mover
from concord.hw.dram.range_walker import RangeWalker
from concord.hw.dram.tile_unpacker import TileUnpacker
from concord.hw.lib import message_payloads
from concord.hw.lib.jobs import TICKET, LoadJob, MoveJob, waiting
from concord.hw.lib.outside import WORDS, Range, Walk
from concord.hw.lib.payloads import entry_reads, word
from concord.hw.lib.pipeline import delay_control
from concord.hw.lib.queue import Queue
from concord.spec.isa.dram import tile_words
from concord.spec.machine.config import Config
from concord.spec.machine.timing import mfu_pipeline

MARGIN = 8  #: Words that may be on their way between the multi-function units and the port.
GATHERED = 64  #: Words of the host that are written at once.
WRITTEN = 5  #: Cycles after a tile's last record at which the tile and its zero mark may be read.


def port_side(config: Config) -> dict:
    """Streams between the transfers and the port of Dram, as the transfers see them."""
    words = {"words": data.StructLayout({"word": word(config), "last": 1}), "tiles": group(config)}
    return {
        **{f"{name}_range": Out(stream.Signature(Range)) for name in ("words", "tiles", "write")},
        **{name: In(stream.Signature(shape)) for name, shape in words.items()},
        "write_word": Out(stream.Signature(word(config))), "write_done": In(1), "write_room": In(WORDS)}


class Transfers(wiring.Component):
    """Asks for the words of chains and of the host, unpacks tiles, and passes words for Dram on.

    Members:
        read_words, store_words, tile_words: In(stream Walk). Words of Dram of chains that read words, write words or
            load tiles.
        move: In(stream MoveJob). What moves as it is, while no other chain runs. bias: Out(stream {address, data}),
            entry_write: Out(stream {address, entry}), entries: Out(`entry_reads`). Its writes and reads on the chip.
        entry_read, entry_written: Out(1). An entry moves, for the counters.
        load: In(stream LoadJob). The tiles that these words make.
        product: In. Number of products whose tiles have been read.
        running: In(1). A program runs; words that are read are for its chains, else for the host.
        read: Out(stream word). Words for chains. stored: In(stream word). Words of chains for Dram.
        packed: Out(stream packed). Records of tiles.
        reads_done, stores_done, load_done, move_done: Out. Number of chains whose words have come, whose words are in
            Dram, whose tiles are loaded, and that have moved.
        words_range ... write_done: the port's side.
        outside: In(stream {first, left, word}). Words of the host for Dram. outside_range: In(stream Range). Words that
            it reads, after all that it has written. outside_words: Out(stream word). These words.
        room: Out(1). Dram takes as many more words as the multi-function units hold.
        message_error: In(1). A message of the host is damaged. settled: Out(1). All words of the host are in Dram.
        words_read, words_written: Out. Number of words that programs read and write in this cycle.
    """

    def __init__(self, config: Config):
        self.config = config
        words = stream.Signature(word(config))
        entry_write = stream.Signature(message_payloads.entry_write(config))
        entries = {"entries": Out(entry_reads(config)), "entry_write": Out(entry_write), "entry_read": Out(1),
                   "entry_written": Out(1)} if config.vector_rf else {}
        super().__init__({
            **{name: In(stream.Signature(Walk)) for name in ("read_words", "store_words", "tile_words")},
            "load": In(stream.Signature(LoadJob)), "product": In(TICKET), "running": In(1), "read": Out(words),
            "stored": In(words), "packed": Out(stream.Signature(message_payloads.packed(config))),
            **{f"{name}_done": Out(TICKET) for name in ("reads", "stores", "load")}, **port_side(config),
            "outside": In(stream.Signature(message_payloads.outside(config))),
            "outside_range": In(stream.Signature(Range)), "outside_words": Out(words),
            "move": In(stream.Signature(MoveJob)), "move_done": Out(TICKET),
            "bias": Out(stream.Signature(message_payloads.bias(config))), **entries,
            "words_read": Out(range(words_of_beat(config) + 2)), "words_written": Out(1), "room": Out(1),
            "settled": Out(1), "message_error": In(1)})

    def elaborate(self, platform):
        m = Module()
        walkers = {"read_words": RangeWalker(), "store_words": RangeWalker(),
                   "tile_words": RangeWalker(tile_words(self.config))}
        m.submodules.mover = self.mover = mover = Mover(self.config)
        wiring.connect(m, wiring.flipped(self.move), mover.job)
        moves = {"read_words": [mover.codes_walk]} | (
            {"store_words": [mover.store_walk, mover.exponents_walk]} if self.config.vector_rf else {})
        for name, walker in walkers.items():
            m.submodules[f"walk_{name}"] = walker
            m.submodules[f"{name}_jobs"] = jobs = Queue(Walk, self.config.chain_queue)
            wiring.connect(m, wiring.flipped(getattr(self, name)), jobs.i)
            m.d.comb += [walker.i.valid.eq(jobs.o.valid), walker.i.p.eq(jobs.o.p), jobs.o.ready.eq(walker.i.ready)]
            if name in moves:
                with m.If(mover.busy):  # no other chain runs
                    one = moves[name][0]  # all have the same payload
                    m.d.comb += [walker.i.valid.eq(Cat(move.valid for move in moves[name]).any()), jobs.o.ready.eq(0),
                                 walker.i.p.eq(one.p), *(move.ready.eq(walker.i.ready) for move in moves[name])]
        self.unanswered = Signal(32)  # ranges of the host that are not in Dram yet
        self._moves(m)
        self._reads(m, walkers["read_words"].o)
        self._stores(m, walkers["store_words"].o)
        self._tiles(m, walkers["tile_words"].o, walkers["store_words"].o)
        self._loads(m)
        return m

    def _reads(self, m, chains):
        """Give words to chains, or to the host while no program runs."""
        mover = self.mover
        begins, words = self.write_range.valid & self.write_range.ready & ~self.running, self.words
        m.d.sync += self.unanswered.eq(self.unanswered + begins - (self.write_done & ~self.running))
        host = self.outside_range.valid & self.settled & ~self.running
        m.d.comb += [
            self.words_range.valid.eq(Mux(self.running, chains.valid, host)),
            self.words_range.p.eq(Mux(self.running, chains.p.as_value(), self.outside_range.p.as_value())),
            chains.ready.eq(self.running & self.words_range.ready),
            self.outside_range.ready.eq(host & self.words_range.ready),
            self.read.valid.eq(words.valid & self.running & ~mover.busy), self.read.p.eq(words.p.word),
            self.outside_words.valid.eq(words.valid & ~self.running), self.outside_words.p.eq(words.p.word),
            mover.codes.valid.eq(words.valid & mover.busy), mover.codes.p.eq(words.p.word), words.ready.eq(
                Mux(mover.busy, mover.codes.ready, Mux(self.running, self.read.ready, self.outside_words.ready))),
            self.words_read.eq((self.running & words.valid & words.ready)
                                + Mux(self.tiles.valid & self.tiles.ready, self.tiles.p.count, 0))]
        m.d.sync += self.reads_done.eq(self.reads_done + (
            self.running & ~mover.busy & words.valid & words.ready & words.p.last))

    def _stores(self, m, chains):
        """Take words of chains, or of the host while no program runs."""
        o, mover, into = self.write_range, self.mover, self.write_word
        taken, first, count = self._host_words(m)
        m.d.comb += [
            o.valid.eq(chains.valid), o.p.eq(chains.p), chains.ready.eq(o.ready), into.valid.eq(self.stored.valid),
            into.p.eq(self.stored.p), self.stored.ready.eq(into.ready),
            self.words_written.eq(self.running & into.valid & into.ready)]
        with m.If(~self.running):
            m.d.comb += [
                o.valid.eq(taken), o.p.first.eq(first), o.p.count.eq(count), o.p.tag.eq(0), o.p.last.eq(1),
                chains.ready.eq(0), into.valid.eq(self.outside.valid & ~taken), into.p.eq(self.outside.p.word),
                self.outside.ready.eq(into.ready & ~taken), self.stored.ready.eq(0)]
        m.d.sync += [self.room.eq(self.write_room > mfu_pipeline(self.config) + MARGIN),
                     self.stores_done.eq(self.stores_done + (self.write_done & self.running & ~mover.busy))]
        if self.config.vector_rf:
            with m.If(mover.busy):
                m.d.comb += [into.valid.eq(mover.stored.valid), into.p.eq(mover.stored.p),
                             mover.stored.ready.eq(into.ready), self.stored.ready.eq(0)]

    def _tiles(self, m, chains, exponents):
        """Ask for tiles, or for the exponents of entries that move, which are walked instead of words to write."""
        o = self.tiles_range
        m.d.comb += [o.valid.eq(chains.valid), o.p.eq(chains.p), chains.ready.eq(o.ready)]
        if self.config.vector_rf:
            with m.If(self.mover.reads):
                m.d.comb += [o.valid.eq(exponents.valid), o.p.eq(exponents.p), exponents.ready.eq(o.ready),
                             self.write_range.valid.eq(0)]

    def _host_words(self, m):
        """Gather words of the host that follow each other; a damaged message ends anywhere.

        Returns:
            Whether the range of these words is to be written now, its first word, and their number.
        """
        host, first, count = self.outside, Signal(WORDS), Signal(range(GATHERED + 1))
        leaves, ends, next_ = Signal(), Signal(), Signal(WORDS)
        m.d.comb += leaves.eq((count != 0) & (ends | (count == GATHERED) | self.message_error | (
            host.valid & (host.p.first != next_))))
        with m.If(leaves & self.write_range.ready & ~self.running):
            m.d.sync += [count.eq(0), ends.eq(0)]
        with m.Elif(host.valid & host.ready):
            m.d.sync += [count.eq(count + 1), ends.eq(host.p.left == 1), next_.eq(host.p.first + 1)]
            with m.If(count == 0):
                m.d.sync += first.eq(host.p.first)
        m.d.comb += self.settled.eq((count == 0) & ~host.valid & (self.unanswered == 0))
        return leaves, first, count

    def _moves(self, m):
        """Connect what moves as it is to the memories of the chip."""
        mover = self.mover
        wiring.connect(m, mover.bias, wiring.flipped(self.bias))
        m.d.comb += self.move_done.eq(mover.done)
        if self.config.vector_rf:
            wiring.connect(m, mover.entries, wiring.flipped(self.entries))
            wiring.connect(m, mover.entry_write, wiring.flipped(self.entry_write))
            m.d.comb += [mover.written.eq(self.write_done & self.running), self.entry_read.eq(mover.entry_read),
                         self.entry_written.eq(mover.entry_written)]

    def _loads(self, m):
        """Unpack tiles, those of each chain once the product before has read the tiles that they overwrite."""
        m.submodules.unpacker = unpacker = TileUnpacker(self.config)
        m.submodules.load_jobs = jobs = Queue(LoadJob, self.config.chain_queue)
        wiring.connect(m, wiring.flipped(self.load), jobs.i)
        known, taken = Signal(), Signal()
        m.d.comb += [
            unpacker.job.valid.eq(known), taken.eq(known & unpacker.job.ready), jobs.o.ready.eq(taken),
            *(unpacker.job.p[name].eq(jobs.o.p[name]) for name in ("tile", "integer", "diagonal", "count")),
            unpacker.i.valid.eq(self.tiles.valid & ~self.mover.busy), unpacker.i.p.eq(self.tiles.p),
            self.tiles.ready.eq(unpacker.i.ready)]
        if self.config.vector_rf:
            self._single_words(m, self.mover.exponents)
        m.d.sync += [
            known.eq(jobs.o.valid & ~taken & ~waiting(jobs.o.p.product, self.product)),
            self.load_done.eq(self.load_done + delay_control(m, unpacker.done, WRITTEN))]
        wiring.connect(m, unpacker.o, wiring.flipped(self.packed))

    def _single_words(self, m, o):
        """Give the words of exponents one by one to what moves as it is."""
        i, index = self.tiles, Signal(range(words_of_beat(self.config)))  # the next word of the present group
        last = index == i.p.count - 1
        m.d.comb += [o.valid.eq(i.valid & self.mover.busy), o.p.eq(i.p.words[index])]
        with m.If(self.mover.busy):
            m.d.comb += i.ready.eq(o.ready & last)
        with m.If(o.valid & o.ready):
            m.d.sync += index.eq(Mux(last, 0, index + 1))
