"""Reads the source of a chain word by word, from a vector memory or a queue."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.lib.jobs import progress, source_fields
from concord.hw.lib.lookahead import Ahead, Turns, following, pending, unfinished
from concord.hw.lib.payloads import DRAM, MVM, NET, VECTOR_READ, address_bits, word
from concord.hw.lib.pipeline import delay
from concord.spec.isa.instructions import REGISTER_BITS
from concord.spec.isa.memories import VRFS
from concord.spec.machine.config import Config

#: Position of a word: the iteration; whether it is the first or last word of its iteration, and this the first
#: or last iteration of the chain.
WordPosition = data.StructLayout({
    "valid": 1, "iteration": REGISTER_BITS, "first_word": 1, "first_iteration": 1, "last_word": 1, "last_iteration": 1})


def walk(config: Config) -> data.StructLayout:
    """Addresses of the words of a chain's source."""
    return data.StructLayout(source_fields(config))


def read_request(config: Config) -> data.StructLayout:
    """Read request to a vector memory."""
    return data.StructLayout({"valid": 1, "memory": range(len(VRFS)), "address": address_bits(config)})


def vector_reads(config: Config) -> wiring.Signature:
    """Reads of the vector memories: a request, its grant, and the word VECTOR_READ cycles after."""
    return wiring.Signature({"request": Out(read_request(config)), "grant": In(1), "data": In(word(config))})


def outside_words(config: Config) -> dict:
    """The member `outside` of units that read words of Dram: a stream of them."""
    return {"outside": In(stream.Signature(word(config)))} if config.dram_words else {}


def written(m: Module, unit, ahead: Ahead, coming, present):
    """Whether all older chains have written the present word of a vector memory.

    The lowest unwritten address is that of one memory, the one that was looked at in the cycle before: a word of
    another one waits for it.

    Args:
        unit: The reader, whose ports `mfu` and `copy` have the progress of the two pipelines that write.
        coming, present: Words, with fields `memory`, `address` and, as a `Wait` of the word, `mfu` and `copy`.
    """
    done = {pipe: following(m, f"following_{pipe}", getattr(unit, pipe).done) for pipe in ("mfu", "copy")}
    lows = {pipe: Signal(coming["address"].shape(), name=f"low_{pipe}") for pipe in ("mfu", "copy")}
    seen = Signal.like(coming["memory"], name="seen_memory")

    def condition(choose):
        memory, address = (choose(coming[name], present[name]) for name in ("memory", "address"))
        m.d.sync += seen.eq(memory)
        with m.Switch(memory):
            for k in range(len(VRFS)):
                with m.Case(k):
                    m.d.sync += [low.eq(getattr(unit, pipe).low[k]) for pipe, low in lows.items()]
        return ~Cat(unfinished(choose(coming[pipe], present[pipe]), done[pipe], (memory == seen) & (address < low))
                    for pipe, low in lows.items()).any()

    return ahead.certain("written", condition)


