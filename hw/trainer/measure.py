"""The decision of `measure`: which exponents become which, and whether the pass must be repeated."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.lazy.exponent_search import COUNT, COUNTS
from concord.hw.lazy.lazy_step import change_shape
from concord.hw.trainer.wires import LENGTH, Summary
from concord.spec.numbers.lazy import EXPONENT_BITS, LazyFormat

LSB = signed(10)  #: Exponent of one unit of sums.

#: State of one exponent, as `golden.trainer.exponents.Exponent` has it; `now` and `next` are stored as E + 126. A reset
#: makes all of it 0.
ExponentState = data.StructLayout({
    "now": EXPONENT_BITS, "next": EXPONENT_BITS, "length": LENGTH, "lsb": LSB, "written": 1,
    "change": change_shape(LazyFormat())})

#: What a `measure` tells: `again` is or-ed to the flag of that name, and the counts are added to the counters; they are
#: 0 unless a pass of an update stands. With `underflow` nothing has changed, and the instruction is an UNDERFLOW.
MeasureAnswer = data.StructLayout({"again": 1, "underflow": 1, "changes": 1, **dict.fromkeys(COUNTS, COUNT)})


class Measure(wiring.Component):
    """Makes new states of the exponents that a `measure` names, one measure after the other.

    Members:
        kind: In(2). `spec.trainer.instructions.MeasureKind`, held from the first record that goes in until the last one
            has come out, as `rate` and `summary` are.
        rate: In(8). E + 126 of the learning rate.
        summary: In(Summary). What the updates have met, for the kind update; otherwise it does not count.
        i: In(stream of ExponentState). The state of `e`; for the kind update those of `ew` and `eg` behind it. Lengths
            are those of all cores.
        o: Out(stream of ExponentState). As many new states, in the same order.
        answer: Out(MeasureAnswer). Counts while `o` is valid, and is the same for all states of a measure.

    Timing:
        The first state comes out at most 24 cycles after the last one went in. What comes out is held until it is
        taken; the next measure may begin in the cycle after the last state was taken.
    """

    kind: In(2)
    rate: In(EXPONENT_BITS)
    summary: In(Summary)
    i: In(stream.Signature(ExponentState))
    o: Out(stream.Signature(ExponentState))
    answer: Out(MeasureAnswer)
