"""The copy pipeline, which moves words past the multi-function units, and native tiles to MatrixRf."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.lib import message_payloads
from concord.hw.lib.jobs import TICKET, copy_job, progress, write_job
from concord.hw.lib.lookahead import following, unfinished
from concord.hw.lib.payloads import Load, word
from concord.hw.lib.read_ahead import ReadAhead
from concord.hw.schedule.address_generator import AddressGenerator, outside_words, vector_reads
from concord.hw.schedule.writeback import Writeback, write_request
from concord.spec.isa.instructions import REGISTER_BITS
from concord.spec.isa.memories import VRFS
from concord.spec.machine.config import Config


class Copy(wiring.Component):
    """Copies the words of chains without arithmetic, and moves native tiles from NetQ to the matrix quantiser.

    Members:
        job, write_job: In(stream copy_job, write_job). Sources and writes of chains; `m_rd` has no write_job.
        mfu: In(`progress`). Progress of the multi-function units. fetch, product: In. Tickets of the last chain whose
            vectors, and of the last chain whose tiles, have been read.
        vectors: Out(`vector_reads`). Reads of the vector memories.
        net: In(stream word). Words from NetQ.
        writes: Out. One request for each vector memory. free: In. Memories that can take a write now.
        out: Out(stream `message_payloads.outgoing`). Words for the host.
        outside: In(stream word). stored: Out(stream word). Words from Dram and for it, on machines with Dram.
        load: Out(stream {tile, integer}). Tile that the matrix quantiser is to load. matrix_word: Out(stream word).
            Words of that tile. load_done: In(1). Pulse: a tile has been loaded.
        vector_word: Out(stream word). Words of vectors of which tiles are made, on machines with Dram.
        progress: Out. Number of finished chains, loads included, and position within the present one; late.
        busy, waits, starved: Out(1). Activity for the counters. reads: Out(1). A word of a chain is read.

    Timing:
        One word a cycle. A load starts when all earlier copies have landed, and ends before the next chain starts.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "job": In(stream.Signature(copy_job(config))), "write_job": In(stream.Signature(write_job(config))),
            "mfu": In(progress(config)), "fetch": In(TICKET), "product": In(TICKET),
            "vectors": Out(vector_reads(config)),
            "net": In(stream.Signature(word(config))),
            "writes": Out(data.ArrayLayout(write_request(config), len(VRFS))), "free": In(len(VRFS)),
            "out": Out(stream.Signature(message_payloads.outgoing(config))),
            "load": Out(stream.Signature(Load)),
            "matrix_word": Out(stream.Signature(word(config))), "load_done": In(1),
            "progress": Out(progress(config)), "landed": Out(1),
            "busy": Out(1), "waits": Out(1), "starved": Out(1), **outside_words(config),
            **(dict.fromkeys(("stored", "vector_word"), Out(stream.Signature(word(config)))) if config.dram_words
               else {})})

    def elaborate(self, platform):
        m = Module()
        m.submodules.source = source = AddressGenerator(self.config)
        dram = bool(self.config.dram_words)
        m.submodules.ahead = ahead = ReadAhead(self.config, 1 + dram)
        m.submodules.writeback = back = Writeback(self.config)
        job, words = self.job.p, source.ahead(m)
        coming, present = words.of_jobs({name: job[name] for name in (
            "matrix", "tile", "integer", "serial", "iterations", "fetch", "mfu", "product",
            *(("vectors", "count") if dram else ()))})
        done = {"fetch": self.fetch, "mfu": self.mfu.done, "product": self.product}
        done = {pipe: following(m, f"following_{pipe}", tickets) for pipe, tickets in done.items()}
        certain = words.certain("older", lambda choose: ~Cat(
            unfinished(choose(coming[pipe], present[pipe]), done[pipe]) for pipe in done).any())

        words.queue()

        # The first word of a tile also sends its load request. Tiles that are made of vectors have their own.
        position, first = source.present, Signal()
        ending, ended = Signal(), Signal()
        requests, holds, tag = present["matrix"], ~ahead.room | ~certain | ending, present["matrix"]
        if dram:
            vectors = present["vectors"]
            requests, tag = requests & ~vectors, Cat(tag, vectors)
            holds |= vectors & position.first_word & position.first_iteration & ~ahead.empty
        wiring.connect(m, wiring.flipped(self.net), source.net)
        wiring.connect(m, source.vectors, wiring.flipped(self.vectors))
        if self.config.dram_words:
            wiring.connect(m, wiring.flipped(self.outside), source.outside)
            wiring.connect(m, back.outside, wiring.flipped(self.stored))
        m.d.comb += [
            *source.walk(job), source.job.valid.eq(self.job.valid), self.job.ready.eq(source.job.ready),
            source.mfu.eq(self.mfu), source.copy.eq(self.progress), first.eq(requests & position.first_word),
            source.hold.eq(holds | (present["serial"] & ~ahead.empty)
                           | (first & ~(self.load.ready & (ahead.empty | ~position.first_iteration)))),
            self.load.valid.eq(first & source.go), self.load.p.tile.eq(present["tile"] + position.iteration),
            self.load.p.integer.eq(present["integer"]),
            ahead.take.eq(source.go), ahead.tag.eq(tag), ahead.word.eq(source.word),
            self.busy.eq(source.go), self.waits.eq(position.valid & ~source.go), self.starved.eq(source.starved)]

        # After the last word of a chain of tiles, the next chain waits until all of them are loaded.
        loaded, loads, tiles = Signal(TICKET), Signal(REGISTER_BITS), Signal(REGISTER_BITS)
        m.d.comb += ended.eq(ending & (loads == tiles))
        m.d.sync += [
            ending.eq((ending & ~ended) | (source.go & source.last & present["matrix"])),
            loads.eq(Mux(ended, 0, loads + self.load_done)), loaded.eq(loaded + ended),
            self.progress.done.eq(back.progress.done + loaded)]
        with m.If(source.go):
            m.d.sync += tiles.eq(present["count" if dram else "iterations"])

        matrix, ready = ahead.o.p.tag, self.matrix_word.ready
        if dram:
            matrix, vectors = ahead.o.p.tag
            ready = Mux(vectors, self.vector_word.ready, ready)
            m.d.comb += [self.vector_word.payload.eq(ahead.o.p.word),
                         self.vector_word.valid.eq(ahead.o.valid & vectors)]
        m.d.comb += [
            self.matrix_word.payload.eq(ahead.o.p.word),
            self.matrix_word.valid.eq(ahead.o.valid & (matrix & ~vectors if dram else matrix)),
            back.i.p.value.eq(ahead.o.p.word), back.i.valid.eq(ahead.o.valid & ~matrix),
            ahead.o.ready.eq(Mux(matrix, ready, back.i.ready)),
            back.free.eq(self.free), self.writes.eq(back.writes), self.landed.eq(back.landed),
            self.progress.iteration.eq(back.progress.iteration), self.progress.low.eq(back.progress.low)]
        wiring.connect(m, wiring.flipped(self.write_job), back.job)
        wiring.connect(m, back.net, wiring.flipped(self.out))
        return m
