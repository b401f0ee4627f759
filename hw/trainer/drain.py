"""Brings the sums of products to mantissas: bias, conversion, relu and mask."""

from amaranth import *
from amaranth.lib import enum, wiring
from amaranth.lib.wiring import In
from concord.hw.lib.arithmetic import chosen_sum
from concord.hw.lib.pipeline import delay_control
from concord.hw.trainer.bias_lanes import BiasLanes
from concord.hw.trainer.mantissa_words import MantissaWords
from concord.hw.trainer.row_walker import RowWalker
from concord.hw.trainer.sum_converter import LENGTH_CYCLES, SumConverter, length
from concord.hw.trainer.wires import (
    MEASURED,
    ROW,
    ChipRead,
    ProductJob,
    chip_reader,
    chip_writer,
    engine,
    row_reader,
)
from concord.spec.trainer.config import LANES

HALF = LANES // 2  #: Lanes that are converted in one cycle.
PLANES = 4  #: Most planes of y.


class State(enum.Enum):
    """What becomes of the present product."""

    FREE = 0  #: There is none.
    START = 1  #: The walkers are brought to its first row.
    BIAS = 2  #: The bias is asked for, and made.
    ROWS = 3  #: Rows are read as they land.
    WRITE = 4  #: All rows are read, and the last ones are written.
    REST = 5  #: Without y: the last row lands.
    MEASURE = 6  #: The length of the sums is made.
    END = 7  #: The product has ended.


