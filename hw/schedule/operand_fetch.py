"""Reads the vectors of products for the quantiser."""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.lib.jobs import TICKET, fetch_job, progress
from concord.hw.lib.lookahead import following, unfinished
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
        job, words = self.job.p, source.ahead(m)
        wiring.connect(m, wiring.flipped(self.net), source.net)
        wiring.connect(m, source.vectors, wiring.flipped(self.vectors))
        _, mode = words.of_jobs({"integer": job.integer, "unsigned": job.unsigned})
        certain = self._certain(m, words, source)
        words.queue()
        m.d.comb += [
            *source.walk(job), source.job.valid.eq(self.job.valid), self.job.ready.eq(source.job.ready),
            source.hold.eq(~ahead.room | ~certain), source.mfu.eq(self.mfu), source.copy.eq(self.copy),
            ahead.take.eq(source.go), ahead.tag.eq(Cat(*mode.values(), source.present.last_word)),
            ahead.word.eq(source.word),
            self.o.valid.eq(ahead.o.valid), ahead.o.ready.eq(self.o.ready), self.o.p.word.eq(ahead.o.p.word),
            Cat(self.o.p.integer, self.o.p.unsigned, self.o.p.last).eq(ahead.o.p.tag),
            self.busy.eq(source.go), self.waits.eq(source.present.valid & ~source.go),
            self.starved.eq(source.starved)]
        with m.If(source.go & source.last):
            m.d.sync += self.done.eq(self.done + 1)
        return m

    def _certain(self, m, words, source):
        """Whether the present word waits for no chain, neither for a whole one nor for an iteration of its own."""
        job = self.job.p
        coming, present = words.of_jobs({"mfu": job.mfu, "copy": job.copy, "own": job.own})
        done = {pipe: following(m, f"following_{pipe}", getattr(self, pipe).done) for pipe in ("mfu", "copy")}

        def older(choose):
            return ~Cat(unfinished(choose(coming[pipe], present[pipe]), done[pipe]) for pipe in done).any()

        def own(choose):
            # Writes of earlier iterations of this chain, which a later iteration may read.
            iteration = choose(source.coming.iteration, source.present.iteration)
            return choose(source.coming.first_iteration, source.present.first_iteration) | ~unfinished(
                choose(coming["own"], present["own"]), done["mfu"], self.mfu.iteration >= iteration)

        return words.certain("older", older) & words.certain("own", own)
