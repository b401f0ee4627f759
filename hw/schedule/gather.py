"""Reads the sources of chains in windows, from vector memories, and from VectorRf as numbers."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.lib.jobs import entry_blocked, entry_progress, entry_writers, gather_job, progress
from concord.hw.lib.payloads import ENTRIES, ENTRY_READ, Mode, address_bits, entry_reads, lane_group, word
from concord.hw.lib.pipeline import delay, delay_control
from concord.hw.schedule.address_generator import unwritten, vector_reads
from concord.spec.isa.instructions import REGISTER_BITS
from concord.spec.machine.config import Config


def pixel(config: Config) -> data.StructLayout:
    """One word of one pixel: a `word` of a vector memory, or `lanes` of an entry of VectorRf in the mode `mode`.

    `first` and `last` mark the first and the last pixel of a window, whose words make one word of the chain.
    """
    return data.StructLayout({
        "word": word(config), "lanes": lane_group(config.activations, config.mfu_lanes), "mode": Mode,
        "from_entries": 1, "first": 1, "last": 1, "pool": 1})


class Gather(wiring.Component):
    """Reads each word of each pixel of a chain, as soon as no older chain may still write it.

    The order is that of iterations, then words, then the pixels of the window, row by row. A chain never writes what it
    gathers, so the unit may run ahead of the chains before it.

    Members:
        job: In(stream gather_job). Chains.
        mfu, copy: In(`progress`). Progress of the two pipelines that write vector memories.
        writers, entries: In(entry_writers, entry_progress). Chains that write VectorRf, and their progress.
        vectors: Out(`vector_reads`). Reads of the vector memories.
        vector_rf: Out(`entry_reads`). Reads of VectorRf.
        room: In(1). There is space for a word of the chain. take: Out(1). A pixel begins such a word.
        o: Out {valid, p: `pixel`}. Pixels, always taken.
        busy, waits: Out(1). Activity for the counters.

    Timing:
        One pixel a cycle, which comes out three cycles after its grant.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "job": In(stream.Signature(gather_job(config))), "mfu": In(progress(config)), "copy": In(progress(config)),
            "writers": In(entry_writers(config)), "entries": In(entry_progress(config)),
            "vectors": Out(vector_reads(config)),
            "vector_rf": Out(entry_reads(config)), "room": In(1), "take": Out(1),
            "o": Out(data.StructLayout({"valid": 1, "p": pixel(config)})), "busy": Out(1), "waits": Out(1)})

    def elaborate(self, platform):
        m = Module()
        job, config = self.job.p, self.config
        go, first, last = Signal(), Signal(), Signal()  # first and last pixel of a word
        part = Signal(range(config.vector_words))  # number of the word in its entry
        from_entries = job.memory == ENTRIES
        offset = self._walk(m, go, first, last, part)
        address = Signal(address_bits(config))
        ready = Signal()  # the pixel is written, and there is space for its word
        m.d.comb += [
            address.eq(job.source.lo + offset), ready.eq(self.job.valid & (self.room | ~first)),
            self.vectors.request.valid.eq(ready & ~from_entries & ~unwritten(m, self, job, address)),
            self.vectors.request.memory.eq(job.memory), self.vectors.request.address.eq(address),
            self.vector_rf.request.valid.eq(
                ready & from_entries & ~entry_blocked(self.writers, job.older, self.entries, address)),
            self.vector_rf.request.address.eq(address),
            go.eq(Cat(reads.request.valid & reads.grant for reads in (self.vectors, self.vector_rf)).any()),
            self.take.eq(go & first), self.busy.eq(go), self.waits.eq(self.job.valid & ~go)]
        self._output(m, go, first, last, part)
        return m

    def _walk(self, m, go, first, last, part):
        """Walk through pixels, words and iterations. Returns the offset of the present pixel from the first address."""
        job, bits = self.job.p, address_bits(self.config)
        # Turns count from 1, so that the last one is found without a subtraction.
        column, row, index, iteration, x = (
            Signal(REGISTER_BITS, name=name, init=1) for name in ("column", "row", "index", "iteration", "x"))
        # Offsets of the present pixel, of the first one in its row, of the first one of its word, and of iterations.
        pixel, line, start, along_x, along_y = (
            Signal(bits, name=name) for name in ("pixel", "line", "start", "along_x", "along_y"))
        from_entries = job.memory == ENTRIES
        last_column, last_row, last_word = column == job.window.x, row == job.window.y, index == job.words
        last_iteration, turn = iteration == job.iterations, x == job.iterations_x
        last_part = part == self.config.vector_words - 1
        m.d.comb += [first.eq((column == 1) & (row == 1)), last.eq(last_column & last_row),
                     self.job.ready.eq(go & last & last_word & last_iteration)]

        # One adder gives the offset of what follows.
        base, step, following = (Signal(bits, name=name) for name in ("base", "step", "following"))
        m.d.comb += following.eq(base + step)
        with m.If(~last_column):
            m.d.comb += [base.eq(pixel), step.eq(job.window.step)]
        with m.Elif(~last_row):
            m.d.comb += [base.eq(line), step.eq(job.window.pitch)]
        with m.Elif(~last_word):
            m.d.comb += [base.eq(start), step.eq(~from_entries | last_part)]
        with m.Elif(turn):
            m.d.comb += [base.eq(along_y), step.eq(Mux(job.source.inc, job.stride_y, 0))]
        with m.Else():
            m.d.comb += [base.eq(along_x), step.eq(Mux(job.source.inc, job.stride_x, 0))]

        with m.If(go):
            m.d.sync += [pixel.eq(following), column.eq(column + 1)]
            with m.If(last_column):
                m.d.sync += [column.eq(1), row.eq(row + 1), line.eq(following)]
            with m.If(last):
                m.d.sync += [row.eq(1), index.eq(index + 1), start.eq(following),
                             part.eq(Mux(last_part, 0, part + 1))]
            with m.If(last & last_word):
                m.d.sync += [index.eq(1), part.eq(0), iteration.eq(iteration + 1), x.eq(Mux(turn, 1, x + 1)),
                             along_x.eq(following)]
                with m.If(turn):
                    m.d.sync += along_y.eq(following)
            with m.If(self.job.ready):
                m.d.sync += [offset.eq(0) for offset in (pixel, line, start, along_x, along_y)]
                m.d.sync += [iteration.eq(1), x.eq(1)]
        return pixel

    def _output(self, m, go, first, last, part):
        """Choose the word of an entry, two cycles after the read."""
        job, config, o = self.job.p, self.config, self.o.p
        arrives = ENTRY_READ
        marks = {
            "mode": job.mode, "from_entries": job.memory == ENTRIES, "first": first, "last": last, "pool": job.pool}
        m.d.comb += [self.o.valid.eq(delay_control(m, go, arrives + 1)),
                     *(o[name].eq(delay(m, Value.cast(mark), arrives + 1)) for name, mark in marks.items())]
        mantissas = Value.cast(self.vector_rf.entry.mantissas).word_select(
            delay(m, part, arrives), config.mfu_lanes * config.activations.code_bits)
        m.d.comb += [Value.cast(o.word).eq(delay(m, Value.cast(self.vectors.data), arrives)),
                     Value.cast(o.lanes.mantissas).eq(delay(m, mantissas, 1)),
                     o.lanes.exponent.eq(delay(m, self.vector_rf.entry.exponent, 1))]
