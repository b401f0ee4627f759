"""Reads the source of a chain word by word, from a vector memory or a queue."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.lib.jobs import blocked, progress, source_fields
from concord.hw.lib.payloads import MVM, NET, address_bits, word
from concord.spec.isa.instructions import REGISTER_BITS
from concord.spec.isa.memories import VRFS
from concord.spec.machine.config import Config


def walk(config: Config) -> data.StructLayout:
    """Addresses of the words of a chain's source."""
    return data.StructLayout({"valid": 1, **source_fields(config)})


def read_request(config: Config) -> data.StructLayout:
    """Read request to a vector memory."""
    return data.StructLayout({"valid": 1, "memory": range(len(VRFS)), "address": address_bits(config)})


def vector_reads(config: Config) -> wiring.Signature:
    """Reads of the vector memories: a request, its grant, and the word one cycle after the grant."""
    return wiring.Signature({"request": Out(read_request(config)), "grant": In(1), "data": In(word(config))})


def unwritten(m: Module, unit, job, address):
    """Whether an older chain may still write the word at `address` of the vector memory that a job reads.

    Args:
        unit: The reader, whose ports `mfu` and `copy` have the progress of the two pipelines that write.
    """
    lows = {pipe: Signal(address.shape(), name=f"low_{pipe}") for pipe in ("mfu", "copy")}
    with m.Switch(job.memory):
        for k in range(len(VRFS)):
            with m.Case(k):
                m.d.comb += [low.eq(getattr(unit, pipe).low[k]) for pipe, low in lows.items()]
    return Cat(blocked(job.source[pipe], getattr(unit, pipe), low, address) for pipe, low in lows.items()).any()


class AddressGenerator(wiring.Component):
    """Reads the words of a chain's source, each as soon as no older chain may still write it.

    Members:
        job: In(`walk`). The present chain; held until `last` is taken.
        hold: In(1). The pipeline cannot take a word now.
        mfu, copy: In(`progress`). Progress of the two pipelines that write vector memories.
        vectors: Out(`vector_reads`). Reads of the vector memories.
        net, pop: In(stream word). Words from NetQ and from MvmQ.
        go: Out(1). A word is taken in this cycle. word: Out. That word, one cycle later.
        index, iteration: Out. Number of the present word within its iteration, and number of the iteration.
        last_word, last_iteration, last: Out(1). The word is the last of its iteration; the iteration is the last one;
            the word is the last of the chain.
        starved: Out(1). The queue is empty. waits: Out(1). The word is missing, or an older chain must still write it.

    Timing:
        One word a cycle.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "job": In(walk(config)), "hold": In(1), "mfu": In(progress(config)), "copy": In(progress(config)),
            "vectors": Out(vector_reads(config)),
            "net": In(stream.Signature(word(config))), "pop": In(stream.Signature(word(config))),
            "go": Out(1), "word": Out(word(config)), "index": Out(REGISTER_BITS), "iteration": Out(REGISTER_BITS),
            "last_word": Out(1), "last_iteration": Out(1), "last": Out(1), "starved": Out(1), "waits": Out(1)})

    def elaborate(self, platform):
        m = Module()
        job = self.job
        offset = self._offset(m)
        address = Signal(address_bits(self.config))
        m.d.comb += address.eq(job.source.lo + offset)

        written = ~unwritten(m, self, job, address)
        from_net, from_pop = job.memory == NET, job.memory == MVM
        active, request = job.valid & ~self.hold, self.vectors.request
        m.d.comb += [
            request.valid.eq(active & job.source.valid & written), request.memory.eq(job.memory),
            request.address.eq(address), self.go.eq(active & Mux(
                from_net, self.net.valid, Mux(from_pop, self.pop.valid, written & self.vectors.grant))),
            self.net.ready.eq(active & from_net), self.pop.ready.eq(active & from_pop),
            self.starved.eq(active & from_net & ~self.net.valid), self.waits.eq(active & ~self.go)]

        queued, word_queued = Signal(), Signal(word(self.config))
        m.d.sync += [queued.eq(from_net | from_pop), word_queued.eq(Mux(from_net, self.net.payload, self.pop.payload))]
        m.d.comb += self.word.eq(Mux(queued, word_queued, self.vectors.data))
        return m

    def walk(self, job) -> list:
        """Statements that drive the fields of `job` from a job; the pipeline drives its `valid`."""
        return [self.job[name].eq(job[name]) for name in self.job.shape().members if name != "valid"]

    def _offset(self, m):
        """Offset of the present word from the first address of the source."""
        job, bits = self.job, address_bits(self.config)
        offset, along_x, along_y = Signal(bits), Signal(bits), Signal(bits)
        x = Signal(REGISTER_BITS)
        turn = x == job.iterations_x - 1
        following = Mux(turn, along_y + job.stride_y, along_x + job.stride_x)[:bits]
        m.d.comb += [self.last_word.eq(self.index == job.words - 1),
                     self.last_iteration.eq(self.iteration == job.iterations - 1),
                     self.last.eq(self.last_word & self.last_iteration)]
        with m.If(self.go):
            m.d.sync += [offset.eq(offset + 1), self.index.eq(self.index + 1)]
            with m.If(self.last):
                m.d.sync += [s.eq(0) for s in (offset, along_x, along_y, x, self.index, self.iteration)]
            with m.Elif(self.last_word):
                m.d.sync += [self.index.eq(0), self.iteration.eq(self.iteration + 1), x.eq(Mux(turn, 0, x + 1)),
                             offset.eq(Mux(job.source.inc, following, 0)), along_x.eq(following)]
                with m.If(turn):
                    m.d.sync += along_y.eq(following)
        return offset
