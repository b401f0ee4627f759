"""A multi-function unit: golden.mfu.multifunction in hardware."""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.lib.payloads import control
from concord.hw.lib.pipeline import delay
from concord.hw.mfu.activation import Activation
from concord.hw.mfu.adder import FloatAdder
from concord.hw.mfu.multiplier import FloatMultiplier
from concord.spec.isa.operations import TAP_BEFORE, TAPS, Stage


class MultiFunctionUnit(wiring.Component):
    """Applies the stages add, activation and multiply to one word of `lanes` binary16 numbers in each cycle.

    Args:
        lanes: Numbers in one word.
        more:  Whether the activation stage has the functions of machines with `more_functions`.

    Members:
        value: In(16 x lanes). The chain's value.
        tap: In(2 words). Values that the taps carry into the unit.
        control: In(control). Codes of the stages for this word, with `value`, and for each tap the `Tap` it carries on.
        addend: In(16 x lanes). The operand of the add stage, with `value`.
        factor: In(16 x lanes). The operand of the multiply stage, `factor_at` cycles after `value`.
        value_out: Out(16 x lanes). The value after the multiply stage.
        tap_out: Out(2 words). Values that the taps carry out of the unit.

    Timing:
        One word a cycle; outputs `latency` cycles after `value`. Never stalls; reset does nothing.
    """

    factor_at = FloatAdder.latency + Activation.latency
    latency = factor_at + FloatMultiplier.latency

    def __init__(self, lanes: int, more: bool = False):
        self.lanes, self.more = lanes, more
        word = data.ArrayLayout(16, lanes)
        super().__init__({
            "value": In(word), "tap": In(data.ArrayLayout(word, TAPS)), "control": In(control(more=more)),
            "addend": In(word), "factor": In(word),
            "value_out": Out(word), "tap_out": Out(data.ArrayLayout(word, TAPS))})

    def elaborate(self, platform):
        m = Module()
        word = data.ArrayLayout(16, self.lanes)
        added, activated = Signal(word), Signal(word)
        act, mul = delay(m, self.control.act, FloatAdder.latency), delay(m, self.control.mul, self.factor_at)
        for lane in range(self.lanes):
            m.submodules[f"adder{lane}"] = adder = FloatAdder()
            m.submodules[f"activation{lane}"] = activation = Activation(self.more)
            m.submodules[f"multiplier{lane}"] = multiplier = FloatMultiplier()
            m.d.comb += [
                adder.a.eq(self.value[lane]), adder.b.eq(self.addend[lane]), adder.op.eq(self.control.add),
                activation.a.eq(adder.o), activation.op.eq(act),
                multiplier.a.eq(activation.o), multiplier.b.eq(self.factor[lane]), multiplier.op.eq(mul),
                added[lane].eq(adder.o), activated[lane].eq(activation.o), self.value_out[lane].eq(multiplier.o)]

        for code, carried, out in zip(self.control.tap, self.tap, self.tap_out, strict=True):
            for stage, value, cycles in ((Stage.ADD, self.value, FloatAdder.latency),
                                         (Stage.ACT, added, Activation.latency),
                                         (Stage.MUL, activated, FloatMultiplier.latency)):
                carried = delay(m, Mux(code == TAP_BEFORE[stage], value.as_value(), Value.cast(carried)), cycles)
                code = delay(m, code, cycles)
            m.d.comb += out.eq(carried)
        return m
