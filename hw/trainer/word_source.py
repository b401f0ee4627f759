"""Reads words of a view of on-chip memory, of accumulators or of exponents; makes zeros and patches."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.lib.pipeline import delay, delay_control
from concord.hw.trainer.window_gatherer import WindowGatherer
from concord.hw.trainer.window_walker import Piece, WindowStep, WindowWalker
from concord.hw.trainer.wires import (
    CHIP_ADDRESS,
    CHIP_LATENCY,
    ROW_LATENCY,
    ChipAnswer,
    Sums,
    View,
    chip_reader,
    exponent_reader,
    row_reader,
)
from concord.hw.trainer.word_walker import WordWalker, held
from concord.spec.trainer.config import LANES, PLAIN_LANE
from concord.spec.trainer.instructions import Space

#: What is read. `zeros`: nothing, but as many words of zeros. `patches`: rasters, and patches are made of them.
SourceJob = data.StructLayout({"view": View, "by_rows": 1, "zeros": 1, "patches": 1, "size": 4, "channels": 4})

#: A word that is asked for. `rows` and `exponents`: it lies there, and not on the chip.
Ask = data.StructLayout({
    "word": CHIP_ADDRESS, "inside": 1, "rows": 1, "exponents": 1, "plane": 3, "block": 1, "first": 1, "piece": Piece})


class WordSource(wiring.Component):
    """Give words in the order of a `WordWalker`, or patches in the order of rows.

    Accumulators are read once a row; their words follow from there. Words of all memories take the same way, so that
    they come in the order in which they were asked for.

    Args:
        most:    Most words that may wait for the source's user.
        patches: It makes patches, too. Otherwise no job asks for them.

    Members:
        i: In(stream of SourceJob). Jobs.
        room: In. Number of words that are taken from now on without a stall.
        o: Out({valid, bytes}). Words, which do not wait.
        read, answer, row, sums, exponent, exponents: as `wires.chip_reader`, `wires.row_reader` and
            `wires.exponent_reader`.

    Timing:
        One word a cycle; of patches as `WindowWalker`. From one job to the next one 3 cycles; 9 from a job to its
        first word, 12 with patches.
    """

    def __init__(self, most: int, patches: bool = False):
        self.patches = patches
        super().__init__({
            "i": In(stream.Signature(SourceJob)), "room": In(range(most + 1)), "o": Out(ChipAnswer),
            **chip_reader(), **row_reader(), **exponent_reader()})

    def elaborate(self, platform):
        m = Module()
        ask, issued = self._ask(m)
        far, words = self._far(m, ask, issued), self.o
        if self.patches:
            m.submodules.gatherer = gatherer = WindowGatherer()
            m.d.comb += [gatherer.i.piece.eq(delay(m, ask.piece, CHIP_LATENCY)), self.o.eq(gatherer.o)]
            words = gatherer.i
        near = delay(m, ~(ask.rows | ask.exponents), CHIP_LATENCY)
        m.d.comb += [words.valid.eq(delay_control(m, issued, CHIP_LATENCY)),
                     Value.cast(words.bytes).eq(Mux(near, Value.cast(self.answer.bytes), far))]
        return m

    def _ask(self, m):
        """Walk through the words of jobs, as long as there is room for them. Returns the word that is asked for, and
        whether this is granted.
        """
        m.submodules.walker = walker = WordWalker()
        words, patches = walker.o, stream.Signature(WindowStep).create(path=("patches",))
        job, start = held(m, self.i, (words.ready & words.p.last) | (patches.ready & patches.p.last))
        ask, there, may, moved = Signal(Ask), Signal(), Signal(), Signal()
        issued = there & Mux(ask.rows, ~ask.first | self.row.ready, ask.exponents | self.read.ready)
        free, makes = may & (~there | issued), job.patches & Const(self.patches)
        if self.patches:
            m.submodules.windows = windows = WindowWalker()
            wiring.connect(m, windows.o, wiring.flipped(patches))
            m.d.comb += [windows.view.eq(job.view), windows.size.eq(job.size), windows.channels.eq(job.channels),
                         windows.start.eq(start & makes)]
        m.d.comb += [
            walker.view.eq(job.view), walker.by_rows.eq(job.by_rows), walker.start.eq(start & ~makes),
            words.ready.eq(words.valid & free), patches.ready.eq(patches.valid & free),
            moved.eq(words.ready | patches.ready),
            self.read.valid.eq(there & ~ask.rows & ~ask.exponents), self.read.p.word.eq(ask.word),
            self.read.p.zeros.eq(~ask.inside), self.row.valid.eq(there & ask.rows & ask.first), self.row.p.eq(ask.word)]
        with m.If(moved):
            m.d.sync += [there.eq(1), *self._asked(ask, job, makes, words.p, patches.p)]
        with m.Elif(issued):
            m.d.sync += there.eq(0)
        begun = moved & (words.ready | patches.p.piece.begin)
        under_way = Signal.like(self.room)  # words
        m.d.sync += [under_way.eq(under_way + begun - self.o.valid), may.eq(under_way + 2 <= self.room)]
        return ask, issued

    def _asked(self, ask, job, makes, word, patch):
        """What is asked for with a word of either walker; patches are made of the second one's words."""
        whole = Const({"low": 0, "high": LANES, "turn": 0, "begin": 1, "end": 1}, Piece)
        space, on_chip = job.view.space, job.zeros | makes
        return [
            ask.word.eq(Mux(makes, patch.word, word.word)),
            ask.inside.eq(Mux(makes, patch.inside, word.inside & ~job.zeros)),
            ask.rows.eq((space == Space.ACCUMULATORS.value) & ~on_chip),
            ask.exponents.eq((space == Space.EXPONENTS.value) & ~on_chip),
            ask.plane.eq(word.plane), ask.block.eq(word.block), ask.first.eq(word.first & word.inside),
            Value.cast(ask.piece).eq(Mux(makes, Value.cast(patch.piece), Value.cast(whole)))]

    def _far(self, m, ask, issued):
        """Bytes of accumulators and exponents, as late as those of the chip come: sums are held, then a plane is taken
        of them, then a block.
        """
        sums, plane_at = Signal(Sums), ROW_LATENCY + 1
        with m.If(delay_control(m, issued & ask.rows & ask.first, ROW_LATENCY)):
            m.d.sync += sums.eq(self.sums.sums)
        plane, taken = delay(m, ask.plane, plane_at), Signal(8 * (LANES + 1))
        m.d.sync += taken.eq(Cat(Value.cast(sums[k]).word_select(plane, 8) for k in range(LANES + 1)))
        m.d.comb += self.exponent.eq(delay(m, ask.word[:2], plane_at))
        later = CHIP_LATENCY - 1
        inside, block, exponents = (delay(m, each, later) for each in (ask.inside, ask.block, ask.exponents))
        lanes, plain = taken[:8 * LANES], taken[8 * PLAIN_LANE:]
        far = Signal(8 * LANES)
        m.d.sync += far.eq(Mux(inside, Mux(exponents, Value.cast(self.exponents), Mux(block, plain, lanes)), 0))
        return far
