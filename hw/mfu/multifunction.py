"""A multi-function unit: golden.mfu.multifunction in hardware."""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.lib.payloads import control, turn
from concord.hw.lib.pipeline import delay
from concord.hw.mfu.activation import Activation
from concord.hw.mfu.adder import FloatAdder
from concord.hw.mfu.multiplier import FloatMultiplier
from concord.hw.mfu.reducer import Reducer
from concord.spec.isa.operations import BYPASS, TAP_BEFORE, TAPS, Operation, Stage
from concord.spec.machine import timing


class MultiFunctionUnit(wiring.Component):
    """Applies the stages add, activation and multiply to one word of `lanes` binary16 numbers in each cycle.

    Args:
        lanes: Numbers in one word.
        more:  Whether the unit has the functions and reductions of machines with `more_functions`.
        registers: The attribute `mfu_registers` of the machine.

    Members:
        value: In(16 x lanes). The chain's value.
        tap: In(2 words). Values that the taps carry into the unit.
        control: In(control). Codes of the stages for this word, with `value`, and for each tap the `Tap` it carries on.
        addend: In(16 x lanes). The operand of the add stage, with `value`.
        factor: In(16 x lanes). The operand of the multiply stage, `factor_at` cycles after `value`.
        turn: In(`payloads.turn`). Position of the word in its iteration, with `value`; there with `more` only.
        value_out: Out(16 x lanes). The value after the multiply stage.
        tap_out: Out(2 words). Values that the taps carry out of the unit.

    Timing:
        One word a cycle; outputs `latency` cycles after `value`. Never stalls; reset does nothing.
    """

    def __init__(self, lanes: int, more: bool = False, registers: int = 0):
        self.lanes, self.more, self.registers = lanes, more, registers
        self.factor_at = timing.factor_due(lanes, registers, more=more)
        self.latency = timing.mfu(lanes, registers, more=more)
        word = data.ArrayLayout(16, lanes)
        turns = {"turn": In(turn(lanes))} if more else {}
        super().__init__({
            "value": In(word), "tap": In(data.ArrayLayout(word, TAPS)), "control": In(control(more=more)),
            "addend": In(word), "factor": In(word), **turns,
            "value_out": Out(word), "tap_out": Out(data.ArrayLayout(word, TAPS))})

    def elaborate(self, platform):
        m = Module()
        word = data.ArrayLayout(16, self.lanes)
        add_latency = timing.add_stage(self.lanes, self.registers, more=self.more)
        added, activated = Signal(word), Signal(word)
        add, reduced = self._reduced(m, add_latency) if self.more else (self.control.add, None)
        act, mul = delay(m, self.control.act, add_latency), delay(m, self.control.mul, self.factor_at)
        for lane in range(self.lanes):
            m.submodules[f"adder{lane}"] = adder = FloatAdder(self.registers)
            m.submodules[f"activation{lane}"] = activation = Activation(self.more, self.registers)
            m.submodules[f"multiplier{lane}"] = multiplier = FloatMultiplier(self.registers)
            result = reduced(delay(m, adder.o, add_latency - adder.latency)) if reduced else adder.o
            m.d.comb += [
                adder.a.eq(self.value[lane]), adder.b.eq(self.addend[lane]), adder.op.eq(add),
                activation.a.eq(result), activation.op.eq(act),
                multiplier.a.eq(activation.o), multiplier.b.eq(self.factor[lane]), multiplier.op.eq(mul),
                added[lane].eq(result), activated[lane].eq(activation.o), self.value_out[lane].eq(multiplier.o)]

        for code, carried, out in zip(self.control.tap, self.tap, self.tap_out, strict=True):
            for stage, value, cycles in ((Stage.ADD, self.value, add_latency),
                                         (Stage.ACT, added, activation.latency),
                                         (Stage.MUL, activated, multiplier.latency)):
                carried = delay(m, Mux(code == TAP_BEFORE[stage], value.as_value(), Value.cast(carried)), cycles)
                code = delay(m, code, cycles)
            m.d.comb += out.eq(carried)
        return m

    def _reduced(self, m, latency):
        """The code of the adders, and a function from an adder's result to that of the add stage."""
        m.submodules.reducer = reducer = Reducer(self.lanes)
        code = self.control.add
        reduces = code.matches(*(each.code for each in Operation if each.reduces))
        m.d.comb += [reducer.i.eq(self.value), reducer.op.eq(code), reducer.turn.eq(self.turn)]
        result, chosen = delay(m, reducer.o, latency - reducer.latency), delay(m, reduces, latency)
        return Mux(reduces, BYPASS, code), lambda added: Mux(chosen, result, added)
