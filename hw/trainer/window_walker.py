"""The words of on-chip rasters that windows of images see, for `copy` with `patches`."""

from functools import partial

from amaranth import *
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.lib.arithmetic import loaded_sum
from concord.hw.trainer.row_walker import RowWalker
from concord.hw.trainer.wires import CHIP_ADDRESS, COUNT, View
from concord.spec.trainer.config import LANES

#: What a patch takes of a word: bytes `low` to `high` - 1, each to the lane `turn` below it, modulo 16. `begin` and
#: `end` are the first and the last part of a patch.
Piece = data.StructLayout({"low": 4, "high": 5, "turn": 4, "begin": 1, "end": 1})
#: A word of a raster, of which nothing is read unless it is `inside`; `last` ends the last patch.
WindowStep = data.StructLayout({"word": CHIP_ADDRESS, "inside": 1, "piece": Piece, "last": 1})

POSITION = signed(21)  #: A position in a row of a raster, in bytes: (origin + step * t2) * channels.


class State(enum.Enum):
    """What becomes of the present job."""

    FREE = 0  #: There is none.
    MEASURE = 1  #: Pixels become bytes, in as many cycles as there are channels.
    WALK = 2  #: Words are given.


class WindowWalker(wiring.Component):
    """Walk through windows of `size` times `size` pixels of `channels` bytes: word by word of each of their rows.

    A row of a window lies in one word of its raster, or in two.

    Members:
        view: In(View). Rasters, held from `start` to the last step; jump2 and pitch2 do not count.
        size, channels: In(4). Held as the view; their product is below 16.
        start: In(1). It comes when there are no steps.
        o: Out(stream of WindowStep). Steps, which follow from registers by one adder.

    Timing:
        One step a cycle: for each row of a window one, or two if it begins in one word and ends in the next one.
    """

    def __init__(self):
        super().__init__({
            "view": In(View), "size": In(4), "channels": In(4), "start": In(1), "o": Out(stream.Signature(WindowStep))})

    def elaborate(self, platform):
        m = Module()
        m.submodules.rows = self.rows = RowWalker()
        self.state, self.begins, self.moved = Signal(State), Signal(), Signal()
        # In bytes: of the first window of a row, from window to window, of a row of the raster, of a row of a window.
        self.origin, self.stride, self.width, self.row = Signal(POSITION), Signal(8), Signal(16), Signal(4)
        self.at, self.part = Signal(POSITION), Signal()  # where the window begins; the second word of its row
        self.tap, self.line, self.lane = Signal(4), Signal(CHIP_ADDRESS), Signal(4)  # its row: number, words, and lanes
        self._measure(m)
        self._walk(m, partial(loaded_sum, m, platform))
        return m

    def _measure(self, m):
        """Multiply pixels by their bytes."""
        view, left, rows = self.view, Signal(4), self.rows
        measures = (self.state == State.MEASURE) & left.any()
        for total, each in ((self.origin, view.origin2), (self.stride, view.step2), (self.width, view.limit2),
                            (self.row, self.size)):
            with m.If(self.start | measures):
                m.d.sync += total.eq(Mux(self.start, 0, total + each))
        with m.If(self.start):
            m.d.sync += [left.eq(self.channels), self.state.eq(State.MEASURE)]
        with m.Elif(measures):
            m.d.sync += left.eq(left - 1)
        with m.Elif(self.begins):
            m.d.sync += self.state.eq(State.WALK)
        m.d.comb += [
            self.begins.eq((self.state == State.MEASURE) & ~left.any()), rows.start.eq(self.begins),
            rows.view.eq(view), rows.view.limit2.eq(0), rows.view.jump2.eq(0), rows.c1.eq(self.tap)]

    def _walk(self, m, loaded):
        """Go to the next part of a row, row of a window, or window."""
        left, shift = Signal(COUNT), self.at[:4]  # windows to the end of their row
        row_ends, window_ends, line_ends = Signal(), Signal(), Signal()
        m.d.comb += [
            row_ends.eq(self.part | (shift + self.row <= LANES)),
            window_ends.eq(row_ends & (self.tap + 1 == self.size)),
            line_ends.eq(left == 1), self.rows.step.eq(self.moved & window_ends)]
        with m.If(self.moved):
            m.d.sync += self.part.eq(~row_ends)
        with m.If(self.begins | (self.moved & window_ends)):
            again = self.begins | line_ends
            m.d.sync += [
                self.tap.eq(0), self.line.eq(0), self.lane.eq(0),
                left.eq(loaded(again, self.view.n2, left, Const(-1))),
                self.at.eq(loaded(again, self.origin, self.at, self.stride))]
        with m.Elif(self.moved & row_ends):
            m.d.sync += [self.tap.eq(self.tap + 1), self.line.eq(self.line + self.view.pitch1),
                         self.lane.eq(self.lane + self.row)]
        last = window_ends & self.rows.last
        with m.If(self.moved & last):
            m.d.sync += self.state.eq(State.FREE)
        self._give(m, shift, window_ends, last)

    def _give(self, m, shift, window_ends, last):
        """Make steps, in two cycles: bytes outside the raster are cut off."""
        o, piece, walks, place = self.o, self.o.p.piece, self.state == State.WALK, Signal(POSITION.width - 4 + 1)
        words, tail = self.width[4:], self.width[:4]  # whole words of a row of the raster, and bytes behind them
        m.d.comb += [self.moved.eq(walks & (~o.valid | o.ready)), place.eq(self.at[4:].as_signed() + self.part)]
        first, offset, begins, part, edge = (Signal(n) for n in (CHIP_ADDRESS, CHIP_ADDRESS, 4, 1, 1))
        with m.If(self.moved):
            whole, ends = place < words, (place == words) & tail.any()  # positions before the row are large
            m.d.sync += [
                first.eq(self.rows.word), offset.eq(self.line + place), begins.eq(shift), part.eq(self.part),
                edge.eq(ends), o.p.inside.eq(self.rows.inside & (whole | ends)), o.p.last.eq(last),
                piece.turn.eq(shift - self.lane), piece.begin.eq(~self.tap.any() & ~self.part),
                piece.end.eq(window_ends)]
        with m.If(self.moved):
            m.d.sync += o.valid.eq(1)
        with m.Elif(o.ready):
            m.d.sync += o.valid.eq(0)
        behind, high = Signal(5), Signal(5)  # the byte behind the window, in the first word of its row or in this one
        m.d.comb += [
            behind.eq(begins + self.row), high.eq(Mux(part, behind[:4], Mux(behind[4], LANES, behind))),
            o.p.word.eq(first + offset), piece.low.eq(Mux(part, 0, begins)),
            piece.high.eq(Mux(edge & (tail < high), tail, high))]
