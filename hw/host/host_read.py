"""Answers the host's READ messages."""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.lib import message_payloads
from concord.hw.lib.payloads import index_of, word
from concord.hw.lib.read_ahead import ReadAhead
from concord.hw.schedule.address_generator import read_request
from concord.spec.config import Config
from concord.spec.isa import ADDRESS_BITS

__all__ = ["HostRead"]


class HostRead(wiring.Component):
    """Reads words of a vector memory, while no program runs.

    Members:
        i: In(stream {memory, address, count}). Requests of the host; each is taken with its last word.
        request, grant, data: Read request to a vector memory, its grant, and the word one cycle later.
        o: Out(stream {word, memory, address, remaining}). Words for `MessageOutput`.

    Timing:
        One word in each cycle.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "i": In(stream.Signature(message_payloads.Read)), "request": Out(read_request(config)), "grant": In(1),
            "data": In(word(config)), "o": Out(stream.Signature(message_payloads.reply(config)))})

    def elaborate(self, platform):
        m = Module()
        m.submodules.ahead = ahead = ReadAhead(self.config, 4 + ADDRESS_BITS + 32)
        offset = Signal(ADDRESS_BITS)
        last = offset == self.i.p.count - 1
        go = self.i.valid & (self.i.p.count != 0) & ahead.room & self.grant
        m.d.comb += [
            self.request.valid.eq(self.i.valid), self.request.memory.eq(index_of(self.i.p.memory)),
            self.request.address.eq(self.i.p.address + offset),
            ahead.take.eq(go), ahead.word.eq(self.data),
            ahead.tag.eq(Cat(self.i.p.memory, self.i.p.address, (self.i.p.count - offset)[:32])),
            self.i.ready.eq((go & last) | (self.i.p.count == 0)),
            self.o.valid.eq(ahead.o.valid), ahead.o.ready.eq(self.o.ready), self.o.p.word.eq(ahead.o.p.word),
            Cat(self.o.p.memory, self.o.p.address, self.o.p.remaining).eq(ahead.o.p.tag)]
        with m.If(go):
            m.d.sync += offset.eq(Mux(last, 0, offset + 1))
        return m
