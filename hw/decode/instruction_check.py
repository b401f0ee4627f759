"""Checks one instruction and its position in the chain, as spec.isa.rules does."""

from functools import reduce
from operator import or_

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.decode.scalar_registers import derived
from concord.hw.lib.packed_words import entries_words
from concord.hw.lib.payloads import DRAM, ENTRIES, INDEX, MVM, NET, chain, reach_bits
from concord.spec.isa import instructions as isa
from concord.spec.isa.instructions import Error, Op, OperandKind, Reg
from concord.spec.isa.memories import QUEUES, VRFS, Mem, addressed, depth, present
from concord.spec.isa.rules import OUTSIDE
from concord.spec.machine.config import Config

#: Fields of an instruction that every machine has.
Fields = data.FlexibleLayout(isa.WORD, {
    name: data.Field(unsigned(field.width), field.lo) for name, field in isa.FIELDS.items()
    if name not in isa.FIELD_NEEDS})

#: Position of the decoder. `open`: it is inside a chain, which has `length` instructions so far; `closed`: only
#: end_chain may follow; `position`: number of stages passed, 0 before MFU 0 and `isa.STAGES` after the last MFU;
#: `written`: the last instruction was a write; `writes`: number of writes so far; `loops`: number of open loops.
ChainPosition = data.StructLayout({
    "open": 1, "closed": 1, "length": 4, "position": range(isa.STAGES + 1), "written": 1, "writes": 2,
    "loops": range(isa.LOOP_DEPTH + 1)})


def kind_of(config: Config) -> data.StructLayout:
    """Which opcode an instruction has, and which memory, bit by bit.

    `base`: it names a base register; `at_once`: it needs no derived values; `reaches`: it needs those from which the
    ends of its addresses follow; `pointwise`: it is an operation of a multi-function unit.
    """
    return data.StructLayout({
        "op": data.StructLayout({op.name.lower(): 1 for op in Op}),
        "mem": data.StructLayout({mem.name.lower(): 1 for mem in present(config)}),
        **dict.fromkeys(("base", "at_once", "reaches", "pointwise"), 1)})


def end_bits(config: Config) -> int:
    """Bits of the end of a chain's addresses, which may lie far outside a memory."""
    return reach_bits(config) + 3


#: Opcodes that use addresses of vectors up to an end, and end no chain.
_REACHES = [Op.V_WR, *(op for op, spec in isa.SPECS.items() if spec.operand is not None)]
#: Opcodes that neither use addresses up to an end, nor end a chain.
_AT_ONCE = [op for op, spec in isa.SPECS.items() if spec.operand is None and op not in (
    Op.MV_MUL, Op.V_WR, Op.M_WR, Op.END_CHAIN)]


def field_of(fields, name):
    """A field of an instruction that only some machines have, or any other."""
    field = isa.FIELDS[name]
    return fields[name] if name not in isa.FIELD_NEEDS else fields.as_value()[field.lo:field.lo + field.width]


def one_of(signal, values):
    """Whether `signal` is one of `values`."""
    return signal.matches(*values)


def is_op(kind, *ops):
    """Whether a `Kind` has one of these opcodes."""
    return Cat(kind.op[op.name.lower()] for op in ops).any()


def is_mem(kind, *mems):
    """Whether a `Kind` has one of these memories."""
    return Cat(kind.mem[Mem(mem).name.lower()] for mem in mems).any()


