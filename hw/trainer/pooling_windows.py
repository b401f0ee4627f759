"""The windows that hold each pixel of an image, for gradients of poolings."""

from functools import partial

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from concord.hw.lib.arithmetic import loaded_sum
from concord.hw.trainer.grants import chosen
from concord.hw.trainer.wires import CHIP_ADDRESS, COUNT, PoolingJob

INDEX = 8  #: Bits of the index of a pixel in a window, i * size + j.
_POSITION = signed(5)  #: A position in a window along an axis; below 0, the window begins behind the pixel.


class PoolingWindows(wiring.Component):
    """Walk through the pixels (t0, t1, t2) of y, and for each through the windows (p, q) of x that hold it.

    A window holds the pixel if i = t1 - p * stride and j = t2 - q * stride lie in 0..size - 1. Nothing is divided: from
    pixel to pixel, the first window that may hold it moves by one at most.

    Members:
        job: In(PoolingJob). A `pool_back`, held from `start` on.
        start: In(1). The next cycle stands on the first pixel of block 0.
        step: In(1). The next cycle stands on the first window of the next pixel; behind the last pixel comes the next
            block.
        turn: In(1). The next cycle stands on the next window of this pixel; `more` says that there is one.
        some: Out(1). Whether a window holds this pixel.
        more: Out(1). Whether another one is behind the present one.
        same: Out(1). Whether the only window of this pixel is that of the pixel before.
        word: Out(16). Word of the window in x, plane 0.
        which: Out(16). Its word in `chosen`.
        index: Out(8). i * size + j.
        last: Out(1). Whether this is the last pixel of the block.
    """

    def __init__(self):
        super().__init__({
            "job": In(PoolingJob), **dict.fromkeys(("start", "step", "turn"), In(1)),
            **dict.fromkeys(("some", "more", "same", "last"), Out(1)),
            "word": Out(CHIP_ADDRESS), "which": Out(CHIP_ADDRESS), "index": Out(INDEX)})

    def elaborate(self, platform):
        m = Module()
        job, start, step = self.job, self.start, self.step
        self.loaded = partial(loaded_sum, m, platform)
        end2 = self._count(m, job.y.n2, step)
        end1 = self._count(m, job.y.n1, step & end2)
        end0 = self._count(m, job.y.n0, step & end2 & end1)
        # Columns are faster than rows: all windows of one row of windows come behind each other.
        line, column = Signal(), Signal()  # the next window lies in another row of windows, or in this one
        rows = self._axis(m, job.x.n1, start | (step & end2 & end1), step & end2 & ~end1, step & ~end2, line)
        columns = self._axis(m, job.x.n2, start | (step & end2), step & ~end2, line, column)
        m.d.comb += [
            column.eq(self.turn & columns.more), line.eq(self.turn & ~columns.more),
            self.some.eq(rows.some & columns.some), self.more.eq(rows.more | columns.more),
            self.last.eq(end0 & end1 & end2), self.index.eq(_times(rows.place, job.size) + columns.place)]
        with m.If(start | step):
            apart = job.stride >= job.size
            m.d.sync += self.same.eq(~start & ~end2 & self.some & ~columns.moves & apart)
        for view, word in ((job.x, self.word), (job.chosen.view, self.which)):
            loaded = partial(self.loaded, start, view.first)
            m.d.comb += word.eq(_nested(
                m, loaded, start,
                (step & end2 & end1 & end0, view.block), (step & end2 & end1 & ~end0, view.s0),
                (step & end2 & ~end1, Mux(rows.moves, view.jump1, 0)),
                (step & ~end2, Mux(columns.moves, view.jump2, 0)), (line, view.jump1), (column, view.jump2)))
        return m

    def _count(self, m, count, moves):
        """Whether an axis of y stands on its last pixel; behind that it begins anew."""
        left = Signal(COUNT)
        ends = left == 1
        with m.If(self.start | moves):
            m.d.sync += left.eq(self.loaded(self.start | ends, count, left, Const(-1)))
        return ends

    def _axis(self, m, count, begins, steps, again, turns):
        """An axis of windows: the present window, and the first one that may hold the pixel."""
        axis = _Axis()
        place, left = Signal(_POSITION), Signal(COUNT)  # of the first window: the pixel in it, windows from it on
        after, stride = (place + 1)[:len(place)].as_signed(), self.job.stride
        fresh, rest = Signal(_POSITION), Signal(COUNT)  # the same for the next pixel
        m.d.comb += [axis.moves.eq(after == self.job.size), fresh.eq(after - Mux(axis.moves, stride, 0)),
                     rest.eq(left - (axis.moves & left.any()))]
        with m.If(begins):
            m.d.sync += [place.eq(0), left.eq(count), axis.place.eq(0), axis.left.eq(count)]
        with m.Elif(steps):
            m.d.sync += [place.eq(fresh), left.eq(rest), axis.place.eq(fresh), axis.left.eq(rest)]
        with m.Elif(again):
            m.d.sync += [axis.place.eq(place), axis.left.eq(left)]
        with m.Elif(turns):
            m.d.sync += [axis.place.eq(axis.place - stride), axis.left.eq(axis.left - 1)]
        m.d.comb += [axis.some.eq(~axis.place[-1] & axis.left.any()),
                     axis.more.eq((axis.place >= stride) & (axis.left > 1))]
        return axis


class _Axis:
    """Wires of an axis: of the present window, the position of the pixel, and the number of windows from it on."""

    def __init__(self):
        self.place, self.left = Signal(_POSITION), Signal(COUNT)
        self.some, self.more, self.moves = Signal(), Signal(), Signal()


def _times(position, size):
    """position * size, of positions that are not negative, without a multiplier."""
    parts = [Mux(position[k], size << k, 0) for k in range(len(size))]
    return (parts[0] + parts[1]) + (parts[2] + parts[3])


def _nested(m: Module, loaded, start, *levels):
    """The word of the fastest axis, modulo 2**CHIP_ADDRESS, in a register.

    Each axis keeps a word. One that moves adds its stride to its own word, in the one adder that all share, and all
    faster axes begin there.

    Args:
        loaded: A function of two numbers, which gives the first word with `start`, and else their sum.
        start:  All axes begin at the first word.
        levels: Pairs (moves, stride) of the axes, the slowest first. One moves in a cycle at most.
    """
    words, turns = [Signal(CHIP_ADDRESS) for _ in levels], [moves for moves, _ in levels]
    after = loaded(chosen(turns, words), chosen(turns, [stride[:CHIP_ADDRESS] for _, stride in levels]))
    loads = start
    for word, moves in zip(words, turns, strict=True):
        loads |= moves
        with m.If(loads):
            m.d.sync += word.eq(after)
    return words[-1]
