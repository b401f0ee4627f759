"""The base registers, which programs add to addresses."""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.decode.instruction_check import Fields, one_of
from concord.spec.isa.instructions import BASES, END_BITS, REGISTER_BITS


class BaseRegisters(wiring.Component):
    """Holds the registers that `s_wr` sets and `s_add` moves, and adds them to the addresses of instructions.

    Members:
        fields: In. Fields of the present instruction.
        write, add: In(1). The instruction is an `s_wr` or an `s_add`, and is executed.
        clear: In(1). Sets all base registers to 0.
        address: Out. Address of the instruction with its base register.
        outside: Out(1). A base register does not hold the sum of the `s_add`.

    Timing:
        Outputs are combinational; registers change in the next cycle.
    """

    def __init__(self):
        super().__init__({
            "fields": In(Fields), "write": In(1), "add": In(1), "clear": In(1),
            "address": Out(END_BITS), "outside": Out(1)})

    def elaborate(self, platform):
        m = Module()
        f = self.fields
        bases = Signal(data.ArrayLayout(REGISTER_BITS, 1 + len(BASES)))  # base 0 stays 0
        number = Signal(range(1 + len(BASES)))
        with m.Switch(f.mem):
            for k, reg in enumerate(BASES, 1):
                with m.Case(reg):
                    m.d.comb += number.eq(k)
        total = Signal(REGISTER_BITS + 1)  # its high bit is set both below 0 and above the largest value
        m.d.comb += [
            self.address.eq(f.a + bases[f.base]), total.eq(bases[number] + f.a.as_signed()),
            self.outside.eq(total[REGISTER_BITS])]
        with m.If(self.clear):
            m.d.sync += bases.eq(0)
        with m.Elif((self.write | self.add) & one_of(f.mem, BASES)):
            m.d.sync += bases[number].eq(Mux(self.add, total, f.a))
        return m
