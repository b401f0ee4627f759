"""Groups of new parameters to the five words of a row."""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.lib.pipeline import delay, delay_control
from concord.hw.trainer.update_lanes import GROUP, NewGroup
from concord.hw.trainer.wires import Word
from concord.spec.trainer.config import LANES, PARAMETER_PLANES

GROUPS = LANES // GROUP  #: Groups of a row.
#: A word that is given in this cycle.
GivenWord = data.StructLayout({"valid": 1, "bytes": Word})


class ParameterWords(wiring.Component):
    """Collects the groups of a row.

    Members:
        i: In(NewGroup). Groups.
        o: Out({valid, bytes}). Words, plane by plane.

    Timing:
        The words of a row come one a cycle from the second cycle after its last group on.
    """

    def __init__(self):
        super().__init__({"i": In(NewGroup), "o": Out(GivenWord)})

    def elaborate(self, platform):
        m = Module()
        # Plane p is given p cycles after plane 0 and must not change until then, though the next row may come at once:
        # so planes are collected later, too.
        i, groups = self.i, Signal(range(GROUPS))
        planes = [[lane[low:low + 8] for lane in values] for values, low in (
            (i.mantissas, 0), (i.residuals, 0), (i.residuals, 8), (i.momenta, 0), (i.momenta, 8))]
        with m.If(i.valid):
            m.d.sync += groups.eq(groups + 1)
        turn = [delay_control(m, i.valid & (groups == GROUPS - 1), 1)]
        for _ in range(PARAMETER_PLANES - 1):
            turn.append(delay_control(m, turn[-1], 1))
        words, valid = [], i.valid
        for plane, lanes in enumerate(planes):
            part, word = delay(m, Cat(*lanes), plane), Signal(Word, name=f"word{plane}")
            valid = delay_control(m, valid, 1) if plane else valid
            with m.If(valid):
                m.d.sync += word.eq(Cat(Value.cast(word)[len(part):], part))
            words.append(word)
        given = Signal(Word)
        for word, gives in zip(words, turn, strict=True):
            with m.If(gives):
                m.d.comb += given.eq(word)
        m.d.comb += [self.o.valid.eq(delay_control(m, Cat(turn).any(), 1)), self.o.bytes.eq(delay(m, given, 1))]
        return m
