"""Reads the vectors of products for the quantiser."""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.lib.jobs import TICKET, fetch_job, progress, waiting
from concord.hw.lib.payloads import operand_word, word
from concord.hw.lib.read_ahead import ReadAhead
from concord.hw.schedule.address_generator import AddressGenerator, vector_reads
from concord.spec.machine.config import Config


class OperandFetch(wiring.Component):
    """Reads the source of each `mv_mul`, all native vectors of all iterations, in program order.

    Members:
        job: In(stream fetch_job). Sources of products.
        mfu, copy: In(`progress`). Progress of the two pipelines that write vector memories.
        vectors: Out(`vector_reads`). Reads of the vector memories.
        net: In(stream word). Words from NetQ.
        o: Out(stream operand_word). Words of the vectors; `last` marks the last word of an iteration.
        done: Out. Number of chains whose source has been read.
        busy, waits, starved, queue: Out(1). A word moves; the chain waits; NetQ is empty; the word is from NetQ.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "job": In(stream.Signature(fetch_job(config))), "mfu": In(progress(config)), "copy": In(progress(config)),
            "vectors": Out(vector_reads(config)),
            "net": In(stream.Signature(word(config))),
            "o": Out(stream.Signature(operand_word(config.mfu_lanes))), "done": Out(TICKET),
            "busy": Out(1), "waits": Out(1), "starved": Out(1)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.source = source = AddressGenerator(self.config)
        m.submodules.ahead = ahead = ReadAhead(self.config, 3)
        job = self.job.p
        # Writes of earlier iterations of this chain, which a later iteration may read.
        own = (job.own.ticket - self.mfu.done)[:TICKET].as_signed()
        landed = (own <= 0) | ((own == 1) & (self.mfu.iteration >= source.iteration))
        wiring.connect(m, wiring.flipped(self.net), source.net)
        wiring.connect(m, source.vectors, wiring.flipped(self.vectors))
        m.d.comb += source.walk(job)
        m.d.comb += [
            source.job.valid.eq(self.job.valid),
            source.hold.eq(~ahead.room | waiting(job.mfu, self.mfu.done) | waiting(job.copy, self.copy.done)
                           | (job.own.valid & ~landed & (source.iteration != 0))),
            source.mfu.eq(self.mfu), source.copy.eq(self.copy),
            ahead.take.eq(source.go), ahead.tag.eq(Cat(job.integer, job.unsigned, source.last_word)),
            ahead.word.eq(source.word),
            self.o.valid.eq(ahead.o.valid), ahead.o.ready.eq(self.o.ready), self.o.p.word.eq(ahead.o.p.word),
            Cat(self.o.p.integer, self.o.p.unsigned, self.o.p.last).eq(ahead.o.p.tag),
            self.job.ready.eq(source.go & source.last),
            self.busy.eq(source.go), self.waits.eq(self.job.valid & ~source.go), self.starved.eq(source.starved)]
        with m.If(source.go & source.last):
            m.d.sync += self.done.eq(self.done + 1)
        return m
