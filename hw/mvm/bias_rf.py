"""The bias register file, which holds start values of accumulators."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from concord.hw.lib import message_payloads
from concord.hw.lib.arithmetic import UNCHECKED
from concord.hw.lib.pipeline import delay
from concord.spec.machine.config import Config


class BiasRf(wiring.Component):
    """A memory of words of `mfu_lanes` integers.

    Members:
        i: In(stream {address, data}). Writes, always taken.
        address: In(range). Address of the word to read.
        o: Out. Integers of that word.

    Timing:
        `o` follows `address` by `latency` cycles. What is written can be read from the next cycle on.
    """

    latency = 2

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "i": In(stream.Signature(message_payloads.bias(config))),
            "address": In(range(config.bias_words)),
            "o": Out(data.ArrayLayout(signed(config.bias_bits), config.mfu_lanes))})

    def elaborate(self, platform):
        m = Module()
        m.submodules.memory = memory = Memory(
            shape=Value.cast(self.o).shape(), depth=self.config.bias_words, init=[], attrs=UNCHECKED)
        write, read = memory.write_port(), memory.read_port()
        m.d.comb += [
            self.i.ready.eq(1), read.addr.eq(self.address), Value.cast(self.o).eq(delay(m, read.data, 1)),
            write.addr.eq(self.i.p.address), write.data.eq(self.i.p.data), write.en.eq(self.i.valid)]
        return m
