"""The last stage of a pipeline, which writes words to the vector memories and the output queue."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.lib import message_payloads
from concord.hw.lib.jobs import progress, write_job
from concord.hw.lib.payloads import address_bits, entry_word, word
from concord.spec.isa.instructions import REGISTER_BITS
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
            message, this one included.
        progress: Out. Number of finished chains, and position within the present one.
        landed: Out(1). A word of the present chain has been written.

    Timing:
        A word is written in the cycle in which it is taken, one in each cycle.
    """

    def __init__(self, config: Config):
        self.config = config
        entries = {"entry_word": Out(entry_word(config))} if config.vector_rf else {}
        super().__init__({
            "job": In(stream.Signature(write_job(config))), "i": In(stream.Signature(results(config))),
            "writes": Out(data.ArrayLayout(write_request(config), len(VRFS))), "free": In(len(VRFS)),
            "net": Out(stream.Signature(message_payloads.outgoing(config))),
            "progress": Out(progress(config)), "landed": Out(1), **entries})

    def elaborate(self, platform):
        m = Module()
        config, job = self.config, self.job.p
        bits = address_bits(config)
        index, moved = Signal(REGISTER_BITS), Signal(bits)
        last_word = index == job.words - 1
        last_iteration = self.progress.iteration == job.iterations - 1

        values = [self._masked(m, name, value, last_word & (job.tail != 0), job.tail)
                  for name, value in (("last", self.i.p.value), *((f"tap{k}", self.i.p.taps[k]) for k in range(TAPS)))]

        def choose(select):
            return Mux(select.tapped, Mux(select.tap, values[2], values[1]), values[0])

        able = self.i.valid & self.job.valid
        fits = Cat(~w.valid | free for w, free in zip(job.writes, self.free, strict=True)).all()
        sent = Signal()  # NetQ has taken the word, but the memories have not
        fire = able & fits & (~job.net | self.net.ready | sent)
        m.d.comb += [self.i.ready.eq(fire), self.job.ready.eq(fire & last_word & last_iteration), self.landed.eq(fire)]
        for k, w in enumerate(job.writes):
            address = Signal(bits, name=f"address{k}")
            m.d.comb += [
                address.eq(w.lo + index + Mux(w.inc, moved, 0)),
                self.writes[k].valid.eq(fire & w.valid), self.writes[k].address.eq(address),
                self.writes[k].word.eq(choose(w.select)),
                self.progress.low[k].eq(Mux(self.job.valid, Mux(w.rising | last_iteration, address, w.lo), 0))]
        m.d.comb += [
            self.net.valid.eq(able & job.net & ~sent), self.net.p.word.eq(choose(job.net_select)),
            self.net.p.remaining.eq(job.words - index)]
        if config.softmax_words:
            m.d.comb += [self.net.p.softmax.eq(job.softmax), self.net.p.tail.eq(job.tail)]
        if config.vector_rf:
            m.d.comb += [self.entry_word.valid.eq(fire & job.entries), self.entry_word.last.eq(last_word),
                         self.entry_word.word.eq(choose(job.entries_select))]
        m.d.sync += sent.eq(able & job.net & (sent | self.net.ready) & ~fire)
        with m.If(fire):
            m.d.sync += index.eq(index + 1)
            with m.If(last_word):
                m.d.sync += [index.eq(0), self.progress.iteration.eq(self.progress.iteration + 1),
                             moved.eq(moved + job.stride_out)]
                with m.If(last_iteration):
                    m.d.sync += [self.progress.iteration.eq(0), moved.eq(0),
                                 self.progress.done.eq(self.progress.done + 1)]
        return m

    def _masked(self, m, name, value, partial, tail):
        """`value` with +0 in the lanes from `tail` on, where `partial`."""
        masked = Signal(word(self.config), name=name)
        for lane in range(self.config.mfu_lanes):
            m.d.comb += masked[lane].eq(Mux(partial & (lane >= tail), 0, value[lane]))
        return masked.as_value()
