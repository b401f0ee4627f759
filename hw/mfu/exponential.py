"""The terms of a softmax: golden.mfu.softmax in hardware."""

from amaranth import *
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.lib.pipeline import delay
from concord.spec.numbers import softmax

SPAN_BITS = 33  #: Bits of the distance of two binary16 numbers in units of 2**-16.

_SURPLUS = 2 * softmax.FACTOR_BITS - softmax.TERM_BITS  # bits that every shift drops
Segment = data.StructLayout({"base": softmax.FACTOR_BITS, "slope": softmax.SLOPE_BITS})


class Exponential(wiring.Component):
    """Computes e of `spec.numbers.softmax` from the distance of an element from the largest one.

    Members:
        distance: In(33). Distance in units of 2**-16.
        o: Out(28). The term e.

    Timing:
        One term a cycle, `latency` cycles later. Never stalls; reset does nothing.
    """

    latency = 6

    def __init__(self):
        super().__init__({"distance": In(SPAN_BITS), "o": Out(softmax.TERM_BITS)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.table = rows = memory.Memory(
            shape=Segment, depth=1 << softmax.SEGMENT_BITS, init=[segment._asdict() for segment in softmax.fractions()])
        row = rows.read_port()

        # Cycle 1: the rows of both tables; beyond the last one of `wholes` the factor is 0.
        factor, shift = Signal(softmax.FACTOR_BITS), Signal(range(softmax.wholes()[-1].shift - _SURPLUS + 1))
        with m.Switch(self.distance[softmax.DISTANCE_BITS:]):
            for number, whole in enumerate(softmax.wholes()):
                with m.Case(number):
                    m.d.comb += [factor.eq(whole.factor), shift.eq(whole.shift - _SURPLUS)]
        m.d.comb += row.addr.eq(self.distance[softmax.LOW_BITS:softmax.DISTANCE_BITS])
        low = delay(m, self.distance[:softmax.LOW_BITS], 2)

        # Cycle 2: the output of the block RAM, which takes most of a cycle, as a product does. Cycle 3: how far the
        # chord falls. Cycle 4: B. Cycle 5: B times the factor. Cycle 6: the term.
        base, slope = delay(m, row.data.base, 2), delay(m, row.data.slope, 1)
        fall = delay(m, slope * low, 1)
        near = delay(m, (base - (fall >> softmax.LOW_BITS))[:softmax.FACTOR_BITS], 1)
        scaled = delay(m, near * delay(m, factor, 4), 1)
        m.d.comb += self.o.eq(delay(m, (scaled[_SURPLUS:] >> delay(m, shift, 5))[:softmax.TERM_BITS], 1))
        return m
