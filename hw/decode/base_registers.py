"""The base registers, which programs add to addresses."""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.decode.instruction_check import Fields, one_of
from concord.hw.lib.payloads import reach_bits
from concord.spec.isa.instructions import BASES, REGISTER_BITS, Op, base_bits
from concord.spec.machine.config import Config


class BaseRegisters(wiring.Component):
    """Holds the registers that `s_wr` sets and `s_add` moves, and adds them to the addresses of instructions.

    Members:
        fields: In. Fields of the instruction that comes. load: In(1). It becomes the next one.
        advance: In(1). The next instruction becomes the present one.
        write, add: In(1). The present instruction is an `s_wr` or an `s_add`, and is executed.
        clear: In(1). Sets all base registers to 0.
        address: Out. Address of the present instruction with its base register.
        outside: Out(1). A base register does not hold the sum of the `s_add`.
        moves: Out(1). The next instruction sets or moves a base register: the one after it is loaded when that is done.

    Timing:
        `moves` follows `load`, `address` follows `advance`, and registers follow `write` and `add`, in the next cycle;
        `outside`, and the sum that `add` writes, a cycle after `address`.
    """

    def __init__(self, config: Config):
        self.bits = base_bits(config)
        super().__init__({
            "fields": In(Fields), "load": In(1), "advance": In(1), "write": In(1), "add": In(1), "clear": In(1),
            "address": Out(reach_bits(config)), "outside": Out(1), "moves": Out(1)})

    def elaborate(self, platform):
        m = Module()
        f, bits = self.fields, self.bits
        bases = Signal(data.ArrayLayout(bits, 1 + len(BASES)))  # base 0 stays 0
        number, coming, present = (Signal(range(1 + len(BASES)), name=name) for name in ("number", "coming", "present"))
        with m.Switch(f.mem):
            for k, reg in enumerate(BASES, 1):
                with m.Case(reg):
                    m.d.comb += number.eq(k)
        base, offset = Signal(bits), Signal(REGISTER_BITS)  # of the next instruction
        before, value = Signal(bits), Signal(bits)  # of the present one
        total = Signal(bits + 1)  # its high bit is set both below 0 and above the largest value
        with m.If(self.load):
            m.d.sync += [base.eq(bases[f.base]), offset.eq(f.a), coming.eq(number),
                         self.moves.eq(one_of(f.op, [Op.S_WR, Op.S_ADD]) & (number != 0))]
        if bits > REGISTER_BITS:
            upper = Signal(REGISTER_BITS)
            with m.If(self.load):
                m.d.sync += upper.eq(f.b - ((f.op == Op.S_ADD) & f.a[-1]))
        whole = Cat(offset, upper) if bits > REGISTER_BITS else offset
        with m.If(self.advance):
            m.d.sync += [self.address.eq(offset + base), value.eq(whole), present.eq(coming), before.eq(bases[coming])]
        m.d.sync += total.eq(before + value.as_signed())
        m.d.comb += self.outside.eq(total[bits])
        for k in range(1, len(bases)):
            with m.If(self.clear):
                m.d.sync += bases[k].eq(0)
            with m.Elif((self.write | self.add) & (present == k)):
                m.d.sync += bases[k].eq(Mux(self.add, total, value))
        return m
