"""Checks one instruction and its place in the chain, as spec.isa.rules does."""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.decode.scalar_registers import Derived
from concord.hw.lib.payloads import ENTRIES, MVM, NET, chain
from concord.spec.isa import instructions as isa
from concord.spec.isa.instructions import Error, Op, OperandKind, Reg
from concord.spec.isa.memories import QUEUES, VRFS, Mem, addressed, depth, present
from concord.spec.isa.rules import OUTSIDE
from concord.spec.machine.config import Config

END = isa.END_BITS + 3  #: Bits of the end of a chain's addresses, which may lie far outside a memory.

#: Fields of an instruction, without `held`, which not every machine has.
Fields = data.FlexibleLayout(isa.WORD, {
    name: data.Field(unsigned(field.width), field.lo) for name, field in isa.FIELDS.items() if name != "held"})

#: Position of the decoder. `open`: it is inside a chain, which has `length` instructions so far; `closed`: only
#: end_chain may follow; `position`: number of stages passed, 0 before MFU 0 and `isa.STAGES` after the last MFU;
#: `written`: the last instruction was a write; `writes`: number of writes so far; `loops`: number of open loops.
Place = data.StructLayout({
    "open": 1, "closed": 1, "length": 4, "position": range(isa.STAGES + 1), "written": 1, "writes": 2,
    "loops": range(isa.LOOP_DEPTH + 1)})


def held(fields):
    """The field `held` of an instruction on a machine with `more_functions`."""
    return _field(fields, "held")


def _field(fields, name):
    field = isa.FIELDS[name]
    return fields[name] if name != "held" else fields.as_value()[field.lo:field.lo + field.width]


def one_of(signal, values):
    """Whether `signal` is one of `values`."""
    return signal.matches(*values)


