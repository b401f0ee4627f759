"""The bias of a product in units of its sums."""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.trainer.wires import SHIFT, Word
from concord.spec.numbers.lazy import ACCUMULATOR_BITS
from concord.spec.trainer.config import LANES

_BYTE = 8


class BiasLanes(wiring.Component):
    """Make rs(byte, right) of the 16 bytes of a word, one a cycle, modulo 2^48.

    Members:
        valid, word: In. The word.
        right: In(SHIFT). -39..9; held until `done`.
        lanes: Out(16 numbers of 48 bits).
        done: Out(1). Pulse: `lanes` shows those of the word.

    Timing:
        LANES + 2 cycles.
    """

    def __init__(self):
        super().__init__({"valid": In(1), "word": In(Word), "right": In(SHIFT), "done": Out(1),
                          "lanes": Out(data.ArrayLayout(signed(ACCUMULATOR_BITS), LANES))})

    def elaborate(self, platform):
        m = Module()
        left, present = Signal(range(LANES + 2)), Signal(LANES * _BYTE)
        with m.If(self.valid):
            m.d.sync += [left.eq(LANES + 1), present.eq(self.word)]
        with m.Elif(left != 0):
            m.d.sync += [left.eq(left - 1), present.eq(present >> _BYTE)]
        m.d.sync += self.done.eq(left == 1)
        # Rounded half away from zero on the magnitude, then with its sign to the left: one of the shifts is 0.
        byte, rounded = present[:_BYTE].as_signed(), Signal(signed(_BYTE + 1))
        magnitude, halves = Signal(_BYTE), Signal(_BYTE + 1)
        m.d.comb += [magnitude.eq(abs(byte)),
                     halves.eq(Cat(0, magnitude) >> Mux(self.right < 0, 0, self.right)[:4])]
        nearest = (halves + 1)[1:]
        m.d.sync += rounded.eq(Mux(byte < 0, -nearest, nearest))
        shifted = (rounded << Mux(self.right < 0, -self.right, 0)[:6])[:ACCUMULATOR_BITS].as_signed()
        with m.If(left != 0):
            m.d.sync += [lane.eq(after) for lane, after in
                         zip(self.lanes, [*list(self.lanes)[1:], shifted], strict=True)]
        return m
