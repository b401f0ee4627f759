"""The two multi-function units in series, with the reads of their operands."""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.lib.payloads import OPERANDS, VECTOR_READ, address_bits, controls, turn, word
from concord.hw.lib.pipeline import delay
from concord.hw.mfu.multifunction import MultiFunctionUnit
from concord.hw.schedule.writeback import results
from concord.spec.isa.operations import MFUS
from concord.spec.machine import timing
from concord.spec.machine.config import Config


class MfuPipeline(wiring.Component):
    """Computes words with a fixed latency, and reads each operand just before its stage needs it.

    Members:
        go, control, addresses: In. A word enters; operations on it; addresses of its operands.
        turn, held: In. Position of the word in its iteration, and operands whose first element all lanes take, at `go`;
            on machines with `more_functions`.
        word: In. That word, one cycle after `go`.
        reads: Out. Addresses for the operand ports. operands: In. Words of the operands, `VECTOR_READ` cycles later.
        o: Out. Results, `latency` cycles after `go`. valid: Out(1). `o` holds a word.

    Timing:
        One word in each cycle; never stalls.
    """

    def __init__(self, config: Config):
        self.config = config
        self.latency = timing.mfu_pipeline(config)  # a read, a register, two units
        self.due = timing.operands_due(config)  # cycles from `go` to the read of each operand
        self.units = [MultiFunctionUnit(config.mfu_lanes, config.more_functions, config.mfu_registers)
                      for _ in range(MFUS)]
        addresses = data.ArrayLayout(address_bits(config), len(OPERANDS))
        turns = {"turn": In(turn(config.mfu_lanes)), "held": In(len(OPERANDS))} if config.more_functions else {}
        super().__init__({
            "go": In(1), **turns, "control": In(controls(config)), "addresses": In(addresses),
            "word": In(word(config)), "reads": Out(addresses),
            "operands": In(data.ArrayLayout(word(config), len(OPERANDS))),
            "o": Out(results(config)), "valid": Out(1)})

    def elaborate(self, platform):
        m = Module()
        first, second = self.units
        m.submodules.mfu0, m.submodules.mfu1 = first, second

        for k, cycles in enumerate(self.due):
            m.d.comb += self.reads[k].eq(delay(m, self.addresses[k], cycles))
        operands = self._spread(m)
        value = delay(m, self.word, 1)
        m.d.comb += [first.addend.eq(operands[0]), second.addend.eq(operands[1]),
                     first.factor.eq(operands[2]), second.factor.eq(operands[3]),
                     first.value.eq(value), second.value.eq(first.value_out), second.tap.eq(first.tap_out)]
        for unit, control, cycles in ((first, self.control[0], 2), (second, self.control[1], 2 + first.latency)):
            later = delay(m, control, cycles)
            m.d.comb += unit.control.eq(later)
            if self.config.more_functions:
                m.d.comb += unit.turn.eq(delay(m, self.turn, cycles))
        m.d.comb += [self.o.value.eq(second.value_out), self.o.taps.eq(second.tap_out)]

        valid = Signal(self.latency)
        m.d.sync += valid.eq(Cat(self.go, valid))
        m.d.comb += self.valid.eq(valid[-1])
        return m

    def _spread(self, m) -> list:
        """The words of the operands; of those that are held, the first element in all lanes."""
        if not self.config.more_functions:
            return list(self.operands)
        spread = []
        for k, (operand, cycles) in enumerate(zip(self.operands, self.due, strict=True)):
            held = delay(m, self.held[k], cycles + VECTOR_READ)
            lanes = Signal(operand.shape(), name=f"operand{k}")
            m.d.comb += lanes.eq(Mux(held, operand[0].replicate(self.config.mfu_lanes), operand.as_value()))
            spread.append(lanes)
        return spread
