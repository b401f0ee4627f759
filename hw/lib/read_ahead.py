"""A short queue between a memory and the unit that takes its words."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for
from concord.hw.lib.payloads import VECTOR_READ, word
from concord.hw.lib.pipeline import delay, delay_control
from concord.hw.lib.queue import Queue
from concord.spec.machine.config import Config


class ReadAhead(wiring.Component):
    """Holds words from a memory, which arrive VECTOR_READ cycles after their request.

    Args:
        tag: Number of bits that travel with each word.

    Members:
        take, tag: In. A word arrives VECTOR_READ cycles later, with this tag. word: In. That word.
        room: Out(1). `take` may be high. empty: Out(1). No word is inside, and none will arrive.
        o: Out(stream {word, tag}). Words in order.

    Timing:
        One word a cycle; latency 4 cycles from `take`.
    """

    DEPTH = 7

    def __init__(self, config: Config, tag: int):
        self.config, self.tag_bits = config, tag
        shape = data.StructLayout({"word": word(config), "tag": tag})
        super().__init__({"take": In(1), "tag": In(tag), "word": In(word(config)), "room": Out(1), "empty": Out(1),
                          "o": Out(stream.Signature(shape))})

    def elaborate(self, platform):
        m = Module()
        m.submodules.queue = queue = Queue(self.o.payload.shape(), self.DEPTH)
        under_way = Signal(bits_for(self.DEPTH))
        left = self.o.valid & self.o.ready
        m.d.sync += under_way.eq(under_way + self.take - left)
        coming, tag = delay_control(m, self.take, VECTOR_READ), delay(m, self.tag, VECTOR_READ)
        m.d.comb += [queue.i.valid.eq(coming), queue.i.p.word.eq(self.word), queue.i.p.tag.eq(tag),
                     self.o.valid.eq(queue.o.valid), self.o.payload.eq(queue.o.payload),
                     queue.o.ready.eq(self.o.ready), self.room.eq(under_way != self.DEPTH),
                     self.empty.eq(under_way == 0)]
        return m