class Drain(wiring.Component):
    """Bring all sums of a product to mantissas of y, if it has a y, and say when the product has ended.

    t = acc + rs(bias, bias_right), or rs(bias, 0) with `bias_only`; m = rs(t, right), clipped to 8 * planes bits

    Members:
        job, ended: as `wires.engine`.
        landed: In(1). One more row of y, or the last row of a product without y, is in the accumulators. The next
            product may count its rows before this one has ended.
        read, answer: The chip.
        row, sums: The accumulators.
        write: The chip.

    Timing:
        2 cycles a row, or as many as y has planes. A product ends when its last word has been taken and measured.
    """

    def __init__(self):
        super().__init__({**engine(ProductJob), "landed": In(1), **chip_reader(), **row_reader(), **chip_writer()})

    def elaborate(self, platform):
        m = Module()
        self.state, self.present, waiting = Signal(State), Signal(ProductJob), Signal(LENGTH_CYCLES.bit_length())
        job, state = self.present, self.state
        m.submodules.y = self.y = RowWalker()
        m.submodules.mask = self.mask = RowWalker()
        m.submodules.bias = self.bias = BiasLanes()
        m.submodules.words = self.words = MantissaWords(HALF)
        self.asked, self.step = Signal(), Signal()  # whether the bias was asked for; a row is asked for
        credit, self.some = Signal(ROW + 2), Signal()  # rows that have landed and are not read
        used = self.step | ((state == State.REST) & self.some)
        m.d.comb += [self.job.ready.eq(state == State.FREE), self.some.eq(credit != 0)]
        m.d.sync += credit.eq(credit + self.landed - used)
        with m.Switch(state):
            with m.Case(State.FREE):
                m.d.sync += [job.eq(self.job.p), self.asked.eq(0), waiting.eq(LENGTH_CYCLES)]
                with m.If(self.job.valid):
                    m.d.sync += state.eq(State.START)
            with m.Case(State.START):
                m.d.sync += state.eq(Mux(job.y.there, State.BIAS, State.REST))
            with m.Case(State.BIAS):
                with m.If(self.bias.done):
                    m.d.sync += state.eq(State.ROWS)
            with m.Case(State.ROWS):
                with m.If(self.step & self.y.last):
                    m.d.sync += state.eq(State.WRITE)
            with m.Case(State.WRITE):
                with m.If(self.words.empty):
                    m.d.sync += state.eq(State.MEASURE)
            with m.Case(State.REST):
                with m.If(self.some):
                    m.d.sync += state.eq(State.MEASURE)
            with m.Case(State.MEASURE):
                m.d.sync += waiting.eq(waiting - 1)
                with m.If(waiting == 1):
                    m.d.sync += state.eq(State.END)
            with m.Case(State.END):
                m.d.sync += state.eq(State.FREE)
        self._ask(m)
        found = self._convert(m, platform)
        m.d.comb += [self.ended.valid.eq(state == State.END), self.ended.length.eq(length(m, found))]
        return m

    def _ask(self, m):
        """Ask for the bias, then for each row: first for its mask, and then for its sums."""
        job, words, read = self.present, self.words, Signal(ChipRead)
        row, waits, pause = Signal(ROW), Signal(), Signal(range(PLANES))
        for walker, view in (self.y, job.y.view), (self.mask, job.mask.view):
            m.d.comb += [walker.view.eq(view), walker.start.eq(self.state == State.START), walker.step.eq(self.step)]
        taken = self.row.valid & self.row.ready
        m.d.comb += [
            self.read.p.eq(read), self.row.valid.eq(waits & ~self.read.valid & (pause == 0)), self.row.p.eq(row),
            self.step.eq((self.state == State.ROWS) & self.some & words.room & (~waits | taken)),
            words.row.eq(self.step), words.word.eq(self.y.word)]
        m.d.sync += pause.eq(Mux(taken, Mux(job.y.view.planes[2], PLANES - 1, 1), pause - (pause != 0)))
        with m.If(self.read.ready):
            m.d.sync += self.read.valid.eq(0)
        with m.If(taken):
            m.d.sync += [waits.eq(0), row.eq(row + 1)]
        with m.If((self.state == State.BIAS) & ~self.asked):
            m.d.sync += [self.read.valid.eq(1), self.asked.eq(1), read.word.eq(job.bias.view.first),
                         read.zeros.eq(~job.bias.there), row.eq(job.acc)]
        with m.Elif(self.step):
            m.d.sync += [self.read.valid.eq(job.mask.there), waits.eq(1), read.word.eq(self.mask.word),
                         read.zeros.eq(~self.mask.inside)]

    def _convert(self, m, platform):
        """Bias and conversion of both halves of a row, one after the other. Returns what all sums measure."""
        job, bias, words = self.present, self.bias, self.words
        m.submodules.converter = converter = SumConverter(HALF, PLANES)
        later, second = [Signal(sums.shape()) for sums in list(self.sums.sums)[HALF:LANES]], Signal()
        m.d.comb += [
            bias.valid.eq(self.answer.valid & (self.state == State.BIAS)), bias.word.eq(self.answer.bytes),
            bias.right.eq(Mux(job.bias_only, 0, job.bias_right))]
        m.d.sync += [second.eq(self.sums.valid), *(held.eq(sums) for held, sums in zip(
            later, list(self.sums.sums)[HALF:LANES], strict=True))]
        for k, (made, held) in enumerate(zip(converter.i.sums, later, strict=True)):
            sums = Mux(second, held, self.sums.sums[k]).as_unsigned() & (~job.bias_only).replicate(len(held))
            m.d.sync += made.eq(chosen_sum(m, platform, sums, second, *(
                Value.cast(bias.lanes[lane]) for lane in (k, HALF + k))))
        m.d.comb += [
            converter.i.valid.eq(delay_control(m, self.sums.valid | second, 1)), converter.i.right.eq(job.right),
            converter.i.planes.eq(job.y.view.planes), words.i.eq(converter.o), words.relu.eq(job.relu),
            words.masked.eq(job.mask.there), words.planes.eq(job.y.view.planes), words.plane.eq(job.y.view.plane),
            words.mask.valid.eq(self.answer.valid & (self.state != State.BIAS)), words.mask.bytes.eq(self.answer.bytes)]
        wiring.connect(m, words.write, wiring.flipped(self.write))
        found = Signal(MEASURED)
        with m.If(self.state == State.START):
            m.d.sync += found.eq(0)
        with m.Elif(converter.o.valid):
            m.d.sync += found.eq(found | converter.o.found)
        return found