class InstructionCheck(wiring.Component):
    """Finds the error of an instruction, as far as it does not depend on later instructions.

    Members:
        word, outside: In. The instruction, and whether its address is past the end of the instruction buffer.
        place, chain: In. Position of the decoder, and the chain so far.
        values: In. Scalar registers and values derived from them.
        address: In. Address of the instruction with its base register. sum_outside: In(1). A base register does not
            hold the sum of the `s_add`.
        error: Out. Code of `spec.isa.instructions.Error`, or NONE.
        end: Out. One past the last address that it uses. beyond: Out(1). That address is outside its memory.

    Timing:
        Combinational.
    """

    codes = (Error,)

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "word": In(isa.WORD), "outside": In(1), "place": In(Place), "chain": In(chain(config)),
            "values": In(Derived), "address": In(isa.END_BITS), "sum_outside": In(1),
            "error": Out(4), "end": Out(END), "beyond": Out(1)})

    def elaborate(self, platform):
        m = Module()
        f = Signal(Fields)
        m.d.comb += f.eq(self.word)
        self._error(m, f)
        self._range(m, f)
        return m

    def _error(self, m, f):
        """Find the first rule that the instruction breaks."""
        error, loops = self.error, self.place.loops
        memories = present(self.config)
        memory_kinds = [op for op, spec in isa.SPECS.items() if spec.mems]
        refused = Cat((f.op == op) & ~one_of(f.mem, [mem for mem in isa.SPECS[op].mems if mem in memories])
                      for op in memory_kinds).any()
        queue_address = one_of(f.mem, QUEUES) & ((f.a != 0) | f.inc | (f.base != 0))
        vector = one_of(f.op, [op for op, spec in isa.SPECS.items() if spec.kind is OperandKind.VECTOR])
        moded = vector & (f.mem != Mem.VECTOR_RF) & (f.integer | f.unsigned)
        strange, misplaced = self._strange(m, f), self._misplaced(f)
        far_scale = (f.mem == Reg.OUT_SCALE) & (f.a[5:] != f.a[5].replicate(isa.REGISTER_BITS - 5))
        with m.If(self.outside):
            m.d.comb += error.eq(Error.END)
        with m.Elif(strange):
            m.d.comb += error.eq(Error.ILLEGAL)
        with m.Elif(one_of(f.op, memory_kinds) & ~one_of(f.mem, memories)):
            m.d.comb += error.eq(Error.RANGE)
        with m.Elif((one_of(f.op, memory_kinds) & (refused | queue_address)) | moded):
            m.d.comb += error.eq(Error.ILLEGAL)
        with m.Elif((f.op == Op.S_WR) & (~one_of(f.mem, Reg) | far_scale)):
            m.d.comb += error.eq(Error.ILLEGAL)
        with m.Elif((f.op == Op.S_ADD) & ~one_of(f.mem, isa.BASES)):
            m.d.comb += error.eq(Error.ILLEGAL)
        if not self.config.vector_rf:
            with m.Elif((f.op == Op.V_POOL_MAX) | (vector & (f.mem == Mem.VECTOR_RF))):
                m.d.comb += error.eq(Error.RANGE)
        with m.Elif(misplaced):
            m.d.comb += error.eq(Error.ILLEGAL)
        with m.Elif(self._lacks_integer(f)):
            m.d.comb += error.eq(Error.FORMAT)
        with m.Elif((f.op == Op.S_ADD) & self.sum_outside):
            m.d.comb += error.eq(Error.RANGE)
        with m.Elif(((f.op == Op.LOOP) & ((f.a == 0) | (loops == isa.LOOP_DEPTH)))
                    | ((f.op == Op.END_LOOP) & (loops == 0)) | ((f.op == Op.END) & (loops != 0))):
            m.d.comb += error.eq(Error.LOOP)

    def _lacks_integer(self, f):
        """Whether an option needs integer mode, or a product makes codes of VectorRf unsigned."""
        takes = [op for op, spec in isa.SPECS.items() if "unsigned" in spec.fields]
        again = (f.op == Op.MV_MUL) & f.unsigned & (self.chain.memory == ENTRIES)
        return (one_of(f.op, takes) & (f.bias | f.unsigned) & ~f.integer) | again

    def _strange(self, m, f):
        """Whether the opcode is unknown, or a field that it does not take is not zero."""
        fields = isa.fields_of(self.config)
        taken = {name: Signal(name=f"takes_{name}") for name in fields if name != "op"}
        known = isa.specs(self.config)
        with m.Switch(f.op):
            for op, spec in known.items():
                with m.Case(op):
                    m.d.comb += [taken[name].eq(1) for name in spec.fields if name in fields]
        gaps = self.word & ~sum(((1 << field.width) - 1) << field.lo for field in fields.values())
        return (gaps != 0) | ~one_of(f.op, known) | Cat(
            _field(f, name).any() & ~take for name, take in taken.items()).any()

    def _misplaced(self, f):
        """Whether the instruction may not follow the chain so far."""
        c, place = self.chain, self.place
        stages = Cat((f.op == op) & (place.position > s.position) for op, s in isa.specs(self.config).items()
                     if s.operation)
        again = Cat((f.mem == mem) & c.writes[k].valid for k, mem in enumerate(VRFS)).any() | (
            (f.mem == Mem.NET_Q) & c.net) | ((f.mem == Mem.VECTOR_RF) & c.entries.valid)
        push = f.mem == Mem.MVM_Q
        product = (place.length != 1) | c.matrix | (c.memory == MVM) | (~f.bias & (f.b != 0)) | (
            c.mode.as_value().any() | (f.window & (c.memory != ENTRIES)))
        behind = []
        if self.config.softmax_words:  # v_softmax, v_wr NetQ and end_chain follow each other
            send = (f.op == Op.V_WR) & (f.mem == Mem.NET_Q)
            behind = [c.softmax & Mux(place.written, f.op != Op.END_CHAIN, ~send)]
        return Mux(place.open, Cat(
            *behind,
            one_of(f.op, OUTSIDE),
            (f.op == Op.MV_MUL) & product,
            (f.op == Op.V_POOL_MAX) & ((place.length != 1) | one_of(c.memory, (NET, MVM))),
            stages.any(),
            (f.op != Op.M_WR) & c.matrix & ~place.closed,
            (f.op == Op.M_WR) & (~c.matrix | place.closed),
            (f.op == Op.V_WR) & ((place.writes == isa.WRITES) | again | (push & ~(c.mv_mul & (place.length == 2)))),
            (f.op != Op.END_CHAIN) & place.closed,
            (f.op == Op.END_CHAIN) & ~place.written,
        ).any(), ~one_of(f.op, OUTSIDE))

    def _range(self, m, f):
        """Find the end of the instruction's addresses, and whether it is outside the memory."""
        config, v = self.config, self.values
        count, span, limit = Signal(isa.END_BITS), Signal(isa.END_BITS + 1), Signal(isa.END_BITS)
        depths = {mem: depth(config, mem) for mem in addressed(config)}
        operands = {op: depths[spec.operand] for op, spec in isa.SPECS.items() if spec.operand is not None}
        m.d.comb += [count.eq(v.words), span.eq(v.span_out)]
        with m.Switch(f.op):
            for op, size in operands.items():
                with m.Case(op):
                    m.d.comb += limit.eq(size)
                    if self.config.more_functions:
                        m.d.comb += count.eq(Mux(held(f), 1, v.words))
            with m.Case(Op.V_WR):
                with m.Switch(f.mem):
                    for mem, size in depths.items():
                        with m.Case(mem):
                            m.d.comb += limit.eq(size)
                with m.If(f.mem == Mem.VECTOR_RF):
                    m.d.comb += [count.eq(v.row_tiles), span.eq(v.span_vec)]
            with m.Case(Op.M_WR):
                m.d.comb += [limit.eq(config.matrix_tiles), count.eq(v.iterations)]
            with m.Case(Op.MV_MUL):
                m.d.comb += [limit.eq(config.matrix_tiles), count.eq(v.tiles)]
        bounded = one_of(f.op, [*operands, Op.MV_MUL, Op.M_WR]) | ((f.op == Op.V_WR) & one_of(f.mem, addressed(config)))
        bad_bias = (f.op == Op.MV_MUL) & f.bias & (f.b + v.words > config.bias_words)
        m.d.comb += [self.end.eq(self.address + count + Mux(f.inc, span, 0)),
                     self.beyond.eq((bounded & (self.end > limit)) | bad_bias)]