class InstructionCheck(wiring.Component):
    """Finds the error of an instruction, as far as it does not depend on later instructions.

    Members:
        word, outside: In. The instruction that comes, and whether its address is past the end of the instruction
            buffer. load: In(1). It becomes the next one. advance: In(1). The next one becomes the present one.
        kind, fields: Out. Kind and fields of the present instruction.
        place, chain: In. Position of the decoder, and the chain so far.
        values: In. Scalar registers and values derived from them.
        address: In. Address of the present instruction with its base register. sum_outside: In(1). A base register
            does not hold the sum of the `s_add`.
        error: Out. Code of `spec.isa.instructions.Error`, or NONE.
        end: Out. One past the last address that the instruction uses. beyond: Out(1). That is outside its memory.

    Timing:
        Pipelines without handshakes begin at the present instruction. `error` is two cycles after `place`, `chain` and
        `sum_outside`, `end` three cycles after `address` and `values`, and `beyond` four.
    """

    codes = (Error,)

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "word": In(isa.WORD), "outside": In(1), "load": In(1), "advance": In(1), "kind": Out(kind_of(config)),
            "fields": Out(Fields), "place": In(ChainPosition), "chain": In(chain(config)),
            "values": In(derived(config)), "address": In(reach_bits(config)), "sum_outside": In(1),
            "error": Out(4), "end": Out(end_bits(config)), "beyond": Out(1)})

    def elaborate(self, platform):
        m = Module()
        self._error(m, self._word_errors(m))
        self._range(m)
        return m

    def _word_errors(self, m) -> list[tuple]:
        """What is wrong with the present instruction alone, in the order of checks, as pairs (error, whether)."""
        config, f, word = self.config, Signal(Fields), Signal(isa.WORD)
        m.d.comb += f.eq(self.word)
        known, memories, next_kind = isa.specs(config), present(config), Signal(kind_of(config))
        vectors = [op for op, spec in isa.SPECS.items() if spec.kind is OperandKind.VECTOR]
        memory_kinds = [op for op, spec in isa.SPECS.items() if spec.mems]
        fields = isa.fields_of(config)
        gaps = self.word & ~sum(((1 << field.width) - 1) << field.lo for field in fields.values())
        # Facts of the instruction that comes; the present one has errors made of them.
        facts = {
            "outside": self.outside, "gaps": gaps != 0, "known": one_of(f.op, known), "there": one_of(f.mem, memories),
            "register": one_of(f.mem, Reg), "base": one_of(f.mem, isa.BASES), "far_scale":
                (f.mem == Reg.OUT_SCALE) & (f.a[5:] != f.a[5].replicate(isa.REGISTER_BITS - 5))}
        for name in fields:
            if name != "op":
                takes = [op for op, spec in known.items() if name in spec.fields_on(memories)]
                facts |= {f"takes_{name}": one_of(f.op, takes), f"any_{name}": field_of(f, name).any()}
        was = {name: Signal(name=name) for name in facts}
        with m.If(self.load):
            m.d.sync += [word.eq(self.word), *(was[name].eq(fact) for name, fact in facts.items()),
                         next_kind.base.eq(facts["base"]), next_kind.at_once.eq(one_of(f.op, _AT_ONCE)),
                         next_kind.reaches.eq(one_of(f.op, _REACHES)),
                         next_kind.pointwise.eq(one_of(f.op, [op for op, spec in known.items() if spec.operation])),
                         *(next_kind.op[op.name.lower()].eq(f.op == op) for op in Op),
                         *(next_kind.mem[mem.name.lower()].eq(f.mem == mem) for mem in memories)]

        k = next_kind
        refused = Cat(is_op(k, op) & ~is_mem(k, *(mem for mem in isa.SPECS[op].mems_on(memories) if mem in memories))
                      for op in memory_kinds).any()
        queue_address = is_mem(k, *QUEUES) & (was["any_a"] | was["any_inc"] | was["any_base"])
        moded = is_op(k, *vectors) & ~is_mem(k, Mem.VECTOR_RF) & (was["any_integer"] | was["any_unsigned"])
        strange = was["gaps"] | ~was["known"] | Cat(
            was[f"any_{name}"] & ~was[f"takes_{name}"] for name in fields if name != "op").any()
        errors = [
            (Error.END, was["outside"]), (Error.ILLEGAL, strange),
            (Error.RANGE, is_op(k, *memory_kinds) & ~was["there"]),
            (Error.ILLEGAL, (is_op(k, *memory_kinds) & (refused | queue_address)) | moded
             | (is_op(k, Op.S_WR) & (~was["register"] | was["far_scale"])) | (is_op(k, Op.S_ADD) & ~was["base"]))]
        if config.dram_words:
            errors.append((Error.ILLEGAL, (was["any_raw"] & ~is_mem(k, Mem.DRAM))
                           | (is_op(k, Op.S_WR) & was["any_b"] & ~was["base"])))
        if not config.vector_rf:
            errors.append((Error.RANGE, is_op(k, Op.V_POOL_MAX) | (is_op(k, *vectors) & is_mem(k, Mem.VECTOR_RF))))
        found = [(error, Signal(name=f"word{n}_{error.name.lower()}")) for n, (error, _) in enumerate(errors)]
        with m.If(self.advance):
            m.d.sync += [self.kind.eq(k), self.fields.eq(word),
                         *(held.eq(wrong) for (_, held), (_, wrong) in zip(found, errors, strict=True))]
        return found

    def _error(self, m, errors):
        """Find the first rule that the present instruction breaks, from the errors of its word alone on."""
        k, f, loops = self.kind, self.fields, self.place.loops
        zero = Signal()
        m.d.sync += zero.eq(f.a == 0)
        nesting = Cat(is_op(k, Op.LOOP) & (zero | (loops == isa.LOOP_DEPTH)), is_op(k, Op.END_LOOP) & (loops == 0),
                      is_op(k, Op.END) & (loops != 0)).any()
        steps = [*errors, *((Error.ILLEGAL, wrong) for wrong in self._misplaced()),
                 (Error.FORMAT, self._lacks_integer()), (Error.RANGE, is_op(k, Op.S_ADD) & self.sum_outside),
                 (Error.LOOP, nesting)]
        broken = [Signal(name=f"broken{n}_{error.name.lower()}") for n, (error, _) in enumerate(steps)]
        m.d.sync += [held.eq(wrong) for held, (_, wrong) in zip(broken, steps, strict=True)]
        # Neighbours with the same error are one rule.
        rules, code = [], Const(Error.NONE)
        for held, (error, _) in zip(broken, steps, strict=True):
            if not rules or rules[-1][0] != error:
                rules.append((error, []))
            rules[-1][1].append(held)
        for error, wrong in reversed(rules):
            code = Mux(Cat(wrong).any(), error, code)
        m.d.sync += self.error.eq(code)

    def _lacks_integer(self):
        """Whether an option needs integer mode, or a product makes codes of VectorRf unsigned."""
        k, f = self.kind, self.fields
        takes = [op for op, spec in isa.SPECS.items() if "unsigned" in spec.fields]
        again = is_op(k, Op.MV_MUL) & f.unsigned & (self.chain.memory == ENTRIES)
        return (is_op(k, *takes) & (f.bias | f.unsigned) & ~f.integer) | again

    def _misplaced(self) -> list:
        """Whether the instruction may not follow the chain so far, in parts."""
        c, place, k, f = self.chain, self.place, self.kind, self.fields
        stages = Cat(is_op(k, op) & (place.position > s.position) for op, s in isa.specs(self.config).items()
                     if s.operation)
        again = Cat(*(is_mem(k, mem) & c.writes[n].valid for n, mem in enumerate(VRFS)),
                    is_mem(k, Mem.NET_Q) & c.net, is_mem(k, Mem.VECTOR_RF) & c.entries.valid).any()
        product = (place.length != 1) | c.matrix | (c.memory == MVM) | (~f.bias & f.b.any()) | (
            c.mode.as_value().any() | (f.window & (c.memory != ENTRIES)))
        push, write, last = is_mem(k, Mem.MVM_Q), is_op(k, Op.V_WR), is_op(k, Op.END_CHAIN)
        words_only = (NET, MVM)
        if self.config.dram_words:
            product, words_only = product | (c.memory == DRAM), (NET, MVM, DRAM)
            again |= is_mem(k, Mem.DRAM) & c.outside.writes.valid
        inside = [
            is_op(k, *OUTSIDE),
            is_op(k, Op.MV_MUL) & product,
            is_op(k, Op.V_POOL_MAX) & ((place.length != 1) | one_of(c.memory, words_only)),
            stages.any(),
            ~is_op(k, Op.M_WR) & c.matrix & ~place.closed,
            is_op(k, Op.M_WR) & (~c.matrix | place.closed),
            write & (place.writes == isa.WRITES), write & again, write & push & ~(c.mv_mul & (place.length == 2)),
            ~last & place.closed,
            last & ~place.written]
        if self.config.softmax_words:  # v_softmax, v_wr NetQ and end_chain follow each other
            send = write & is_mem(k, Mem.NET_Q)
            inside.append(c.softmax & Mux(place.written, ~last, ~send))
        inside += self._misplaced_moves() if self.config.dram_words else []
        return [*(place.open & wrong for wrong in inside), ~place.open & ~is_op(k, *OUTSIDE)]

    def _misplaced_moves(self) -> list:
        """Whether the instruction may not follow the chain so far, because one of them moves what is packed in Dram."""
        c, k, f = self.chain, self.kind, self.fields
        write, first = is_op(k, Op.V_WR), self.place.length == 1
        raw, bias = write & field_of(f, "raw"), write & is_mem(k, Mem.BIAS_RF)
        return [
            is_op(k, Op.M_WR) & field_of(f, "diagonal") & (c.memory != DRAM),
            is_op(k, Op.M_WR) & field_of(f, "transposed") & ~self._vectors(),
            first & c.outside.raw & ~(write & is_mem(k, Mem.VECTOR_RF, Mem.BIAS_RF)),
            first & raw & (c.memory != ENTRIES),
            first & bias & ~c.outside.raw,
            first & (c.outside.raw | raw) & (c.mode.unsigned | f.unsigned),
            ~first & c.outside.raw & ~is_op(k, Op.END_CHAIN),
            ~first & (raw | bias)]

    def _vectors(self):
        """Whether the source of the chain is a vector memory."""
        return one_of(self.chain.memory, [INDEX[mem] for mem in VRFS])

    def _range(self, m):
        """Find the end of the instruction's addresses, and whether it is outside the memory."""
        config, v, k, f = self.config, self.values, self.kind, self.fields
        depths = {mem: depth(config, mem) for mem in addressed(config)}
        operands = {op: depths[spec.operand] for op, spec in isa.SPECS.items() if spec.operand is not None}
        rows = is_op(k, Op.V_WR) & is_mem(k, Mem.VECTOR_RF)
        counts = {"row_tiles": rows, "iterations": is_op(k, Op.M_WR), "tiles": is_op(k, Op.MV_MUL)}
        one = is_op(k, *operands) & field_of(f, "held").any() if config.more_functions else Const(0)
        if config.dram_words:
            loads, vectors = is_op(k, Op.M_WR), self._vectors()
            counts |= {"iterations": loads & ~vectors, "passes": loads & vectors}
        others, sizes_of, reach = [*counts.values(), one], [], reach_bits(config)
        if config.dram_words:
            # The mode of the source is there in the cycle before `count` only; both sizes are there since long before.
            words = [Signal(isa.REGISTER_BITS + 1, name=f"packed{integer}") for integer in range(2)]
            m.d.sync += [size.eq(entries_words(config, v.row_tiles, integer)) for integer, size in enumerate(words)]
            packed = is_op(k, Op.V_WR) & field_of(f, "raw")
            others, sizes_of = [*others, packed], [Mux(packed, Mux(self.chain.mode.integer, words[1], words[0]), 0)]
            depths[Mem.BIAS_RF] = config.bias_words
        of_words, count = ~Cat(others).any(), Signal(reach)
        limits = [(size, is_op(k, op)) for op, size in operands.items()] + [
            (size, is_op(k, Op.V_WR) & is_mem(k, mem)) for mem, size in depths.items()] + [
            (config.matrix_tiles, is_op(k, Op.M_WR, Op.MV_MUL))]
        span, limit, bounded = Signal(reach + 1), Signal(reach), Signal(2)
        extent, address = Signal(end_bits(config)), [Signal(reach, name=f"address{n}") for n in range(2)]
        sizes = [Signal(reach, name=f"limit{n}") for n in range(2)]
        with_bias, bias_end, bad_bias = Signal(2), Signal(isa.END_BITS), Signal()
        m.d.sync += [
            count.eq(reduce(or_, (*(v[name] & chosen.replicate(reach) for name, chosen in counts.items()), *sizes_of),
                            (v.words & of_words.replicate(isa.REGISTER_BITS)) | one)),
            span.eq(Mux(f.inc, Mux(rows, v.span_vec, v.span_out), 0)),
            limit.eq(reduce(or_, (Mux(chosen, size, 0) for size, chosen in limits))),
            bounded.eq(Cat(Cat(chosen for _, chosen in limits).any(), bounded)), address[0].eq(self.address),
            with_bias.eq(Cat(is_op(k, Op.MV_MUL) & f.bias, with_bias)), bias_end.eq(f.b + v.words),
            extent.eq(count + span), address[1].eq(address[0]), sizes[0].eq(limit),
            bad_bias.eq(with_bias[0] & (bias_end > config.bias_words)),
            self.end.eq(address[1] + extent), sizes[1].eq(sizes[0])]
        late_bounded, late_bias = Signal(), Signal()
        m.d.sync += [late_bounded.eq(bounded[1]), late_bias.eq(bad_bias),
                     self.beyond.eq((late_bounded & (self.end > sizes[1])) | late_bias)]
