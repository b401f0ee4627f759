"""Answers the host's READ messages."""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.lib import message_payloads
from concord.hw.lib.outside import Range
from concord.hw.lib.payloads import ENTRY_READ, address_bits, entry_reads, index_of, word
from concord.hw.lib.read_ahead import ReadAhead
from concord.hw.schedule.address_generator import vector_reads
from concord.spec.isa.instructions import ADDRESS_BITS
from concord.spec.isa.memories import Mem
from concord.spec.machine.config import Config


class HostRead(wiring.Component):
    """Reads words of a vector memory or of Dram, or entries of VectorRf, while no program runs.

    Members:
        i: In(stream {memory, address, count}). Requests of the host; each is taken with its last word or entry.
        vectors: Out(`vector_reads`). Reads of the vector memories.
        vector_rf: Out(`entry_reads`). Reads of VectorRf.
        o: Out(stream {word, memory, address, remaining}). Words for `MessageOutput`.
        entry_o: Out(stream {entry, address, remaining}). Entries for `MessageOutput`.
        outside_range: Out(stream Range). The words of Dram that a READ asks for, as one range with tag 0 and `last`.
        outside: In(stream word). The words of that range. Machines with Dram have both.

    Timing:
        One word in each cycle; a word of Dram leaves in the cycle in which it comes. A range of Dram is asked for when
        all older words have left. An entry every 4 cycles, since `MessageOutput` takes several cycles to send one.
    """

    def __init__(self, config: Config):
        self.config = config
        dram = {"outside_range": Out(stream.Signature(Range)), "outside": In(stream.Signature(word(config)))}
        super().__init__({
            "i": In(stream.Signature(message_payloads.read(config))), "vectors": Out(vector_reads(config)),
            "o": Out(stream.Signature(message_payloads.reply(config))),
            "vector_rf": Out(entry_reads(config)),
            "entry_o": Out(stream.Signature(message_payloads.entry_reply(config))),
            **(dram if config.dram_words else {})})

    def elaborate(self, platform):
        m = Module()
        m.submodules.ahead = ahead = ReadAhead(self.config, 4 + ADDRESS_BITS + 32)
        offset, entries = Signal(ADDRESS_BITS), Signal()
        address, left = Signal(address_bits(self.config)), Signal(32)
        last, words = offset == self.i.p.count - 1, self.i.valid & (self.i.p.count != 0) & ~entries
        outside = self.i.p.memory == Mem.DRAM
        if self.config.dram_words:
            words &= ~outside
        go, request = Signal(), self.vectors.request
        m.d.comb += [
            address.eq(self.i.p.address + offset), left.eq(self.i.p.count - offset),
            request.valid.eq(words), request.memory.eq(index_of(self.config, self.i.p.memory)),
            request.address.eq(address),
            ahead.take.eq(words & ahead.room & self.vectors.grant), go.eq(ahead.take),
            ahead.word.eq(self.vectors.data),
            ahead.tag.eq(Cat(self.i.p.memory, self.i.p.address[:ADDRESS_BITS], left)),
            self.i.ready.eq((go & last) | (self.i.p.count == 0)),
            self.o.valid.eq(ahead.o.valid), ahead.o.ready.eq(self.o.ready), self.o.p.word.eq(ahead.o.p.word),
            Cat(self.o.p.memory, self.o.p.address[:ADDRESS_BITS], self.o.p.remaining).eq(ahead.o.p.tag)]
        if self.config.vector_rf:
            m.d.comb += [entries.eq(self.i.p.memory == Mem.VECTOR_RF), self.vector_rf.request.address.eq(address)]
            with m.If(self._entries(m, self.i.valid & (self.i.p.count != 0) & entries, left)):
                m.d.comb += go.eq(1)
        with m.If(go):
            m.d.sync += offset.eq(Mux(last, 0, offset + 1))
        if self.config.dram_words:
            with m.If(self._outside(m, self.i.valid & (self.i.p.count != 0) & outside & ahead.empty)):
                m.d.comb += self.i.ready.eq(1)
        return m

    def _outside(self, m, wanted):
        """Ask for words of Dram, and pass them on. Returns whether the last one leaves.

        The number of words that are left lies in a register: it goes far, to the state of `MessageOutput`.
        """
        asks, came, o = self.outside_range, self.outside, self.o
        under_way, left, final, moved = Signal(), Signal(message_payloads.NUMBER), Signal(), Signal()
        m.d.comb += [
            asks.valid.eq(wanted & ~under_way), asks.p.first.eq(self.i.p.address), asks.p.count.eq(self.i.p.count),
            asks.p.last.eq(1), came.ready.eq(under_way & o.ready), moved.eq(came.valid & came.ready)]
        with m.If(asks.valid & asks.ready):
            m.d.sync += [under_way.eq(1), left.eq(self.i.p.count), final.eq(self.i.p.count == 1)]
        with m.If(moved):
            m.d.sync += [under_way.eq(~final), left.eq(left - 1), final.eq(left == 2)]
        with m.If(under_way):
            m.d.comb += [o.valid.eq(came.valid), o.p.word.eq(came.p), o.p.memory.eq(Mem.DRAM),
                         o.p.address.eq(self.i.p.address), o.p.remaining.eq(left)]
        return moved & final

    def _entries(self, m, wanted, left):
        """Read one entry at a time. Returns whether the entry at the present address is read."""
        taken = self.vector_rf.request.valid & self.vector_rf.grant
        coming = Signal(ENTRY_READ)  # the entry comes after so many cycles
        m.d.comb += self.vector_rf.request.valid.eq(wanted & ~coming.any() & ~self.entry_o.valid)
        m.d.sync += coming.eq(Cat(taken, coming))
        with m.If(taken):
            m.d.sync += [self.entry_o.p.address.eq(self.i.p.address), self.entry_o.p.remaining.eq(left)]
        with m.If(coming[-1]):
            m.d.sync += [self.entry_o.valid.eq(1), self.entry_o.p.entry.eq(self.vector_rf.entry)]
        with m.Elif(self.entry_o.ready):
            m.d.sync += self.entry_o.valid.eq(0)
        return taken
