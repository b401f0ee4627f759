"""The pooling unit: the largest value of each window, as golden.mfu.multifunction computes it."""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.lib.float16 import NAN, Binary16, smaller
from concord.hw.lib.pipeline import delay, delay_control


class Pooling(wiring.Component):
    """Keeps the larger number in each lane, from the first to the last pixel of a window; one pixel passes unchanged.

    Args:
        lanes: Numbers in one word.

    Members:
        i: In {valid, word, first, last}. Words of the pixels of a window, one after another, with or without gaps.
        o: Out {valid, word}. The largest of them.

    Timing:
        One pixel a cycle. A result is out `latency` cycles after its last pixel. Never stalls.
    """

    latency = 2

    def __init__(self, lanes: int):
        self.lanes = lanes
        word = data.ArrayLayout(16, lanes)
        super().__init__({"i": In(data.StructLayout({"valid": 1, "word": word, "first": 1, "last": 1})),
                          "o": Out(data.StructLayout({"valid": 1, "word": word}))})

    def elaborate(self, platform):
        m = Module()
        valid = delay_control(m, self.i.valid, 1)
        first, last = (delay(m, signal, 1) for signal in (self.i.first, self.i.last))
        m.d.sync += self.o.valid.eq(valid & last)
        for largest, word in zip(self.o.word, self.i.word, strict=True):
            self._lane(m, largest, Binary16(word), valid, first)
        return m

    def _lane(self, m, largest, number, valid, first):
        """Keep the larger of two numbers; +0 is larger than -0, and a NaN on either side gives NaN.

        Whether a number is a NaN is found a cycle before the numbers meet, and kept with the larger one.
        """
        new, nan = delay(m, number.as_value(), 1), delay(m, number.exponent.all() & number.fraction.any(), 1)
        _, behind = smaller(Binary16(largest), Binary16(new))
        seen = Signal(reset_less=True)
        undefined = (seen | nan) & ~first
        with m.If(valid):
            m.d.sync += seen.eq(nan | undefined)
            with m.If(first | undefined | behind):
                m.d.sync += largest.eq(Mux(undefined, NAN, new))
