"""Turns the pixels that the gather unit reads into words for issue."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for
from concord.hw.lib.payloads import word
from concord.hw.lib.pipeline import delay, delay_control
from concord.hw.lib.queue import Queue
from concord.hw.mfu.dequantizer import Dequantizer
from concord.hw.mfu.pooling import Pooling
from concord.hw.schedule.gather import pixel
from concord.spec.machine.config import Config


class PixelPipeline(wiring.Component):
    """Reads entries as numbers, reduces each window to its largest word, and queues the words.

    Members:
        take: In(1). The first pixel of a word is being read. room: Out(1). `take` may be high.
        i: In {valid, p: `pixel`}. Pixels, in order.
        o: Out(stream word). Words of chains.
        pooled: Out(1). Pulse: the pooling unit has made a word of a chain that has a `v_pool_max`.

    Timing:
        One pixel a cycle; latency `latency` cycles from the last pixel of a word. Nothing stalls but `o`.
    """

    DEPTH = 16  #: Words under way and in the queue: more than the cycles from `take` to `o`.
    latency = Dequantizer.latency + Pooling.latency + 2

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "take": In(1), "room": Out(1), "i": In(data.StructLayout({"valid": 1, "p": pixel(config)})),
            "o": Out(stream.Signature(word(config))), "pooled": Out(1)})

    def elaborate(self, platform):
        m = Module()
        config, pixel = self.config, self.i.p
        m.submodules.dequantizer = numbers = Dequantizer(config.activations, config.mfu_lanes)
        m.submodules.pooling = pooling = Pooling(config.mfu_lanes)
        m.submodules.queue = queue = Queue(word(config), self.DEPTH)
        # The words of vector memories take the same time, so that words stay in order.
        direct, from_entries, first, last, pool = (
            delay(m, Value.cast(pixel[name]), numbers.latency)
            for name in ("word", "from_entries", "first", "last", "pool"))
        m.d.comb += [
            numbers.i.eq(pixel.lanes), numbers.mode.eq(pixel.mode),
            pooling.i.valid.eq(delay_control(m, self.i.valid, numbers.latency)),
            pooling.i.word.eq(Mux(from_entries, numbers.o.as_value(), direct)),
            pooling.i.first.eq(first), pooling.i.last.eq(last), self.pooled.eq(pooling.i.valid & last & pool),
            queue.i.valid.eq(pooling.o.valid), queue.i.p.eq(pooling.o.word)]
        wiring.connect(m, queue.o, wiring.flipped(self.o))

        under_way = Signal(bits_for(self.DEPTH))
        left = self.o.valid & self.o.ready
        m.d.sync += under_way.eq(under_way + self.take - left)
        m.d.comb += self.room.eq(under_way != self.DEPTH)
        return m
