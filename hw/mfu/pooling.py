"""The pooling unit: the largest value of each window, as golden.mfu.multifunction computes it."""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.lib.float16 import NAN, Binary16, smaller


class Pooling(wiring.Component):
    """Keeps the larger number in each lane, from the first to the last pixel of a window; one pixel passes unchanged.

    Args:
        lanes: Numbers in one word.

    Members:
        i: In {valid, word, first, last}. Words of the pixels of a window, one after another, with or without gaps.
        o: Out {valid, word}. The largest of them.

    Timing:
        One pixel a cycle. A result is out one cycle after its last pixel. Never stalls.
    """

    def __init__(self, lanes: int):
        self.lanes = lanes
        word = data.ArrayLayout(16, lanes)
        super().__init__({"i": In(data.StructLayout({"valid": 1, "word": word, "first": 1, "last": 1})),
                          "o": Out(data.StructLayout({"valid": 1, "word": word}))})

    def elaborate(self, platform):
        m = Module()
        m.d.sync += self.o.valid.eq(self.i.valid & self.i.last)
        with m.If(self.i.valid):
            m.d.sync += [largest.eq(Mux(self.i.first, new, _maximum(Binary16(largest), Binary16(new))))
                         for largest, new in zip(self.o.word, self.i.word, strict=True)]
        return m


def _maximum(a, b):
    """The larger of two Binary16; +0 is larger than -0, and a NaN on either side gives NaN."""
    _, behind = smaller(a, b)
    nan = a.exponent.all() & a.fraction.any() | b.exponent.all() & b.fraction.any()
    return Mux(nan, NAN, Mux(behind, b.as_value(), a.as_value()))
