"""The words of old parameters and the rows of their gradients to groups of lanes."""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.trainer.parameter_words import GROUPS
from concord.hw.trainer.update_lanes import GROUP, OldGroup
from concord.hw.trainer.wires import ROW, Word, row_reader
from concord.spec.numbers.lazy import ACCUMULATOR_BITS
from concord.spec.trainer.config import LANES, PARAMETER_PLANES, PLAIN_LANE


class ParameterGather(wiring.Component):
    """Brings five words and the sums of a row together.

    Members:
        start: In(1). A job begins, at the row `acc`.
        acc: In(9).
        bias: In(1). Held for the job. Gradients are the plain lanes of one row for each lane.
        words: In(stream of Word). The planes of each row.
        row, sums: as `wires.row_reader`.
        go: In(1). Groups are taken.
        o: Out(OldGroup). Groups.

    Timing:
        A group a cycle, if words and sums come as they are asked for. With `bias`, a read of the accumulators for each
        lane, of which none is asked for before the group ahead has left.
    """

    def __init__(self):
        super().__init__({
            "start": In(1), "acc": In(ROW), "bias": In(1), "words": In(stream.Signature(Word)), **row_reader(),
            "go": In(1), "o": Out(OldGroup)})

    def elaborate(self, platform):
        m = Module()
        # While the groups of a row leave, the words and sums of the next one gather; with `bias`, the sums of a group.
        there, phase, leaves, last, moves = Signal(), Signal(range(GROUPS)), Signal(), Signal(), Signal()
        gathered, begun, words = self._gather(m, moves)
        summed, sums, plain = self._sum(m, Mux(self.bias, there, begun), Mux(self.bias, leaves, moves))
        m.d.comb += [
            leaves.eq(there & self.go & (~self.bias | summed)),
            last.eq(leaves & (phase == GROUPS - 1)),
            moves.eq(gathered & (~there | last) & (self.bias | summed))]
        m.d.sync += phase.eq(phase + leaves)
        with m.If(moves):
            m.d.sync += there.eq(1)
        with m.Elif(last):
            m.d.sync += there.eq(0)
        kept = []
        for value in (*words, sums):
            kept.append(Signal(len(value)))
            with m.If(moves):
                m.d.sync += kept[-1].eq(value)
        mantissas, low, high, low_momenta, high_momenta, sums = (
            value.word_select(phase, len(value) // GROUPS) for value in kept)
        m.d.comb += [
            self.o.valid.eq(leaves), Value.cast(self.o.mantissas).eq(mantissas),
            Value.cast(self.o.residuals).eq(_pairs(low, high)),
            Value.cast(self.o.momenta).eq(_pairs(low_momenta, high_momenta)),
            Value.cast(self.o.sums).eq(Mux(self.bias, plain, sums))]
        return m

    def _gather(self, m, moves):
        """Collect the words of a row. Returns whether all are there, whether some are, and the words."""
        words, gathered, plane = [Signal(8 * LANES) for _ in range(PARAMETER_PLANES)], Signal(), Signal(3)
        taken, ends = Signal(), plane == PARAMETER_PLANES - 1
        m.d.comb += [self.words.ready.eq(~gathered | moves), taken.eq(self.words.valid & self.words.ready)]
        with m.If(taken):
            m.d.sync += plane.eq(Mux(ends, 0, plane + 1))
        m.d.sync += gathered.eq((taken & ends) | (gathered & ~moves))
        for index, word in enumerate(words):
            with m.If(taken & (plane == index)):
                m.d.sync += word.eq(Value.cast(self.words.payload))
        return gathered, gathered | plane.any(), words

    def _sum(self, m, wanted, used):
        """Ask for the sums of a row, or of a group. Returns whether they are there, all lanes, and plain ones."""
        asked, answered, row = Signal(range(GROUP + 1)), Signal(range(GROUP + 1)), Signal(ROW)
        needed, taken = Mux(self.bias, GROUP, 1), self.row.valid & self.row.ready
        sums, plain = Signal(ACCUMULATOR_BITS * LANES), [Signal(ACCUMULATOR_BITS) for _ in range(GROUP)]
        m.d.comb += [self.row.valid.eq(wanted & (asked != needed)), self.row.payload.eq(row)]
        m.d.sync += [asked.eq(Mux(used, 0, asked + taken)), answered.eq(Mux(used, 0, answered + self.sums.valid))]
        with m.If(self.start):
            m.d.sync += row.eq(self.acc)
        with m.Elif(taken):
            m.d.sync += row.eq(row + 1)
        with m.If(self.sums.valid):
            m.d.sync += sums.eq(Value.cast(self.sums.sums))
        for index, lane in enumerate(plain):
            with m.If(self.sums.valid & (answered == index)):
                m.d.sync += lane.eq(self.sums.sums[PLAIN_LANE])
        return answered == needed, sums, Cat(plain)


def _pairs(low, high):
    """Numbers of two bytes from their low bytes and their high bytes."""
    return Cat(part.word_select(k, 8) for k in range(GROUP) for part in (low, high))
