"""Quantises the results of chains and writes them to VectorRf."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.lib import message_payloads
from concord.hw.lib.elements import without_minus_zero
from concord.hw.lib.jobs import ENTRY_WRITERS, TICKET, entry_job, entry_progress
from concord.hw.lib.lookahead import Ahead, Turns
from concord.hw.lib.payloads import Mode, address_bits, entry_word
from concord.hw.lib.queue import Queue
from concord.hw.mvm.quantizer import Quantizer
from concord.hw.mvm.vector_rf import entry_words
from concord.spec.isa.instructions import REGISTER_BITS
from concord.spec.machine.config import Config


class EntryWriter(wiring.Component):
    """Writes the entries of each chain at lo + t*stride + (t div iterations_x)*skip for its iterations t.

    Words that an entry lacks are what the quantiser makes of +0. Each word is written when it has been quantised. A
    reader waits for the last word of the entry, after which `progress` counts it.

    Args:
        config: The machine.

    Members:
        job: In(stream entry_job). One chain; at least 2 cycles before its first word. It is taken at once as long as
            fewer than ENTRY_WRITERS chains are unfinished.
        word: In {valid, word, last}. Words of the chains in order, always taken.
        host: In(stream {address, entry}). Entries of the host, taken while no chain writes.
        write: Out. Words for VectorRf.
        progress: Out {done, low}. Number of finished chains, and the lowest entry that the next one has not written,
            one cycle late.
        written: Out(1). Pulse: a chain's entry is written.
        block, invalid: Out(1). As those of the quantiser.

    Timing:
        One word a cycle, `latency` cycles after the last word of its entry has come, or right after the word before.
    """

    def __init__(self, config: Config):
        self.config = config
        self.quantizer = Quantizer(config.activations, config.mfu_lanes, config.native_dim, short=True)
        super().__init__({
            "job": In(stream.Signature(entry_job(config))), "word": In(entry_word(config)),
            "host": In(stream.Signature(message_payloads.entry_write(config))), "write": Out(entry_words(config)),
            "progress": Out(entry_progress(config)), "written": Out(1), "block": Out(1), "invalid": Out(1)})

    @property
    def latency(self) -> int:
        """Cycles from the last word of an entry to the write of its first word."""
        return self.quantizer.latency

    def elaborate(self, platform):
        m = Module()
        m.submodules.quantizer = self.quantizer
        bits = address_bits(self.config)
        # `row` is the stride at the end of a row of iterations.
        path = data.StructLayout({
            **dict.fromkeys(("lo", "stride", "row"), bits), "rising": 1, "unsigned": 1,
            **dict.fromkeys(("iterations", "iterations_x"), REGISTER_BITS)})
        m.submodules.jobs = jobs = Queue(path, ENTRY_WRITERS)
        # The words of a chain enter the quantiser while entries of the chain before it may still leave.
        m.submodules.modes = modes = Queue(
            data.StructLayout({"mode": Mode, "iterations": REGISTER_BITS}), ENTRY_WRITERS)
        job, write = self.job.p, self.job.p.write
        m.d.comb += [
            self.job.ready.eq(jobs.i.ready & modes.i.ready),
            jobs.i.valid.eq(self.job.valid & modes.i.ready), modes.i.valid.eq(self.job.valid & jobs.i.ready),
            modes.i.p.mode.eq(write.mode), modes.i.p.iterations.eq(job.iterations),
            jobs.i.p.lo.eq(write.lo), jobs.i.p.rising.eq(write.rising), jobs.i.p.unsigned.eq(write.mode.unsigned),
            jobs.i.p.stride.eq(Mux(write.inc, write.stride, 0)),
            jobs.i.p.row.eq(Mux(write.inc, write.stride + write.skip, 0)),
            *(jobs.i.p[name].eq(job[name]) for name in ("iterations", "iterations_x")),
            self.block.eq(self.quantizer.block), self.invalid.eq(self.quantizer.invalid)]
        self._quantize(m, modes.o)
        self._write(m, self._address(m, jobs.o))
        return m

    def _quantize(self, m, modes):
        """Give each word the mode of its chain."""
        i, turn = self.quantizer.i, Signal(REGISTER_BITS, init=1)
        ends = self.word.valid & self.word.last
        m.d.comb += [
            i.valid.eq(self.word.valid), i.p.word.eq(self.word.word), i.p.last.eq(self.word.last),
            i.p.integer.eq(modes.p.mode.integer), i.p.unsigned.eq(modes.p.mode.unsigned),
            modes.ready.eq(ends & (turn == modes.p.iterations))]
        with m.If(ends):
            m.d.sync += turn.eq(Mux(modes.ready, 1, turn + 1))

    def _address(self, m, jobs):
        """Address of the present entry, and the progress. Returns whether the chain's entries are unsigned."""
        o, bits, active = self.quantizer.o, address_bits(self.config), Signal()
        address, start, following = Signal(bits), Signal(bits), Signal(bits)
        turn, column, ends = Turns("iteration"), Turns("column"), Signal()
        advance, begins = ~active | ends, ~active | turn.last
        job = Ahead(m, coming=active, advance=advance, begins=begins, move=ends).of_job("job", jobs.p)
        done = Signal(TICKET)
        m.d.comb += [
            ends.eq(o.valid & o.p.last), following.eq(start + Mux(column.last, job.row, job.stride)),
            jobs.ready.eq(advance & begins), self.written.eq(o.valid & o.p.end),
            self.write.address.eq(Mux(o.valid, address, self.host.p.address))]
        with m.If(self.written):
            m.d.sync += address.eq(address + 1)
        with m.If(advance):
            m.d.sync += [start.eq(following), address.eq(following), *turn.step(), *column.step()]
            with m.If(begins):
                m.d.sync += [active.eq(jobs.valid), start.eq(jobs.p.lo), address.eq(jobs.p.lo),
                             *turn.begin(jobs.p.iterations), *column.begin(jobs.p.iterations_x)]
        with m.If(ends & turn.last):
            m.d.sync += done.eq(done + 1)
        m.d.sync += [self.progress.done.eq(done),
                     self.progress.low.eq(Mux(active & (job.rising | turn.last), address, 0))]
        return job.unsigned

    def _write(self, m, unsigned):
        """Write a word from the quantiser, with its first word also the words that the entry may lack, or an entry."""
        config, fmt, o = self.config, self.config.activations, self.quantizer.o
        words, size = config.vector_words, config.mfu_lanes * fmt.code_bits
        place, host = Signal(range(words)), without_minus_zero(self.host.p.entry.mantissas, fmt)
        zero = Mux(unsigned, Const(-fmt.zero, fmt.code_bits), 0).replicate(config.mfu_lanes)
        m.d.comb += [
            o.ready.eq(1), self.host.ready.eq(~o.valid), self.write.valid.eq(o.valid | self.host.valid),
            self.write.words.eq(Cat(~o.valid | (place == 0) | (place == k) for k in range(words))),
            self.write.entry.exponent.eq(Mux(o.valid, o.p.exponent, self.host.p.entry.exponent)),
            self.write.entry.mantissas.as_value().eq(Cat(Mux(
                o.valid, Mux(place == 0, zero, o.p.mantissas.as_value()) if k else o.p.mantissas.as_value(),
                host.word_select(k, size)) for k in range(words)))]
        with m.If(o.valid):
            m.d.sync += place.eq(Mux(o.p.end, 0, place + 1))