class AddressGenerator(wiring.Component):
    """Reads the words of a chain's source, each as soon as no older chain may still write it.

    Members:
        job: In(stream `walk`). Chains, taken one word ahead.
        hold: In(1). The pipeline cannot take the present word now.
        mfu, copy: In(`progress`). Progress of the two pipelines that write vector memories.
        vectors: Out(`vector_reads`). Reads of the vector memories.
        net, pop: In(stream word). Words from NetQ and from MvmQ.
        outside: In(stream word). Words from Dram, on machines with Dram.
        walked, coming, present: Out(`WordPosition`). The words of `Ahead`. advance, begins, move: Out(1). Its needs.
        go: Out(1). The present word is taken in this cycle. word: Out. That word, VECTOR_READ cycles later.
        last: Out(1). The present word is the last one of the chain.
        starved: Out(1). The queue is empty. waits: Out(1). The word is missing, or an older chain must still write it.

    Timing:
        One word a cycle, without a gap between chains; the first one 4 cycles after `job` is taken. A word that waits
        for an older chain goes 2 cycles after the progress.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "job": In(stream.Signature(walk(config))), "hold": In(1), "mfu": In(progress(config)),
            "copy": In(progress(config)), "vectors": Out(vector_reads(config)),
            "net": In(stream.Signature(word(config))), "pop": In(stream.Signature(word(config))),
            **outside_words(config), **{name: Out(WordPosition) for name in ("walked", "coming", "present")},
            **{name: Out(1) for name in ("advance", "begins", "move")},
            "go": Out(1), "word": Out(word(config)), "last": Out(1), "starved": Out(1), "waits": Out(1)})

    def ahead(self, m: Module) -> Ahead:
        """The words, for what a pipeline keeps of them or looks up."""
        return Ahead(m, walked=self.walked.valid, advance=self.advance, begins=self.begins, coming=self.coming.valid,
                     move=self.move)

    def elaborate(self, platform):
        m = Module()
        job, source, words = self.job.p, self.job.p.source, self.ahead(m)
        memory, reads = words.of_job("memory", job.memory), words.of_job("reads", source.valid)
        address = self._walk(m, words)
        values = {"memory": memory, "reads": reads, "net": memory == NET, "pop": memory == MVM, "address": address}
        if self.config.dram_words:
            values["outside"] = memory == DRAM
        for pipe in ("mfu", "copy"):
            values[pipe] = pending(m, f"pending_{pipe}", words.of_job(pipe, source[pipe]), address, reads)
        coming, present = words.carry_all(values)
        names = [name for name in WordPosition.members if name != "valid"]
        carried, _ = words.carry_all({name: self.walked[name] for name in names})
        queue, valid = words.queue(), Signal()
        with m.If(self.move):
            m.d.sync += self.present.eq(self.coming)
        m.d.comb += [
            *(self.coming[name].eq(carried[name]) for name in names), self.coming.valid.eq(queue.o.valid),
            self.move.eq(~self.present.valid | self.go), self.advance.eq(~valid | queue.i.ready),
            self.walked.valid.eq(valid),
            self.begins.eq(~valid | (self.walked.last_word & self.walked.last_iteration)),
            self.job.ready.eq(self.advance & self.begins)]
        with m.If(self.job.ready):
            m.d.sync += valid.eq(self.job.valid)
        self._read(m, present, written(m, self, words, coming, present))
        return m

    def _read(self, m, now, certain):
        """Read the present word, once it is certain that it is written."""
        active, request = Signal(), self.vectors.request
        there = Mux(now["net"], self.net.valid, Mux(now["pop"], self.pop.valid, self.vectors.grant))
        queued, word_queued = now["net"] | now["pop"], Mux(now["net"], self.net.payload, self.pop.payload)
        if self.config.dram_words:
            queued, there = queued | now["outside"], Mux(now["outside"], self.outside.valid, there)
            word_queued = Mux(now["outside"], self.outside.payload, word_queued)
            m.d.comb += self.outside.ready.eq(active & now["outside"])
        m.d.comb += [
            active.eq(self.present.valid & ~self.hold),
            self.last.eq(self.present.last_word & self.present.last_iteration),
            request.valid.eq(active & now["reads"] & certain), request.memory.eq(now["memory"]),
            request.address.eq(now["address"]), self.go.eq(active & certain & there),
            self.net.ready.eq(active & now["net"]), self.pop.ready.eq(active & now["pop"]),
            self.starved.eq(active & now["net"] & ~self.net.valid), self.waits.eq(active & ~self.go)]
        m.d.comb += self.word.eq(Mux(
            delay(m, queued, VECTOR_READ), delay(m, word_queued, VECTOR_READ), self.vectors.data))

    def walk(self, job) -> list:
        """Statements that drive the payload of `job` from that of a pipeline."""
        return [self.job.p[name].eq(job[name]) for name in self.job.p.shape().members]

    def _walk(self, m, words):
        """Address of the word that is walked to."""
        job, bits = self.job.p, address_bits(self.config)
        # The word, and the first words of its iteration and of the first iteration of its row.
        address, along_x, along_y = (Signal(bits, name=name) for name in ("address", "along_x", "along_y"))
        word, iteration, x = Turns("word"), Turns("iteration"), Turns("x")
        stride_x, stride_y = (
            words.of_job(name, Mux(job.source.inc, job[name], 0)) for name in ("stride_x", "stride_y"))
        first_word, first_iteration, place = Signal(), Signal(), self.walked
        next_iteration = Signal(bits)
        m.d.comb += [
            next_iteration.eq(Mux(x.last, along_y, along_x) + Mux(x.last, stride_y, stride_x)),
            place.iteration.eq(iteration.number), place.first_word.eq(first_word),
            place.first_iteration.eq(first_iteration), place.last_word.eq(word.last),
            place.last_iteration.eq(iteration.last)]
        with m.If(self.advance):
            m.d.sync += [*word.step(), address.eq(address + 1), first_word.eq(word.last)]
            with m.If(word.last):
                m.d.sync += [*iteration.step(), *x.step(), address.eq(next_iteration), along_x.eq(next_iteration),
                             first_iteration.eq(0)]
                with m.If(x.last):
                    m.d.sync += along_y.eq(next_iteration)
            with m.If(self.begins):
                m.d.sync += [*word.begin(job.words), *iteration.begin(job.iterations), *x.begin(job.iterations_x),
                             first_word.eq(1), first_iteration.eq(1),
                             *(start.eq(job.source.lo) for start in (address, along_x, along_y))]
        return address
