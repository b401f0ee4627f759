"""Reads the sources of chains in windows, from vector memories, and from VectorRf as numbers."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.lib.jobs import entry_progress, entry_writers, gather_job, progress
from concord.hw.lib.lookahead import Ahead, EntryWriters, Turns, pending
from concord.hw.lib.payloads import ENTRIES, ENTRY_READ, VECTOR_READ, Mode, address_bits, entry_reads, lane_group, word
from concord.hw.lib.pipeline import delay, delay_control
from concord.hw.schedule.address_generator import vector_reads, written
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
        One pixel a cycle, which comes out three cycles after its grant. The first one is requested 4 cycles after `job`
        is taken, and one that waits for an older chain 2 cycles after the progress.
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
        job = self.job.p
        # There is a pixel that is walked to, a coming one and a present one.
        walked, coming_valid, valid, go, advance, ends = (Signal() for _ in range(6))
        move, begins = ~valid | go, ~walked | ends
        words = Ahead(m, walked=walked, advance=advance, begins=begins, coming=coming_valid, move=move)
        from_entries = words.of_job("from_entries", job.memory == ENTRIES)
        values = self._walk(m, words, ends, from_entries) | {"from_entries": from_entries}
        values |= {name: words.of_job(name, job[name]) for name in ("memory", "mode", "pool")}
        for pipe in ("mfu", "copy"):
            values[pipe] = pending(m, f"pending_{pipe}", words.of_job(pipe, job.source[pipe]), values["address"],
                                   ~from_entries)
        writers = EntryWriters(m, self.writers, self.entries)
        values["entries"] = writers.waits(
            "pending_entries", words.of_job("older", job.older), values["address"], from_entries)
        coming, now = words.carry_all(values)
        queue = words.queue()
        m.d.comb += [coming_valid.eq(queue.o.valid), advance.eq(~walked | queue.i.ready),
                     self.job.ready.eq(advance & begins)]
        with m.If(self.job.ready):
            m.d.sync += walked.eq(self.job.valid)
        with m.If(move):
            m.d.sync += valid.eq(coming_valid)

        certain = written(m, self, words, coming, now) & words.certain("entry", lambda choose: ~writers.unfinished(
            choose(coming["entries"], now["entries"]), choose(coming["address"], now["address"])))
        ready = Signal()  # the pixel is written, and there is space for its word
        m.d.comb += [
            ready.eq(valid & certain & (self.room | ~now["first"])),
            self.vectors.request.valid.eq(ready & ~now["from_entries"]),
            self.vectors.request.memory.eq(now["memory"]), self.vectors.request.address.eq(now["address"]),
            self.vector_rf.request.valid.eq(ready & now["from_entries"]),
            self.vector_rf.request.address.eq(now["address"]),
            go.eq(ready & Mux(now["from_entries"], self.vector_rf.grant, self.vectors.grant)),
            self.take.eq(go & now["first"]), self.busy.eq(go), self.waits.eq(valid & ~go)]
        self._output(m, go, now)
        return m

    def _walk(self, m, words, ends, from_entries):
        """Walk through pixels, words and iterations. Returns the address of a pixel, and what it is."""
        job, bits = self.job.p, address_bits(self.config)
        column, row, word, iteration, x = loops = [
            Turns(name) for name in ("column", "row", "word", "iteration", "x")]
        counts = job.window.x, job.window.y, job.words, job.iterations, job.iterations_x
        # Addresses of the pixel, of the first one in its row, of the first one of its word, and of iterations.
        address, line, start, along_x, along_y = starts = [
            Signal(bits, name=name) for name in ("address", "line", "start", "along_x", "along_y")]
        steps = {name: words.of_job(name, value) for name, value in {
            "step": job.window.step, "pitch": job.window.pitch, "x": Mux(job.source.inc, job.stride_x, 0),
            "y": Mux(job.source.inc, job.stride_y, 0)}.items()}
        part = Signal(range(self.config.vector_words))  # number of the word in its entry
        first, first_column, first_row = Signal(), Signal(), Signal()
        last, last_part = column.last & row.last, part == self.config.vector_words - 1
        m.d.comb += [first.eq(first_column & first_row), ends.eq(last & word.last & iteration.last)]

        # One adder gives the address of what follows.
        base, step, following = (Signal(bits, name=name) for name in ("base", "step", "following"))
        m.d.comb += following.eq(base + step)
        with m.If(~column.last):
            m.d.comb += [base.eq(address), step.eq(steps["step"])]
        with m.Elif(~row.last):
            m.d.comb += [base.eq(line), step.eq(steps["pitch"])]
        with m.Elif(~word.last):
            m.d.comb += [base.eq(start), step.eq(~from_entries | last_part)]
        with m.Elif(x.last):
            m.d.comb += [base.eq(along_y), step.eq(steps["y"])]
        with m.Else():
            m.d.comb += [base.eq(along_x), step.eq(steps["x"])]

        with m.If(words.advance):
            m.d.sync += [*column.step(), address.eq(following), first_column.eq(column.last)]
            with m.If(column.last):
                m.d.sync += [*row.step(), line.eq(following), first_row.eq(row.last)]
            with m.If(last):
                m.d.sync += [*word.step(), start.eq(following), part.eq(Mux(last_part, 0, part + 1))]
            with m.If(last & word.last):
                m.d.sync += [part.eq(0), *iteration.step(), *x.step(), along_x.eq(following)]
                with m.If(x.last):
                    m.d.sync += along_y.eq(following)
            with m.If(words.begins):
                m.d.sync += [*(each.eq(job.source.lo) for each in starts), part.eq(0), first_column.eq(1),
                             first_row.eq(1)]
                for loop, count in zip(loops, counts, strict=True):
                    m.d.sync += loop.begin(count)
        return {"address": address, "first": first, "last": last, "part": part}

    def _output(self, m, go, now):
        """Choose the word of an entry, and give it when a word of a vector memory comes."""
        config, o, after = self.config, self.o.p, max(VECTOR_READ, ENTRY_READ) + 1
        m.d.comb += [self.o.valid.eq(delay_control(m, go, after)), *(
            o[name].eq(delay(m, Value.cast(now[name]), after))
            for name in ("mode", "from_entries", "first", "last", "pool"))]
        mantissas = Value.cast(self.vector_rf.entry.mantissas).word_select(
            delay(m, now["part"], ENTRY_READ), config.mfu_lanes * config.activations.code_bits)
        m.d.comb += [Value.cast(o.word).eq(delay(m, Value.cast(self.vectors.data), after - VECTOR_READ)),
                     Value.cast(o.lanes.mantissas).eq(delay(m, mantissas, after - ENTRY_READ)),
                     o.lanes.exponent.eq(delay(m, self.vector_rf.entry.exponent, after - ENTRY_READ))]
