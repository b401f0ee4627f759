"""Brings bytes of words to the lanes of patches."""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.lib.pipeline import delay, delay_control
from concord.hw.trainer.window_walker import Piece
from concord.hw.trainer.wires import ChipAnswer, Word
from concord.spec.trainer.config import LANES


class WindowGatherer(wiring.Component):
    """Gather the pieces of a patch; a word that is one whole piece stays what it is.

    Members:
        i: In({valid, bytes, piece}). Words, and what is taken of them.
        o: Out({valid, bytes}). Patches; lanes that nothing comes to are 0.

    Timing:
        A word a cycle; a patch leaves 3 cycles after its last word.
    """

    def __init__(self):
        super().__init__({
            "i": In(data.StructLayout({"valid": 1, "bytes": Word, "piece": Piece})), "o": Out(ChipAnswer)})

    def elaborate(self, platform):
        m = Module()
        piece, taken, turned, made = self.i.piece, Signal(Word), Signal(8 * LANES), Signal(8 * LANES)
        for k in range(LANES):
            m.d.sync += taken[k].eq(Mux((piece.low <= k) & (k < piece.high), self.i.bytes[k], 0))
        lanes, turn = Value.cast(taken), delay(m, piece.turn, 1)
        for k in range(len(turn)):
            lanes = Mux(turn[k], lanes.rotate_right(8 << k), lanes)
        m.d.sync += turned.eq(lanes)
        begin, end = delay(m, piece.begin, 2), delay_control(m, self.i.valid & piece.end, 2)
        with m.If(delay_control(m, self.i.valid, 2)):
            m.d.sync += made.eq(turned | Mux(begin, 0, made))
        m.d.sync += self.o.valid.eq(end)
        m.d.comb += Value.cast(self.o.bytes).eq(made)
        return m
