"""The last stage of a pipeline, which writes words to the vector memories and the output queue."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.lib import message_payloads
from concord.hw.lib.jobs import TICKET, progress, write_job
from concord.hw.lib.lookahead import Ahead, Turns, moving
from concord.hw.lib.payloads import address_bits, entry_word, word
from concord.spec.isa.memories import VRFS
from concord.spec.isa.operations import TAPS
from concord.spec.machine.config import Config


def results(config: Config) -> data.StructLayout:
    """Values of one word of a chain: its final value, and its taps."""
    return data.StructLayout({"value": word(config), "taps": data.ArrayLayout(word(config), TAPS)})


def write_request(config: Config) -> data.StructLayout:
    """Write request to one vector memory."""
    return data.StructLayout({"valid": 1, "address": address_bits(config), "word": word(config)})


class Writeback(wiring.Component):
    """Writes each word of a chain to up to three memories, with +0 in the lanes beyond Rows.

    Members:
        job: In(stream write_job). Writes of each chain, which arrive before the first word of the chain.
        i: In(stream `results`). Words of the chain.
        writes: Out. One request for each vector memory. free: In. Memories that can take a write now.
        entry_word: Out {valid, word, last}. Words for VectorRf, always taken; `last` marks the end of an iteration.
        net: Out(stream `message_payloads.outgoing`). Words for the host; `remaining` counts the words left in the
            message, this one included. outside: Out(stream word). Words for Dram, on machines with it.
        progress: Out. Number of finished chains, and position within the present one, one cycle late.
        landed: Out(1). A word of the present chain has been written.

    Timing:
        A word is written in the cycle in which it is taken, one in each cycle. A job is taken one cycle before its
        first word, or with the last word of the job before it.
    """

    def __init__(self, config: Config):
        self.config = config
        entries = {"entry_word": Out(entry_word(config))} if config.vector_rf else {}
        super().__init__({
            "job": In(stream.Signature(write_job(config))), "i": In(stream.Signature(results(config))),
            "writes": Out(data.ArrayLayout(write_request(config), len(VRFS))), "free": In(len(VRFS)),
            "net": Out(stream.Signature(message_payloads.outgoing(config))),
            "progress": Out(progress(config)), "landed": Out(1), **entries,
            **({"outside": Out(stream.Signature(word(config)))} if config.dram_words else {})})

    def elaborate(self, platform):
        m = Module()
        config = self.config
        active, fire = Signal(), Signal()
        job, word, iteration, addresses = self._walk(m, active, fire)
        last = word.last & iteration.last
        values = [self._masked(m, name, value, word.last, job.tail)
                  for name, value in (("last", self.i.p.value), *((f"tap{k}", self.i.p.taps[k]) for k in range(TAPS)))]

        def choose(select):
            return Mux(select.tapped, Mux(select.tap, values[2], values[1]), values[0])

        able = Signal()
        fits = Cat(~w.valid | free for w, free in zip(job.writes, self.free, strict=True)).all()
        sent = Signal()  # NetQ has taken the word, but the memories have not
        leaves = ~job.net | self.net.ready | sent
        if config.dram_words:
            leaves &= self._outside(m, job, choose(job.outside_select), able, fire)
        m.d.comb += [
            able.eq(self.i.valid & active), fire.eq(able & fits & leaves),
            self.i.ready.eq(fire), self.landed.eq(fire)]
        for k, (w, address) in enumerate(zip(job.writes, addresses, strict=True)):
            m.d.comb += [self.writes[k].valid.eq(fire & w.valid), self.writes[k].address.eq(address),
                         self.writes[k].word.eq(choose(w.select))]
            m.d.sync += self.progress.low[k].eq(
                Mux(active, Mux(w.rising | iteration.last, address, w.lo), 0))
        m.d.comb += [
            self.net.valid.eq(able & job.net & ~sent), self.net.p.word.eq(choose(job.net_select)),
            self.net.p.remaining.eq(job.words - word.number)]
        if config.softmax_words:
            m.d.comb += [self.net.p.softmax.eq(job.softmax), self.net.p.tail.eq(job.tail)]
        if config.vector_rf:
            m.d.comb += [self.entry_word.valid.eq(fire & job.entries), self.entry_word.last.eq(word.last),
                         self.entry_word.word.eq(choose(job.entries_select))]
        done = Signal(TICKET)
        with m.If(fire & last):
            m.d.sync += done.eq(done + 1)
        m.d.sync += [sent.eq(able & job.net & (sent | self.net.ready) & ~fire),
                     self.progress.done.eq(done), self.progress.iteration.eq(iteration.number)]
        return m

    def _outside(self, m, job, value, able, fire):
        """Give the present word to Dram. Returns whether it has left, or need not."""
        stored = Signal()  # it has left, but the word waits for other memories
        m.d.comb += [self.outside.valid.eq(able & job.outside & ~stored), Value.cast(self.outside.p).eq(value)]
        m.d.sync += stored.eq(able & job.outside & (stored | self.outside.ready) & ~fire)
        return ~job.outside | self.outside.ready | stored

    def _walk(self, m, active, fire):
        """Walk through the words of the present job. Returns it, the position of the word, and its addresses."""
        word, iteration, moved = Turns("word"), Turns("iteration"), Signal(address_bits(self.config))
        advance, begins = ~active | fire, ~active | (word.last & iteration.last)
        ahead = Ahead(m, advance=advance, begins=begins, coming=active, move=fire)
        job = ahead.of_job("job", self.job.p)
        m.d.comb += self.job.ready.eq(advance & begins)
        with m.If(self.job.ready):
            m.d.sync += active.eq(self.job.valid)
        with m.If(advance):
            m.d.sync += word.step()
            with m.If(word.last):
                m.d.sync += [*iteration.step(), moved.eq(moved + job.stride_out)]
            with m.If(begins):
                m.d.sync += [*word.begin(self.job.p.words), *iteration.begin(self.job.p.iterations),
                             moved.eq(self.job.p.stride_out)]
        addresses = [moving(m, ahead, f"write{k}", access=access, walked=write, ends=word.last, moved=moved)
                     for k, (access, write) in enumerate(zip(self.job.p.writes, job.writes, strict=True))]
        return job, word, iteration, addresses

    def _masked(self, m, name, value, partial, tail):
        """`value` with +0 in the lanes from `tail` on, where `partial`; a tail of 0 is a whole word."""
        masked = Signal(word(self.config), name=name)
        for lane in range(self.config.mfu_lanes):
            m.d.comb += masked[lane].eq(Mux(partial & (tail != 0) & (lane >= tail), 0, value[lane]))
        return masked.as_value()
