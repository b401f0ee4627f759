"""The rules for instructions, in the order in which the machine checks them; see `chain_rules` for whole chains."""

from functools import lru_cache

from concord.spec.isa.instructions import (
    BASES,
    REGISTER_NAMES,
    SPECS,
    WRITES,
    Error,
    Instruction,
    Op,
    OperandKind,
    Reg,
    decode,
    increment,
    out_scale,
)
from concord.spec.isa.memories import MEMORY_NAMES, QUEUES, VRFS, Mem, present
from concord.spec.machine.config import Config

SOURCES = (Op.V_RD, Op.M_RD)
#: Opcodes that stand outside a chain, or begin one.
OUTSIDE = (*SOURCES, Op.S_WR, Op.S_ADD, Op.LOOP, Op.END_LOOP, Op.END)
_RAW_TARGETS = (Mem.VECTOR_RF, Mem.BIAS_RF)  #: Memories that take what `v_rd Dram, raw` reads.
_WITH_MEMORY = (OperandKind.VECTOR, OperandKind.MATRIX_SOURCE, OperandKind.MATRIX_TARGET)
#: Sentence on an opcode that a machine lacks, by the attribute that says so.
_LACKING = {
    "softmax_words": "this machine has no softmax unit, because its softmax_words is 0",
    "more_functions": "this machine has no {name}, because its more_functions is false: the preset tiny_vector has it",
}


class Violation(Exception):
    """The reason why a program stops.

    Attributes:
        error:    Code of the error.
        address:  Address of the instruction that broke the rule.
        sentence: Sentence that says what is wrong there.
    """

    def __init__(self, error: Error, address: int, sentence: str):
        super().__init__(f"instruction {address}: {sentence} ({error.name})")
        self.error, self.address, self.sentence = error, address, sentence


def check_word(config: Config, word: int, address: int) -> Instruction:
    """Decode a word and check its opcode and operands.

    Raises:
        Violation: opcode or operands are ILLEGAL, or the memory is unknown, or the machine lacks what they name.
    """
    instruction, error, sentence = _read(word, present(config))
    if error:
        raise Violation(error, address, sentence)
    memories = SPECS[instruction.op].kind in _WITH_MEMORY
    if not config.vector_rf and (instruction.op == Op.V_POOL_MAX or memories and instruction.mem == Mem.VECTOR_RF):
        raise Violation(Error.RANGE, address,
                        "this machine has neither VectorRf nor a pooling unit, because its vector_rf is 0")
    if instruction.held and not config.more_functions:
        raise Violation(Error.ILLEGAL, address, _LACKING["more_functions"].format(name="held operands"))
    needs = SPECS[instruction.op].needs
    if needs and not getattr(config, needs):
        raise Violation(Error.ILLEGAL, address, _LACKING[needs].format(name=instruction.op.name.lower()))
    return instruction


@lru_cache(maxsize=1 << 14)
def _read(word, memories):
    """The instruction of a word, or the error of the word alone, on a machine with these memories, and its sentence."""
    instruction = decode(word)
    if not word:
        return None, Error.ILLEGAL, "the instruction word is 0, as in erased memory: the program needs an end before it"
    if instruction is None:
        return None, Error.ILLEGAL, f"0x{word:016x} has an unknown opcode, or bits that it does not take"
    spec, name = SPECS[instruction.op], instruction.op.name.lower()
    for field in set(spec.fields) - set(spec.fields_on(memories)):
        if getattr(instruction, field):
            what = {"a": "an address", "b": "a number of more than 16 bits"}.get(field, field)
            return None, Error.ILLEGAL, f"{name} takes {what} on machines with Dram only, and dram_words is 0"
    if spec.kind in _WITH_MEMORY:
        if instruction.mem not in memories:
            lacking = ": this machine has no Dram, because its dram_words is 0" * (instruction.mem == Mem.DRAM)
            return None, Error.RANGE, f"there is no memory {instruction.mem}{lacking}"
        memory = MEMORY_NAMES[Mem(instruction.mem)]
        if instruction.mem not in spec.mems_on(memories):
            return None, Error.ILLEGAL, f"{name} does not take {memory}"
        if instruction.mem in QUEUES and (instruction.a or instruction.inc or instruction.base):
            return None, Error.ILLEGAL, f"{memory} is a queue: it takes neither an address, nor a base, nor _inc"
        moded = instruction.integer or instruction.unsigned
        if spec.kind is OperandKind.VECTOR and instruction.mem != Mem.VECTOR_RF and moded:
            return None, Error.ILLEGAL, f"{memory} holds binary16 numbers: integer and unsigned are for VectorRf"
        if instruction.raw and instruction.mem != Mem.DRAM:
            return None, Error.ILLEGAL, f"{memory} takes no raw: it stands with the address in Dram"
    if spec.kind is OperandKind.REGISTER:
        if instruction.mem not in list(Reg):
            return None, Error.ILLEGAL, f"there is no register {instruction.mem}"
        if instruction.b and instruction.mem not in BASES:
            return None, Error.ILLEGAL, f"{REGISTER_NAMES[Reg(instruction.mem)]} takes a number of 16 bits"
        if instruction.mem == Reg.OUT_SCALE and not -32 <= out_scale(instruction.a) <= 31:
            return None, Error.ILLEGAL, f"OutScale {out_scale(instruction.a)} does not lie in -32..31"
    if spec.kind is OperandKind.INCREMENT and instruction.mem not in BASES:
        return None, Error.ILLEGAL, f"s_add takes one of {', '.join(REGISTER_NAMES[reg] for reg in BASES)}"
    return instruction, Error.NONE, ""


def check_order(instruction: Instruction, before: list[Instruction], address: int) -> None:
    """Check whether an instruction may follow the earlier instructions of its chain.

    Args:
        before: Earlier instructions of the chain; empty outside a chain.

    Raises:
        Violation: ILLEGAL, or FORMAT where a product has an option that needs integer mode.
    """
    sentence = _order(instruction, before)
    if sentence:
        raise Violation(Error.ILLEGAL, address, sentence)
    if (instruction.bias or instruction.unsigned) and not instruction.integer:
        raise Violation(Error.FORMAT, address, "bias and unsigned need integer mode")
    if instruction.op == Op.MV_MUL and instruction.unsigned and before[-1].mem == Mem.VECTOR_RF:
        raise Violation(Error.FORMAT, address,
                        "the codes of VectorRf were made unsigned when they were written: leave out unsigned")


def _order(instruction, before):
    """Sentence on what is wrong with the position of an instruction, or None."""
    op, name = instruction.op, instruction.op.name.lower()
    if (op in OUTSIDE) == bool(before):
        return f"{name} stands {'inside' if before else 'outside'} a chain"
    if not before:
        return None
    last = before[-1]
    if op == Op.END_CHAIN:
        return None if last.op in (Op.V_WR, Op.M_WR) else "a chain must end with a write"
    if last.op == Op.M_WR or (last.op, last.mem) == (Op.V_WR, Mem.MVM_Q):
        return f"only end_chain may follow the write of {MEMORY_NAMES[Mem(last.mem)]}"
    if any(i.op == Op.V_SOFTMAX for i in before) and (sentence := _softmax_order(instruction, last)):
        return sentence
    if (op == Op.M_WR) != (before[0].op == Op.M_RD):
        return f"{name} does not take what {before[0].op.name.lower()} reads"
    if sentence := _packed_order(instruction, before):
        return sentence
    if op == Op.MV_MUL:
        return _product_order(instruction, last)
    if op == Op.V_POOL_MAX and (last.op != Op.V_RD or last.mem in (*QUEUES, Mem.DRAM)):
        return "v_pool_max must follow v_rd, and neither of a queue nor of Dram"
    if op == Op.V_WR:
        return _write_order(instruction, before)
    passed = [SPECS[i.op] for i in before if SPECS[i.op].operation]
    if SPECS[op].operation and passed and SPECS[op].position <= passed[-1].position:
        return f"{name} comes after {passed[-1].stage_name.lower()}: operations follow the order of the stages"
    return None


def _product_order(instruction, last):
    """Sentence on what is wrong with the position of a `mv_mul` after the instruction `last`, or None."""
    if last.op != Op.V_RD or last.mem in (Mem.MVM_Q, Mem.DRAM):
        return "mv_mul must follow v_rd, and neither of MvmQ nor of Dram"
    if last.integer or last.unsigned:
        return "the v_rd of VectorRf before mv_mul takes no mode: mv_mul says integer itself"
    if instruction.window and last.mem != Mem.VECTOR_RF:
        return "window needs a v_rd of VectorRf before mv_mul"
    if instruction.b and not instruction.bias:
        return "mv_mul has a BiasRf address without bias"
    return None


def _packed_order(instruction, before):
    """Sentence on what is wrong with an instruction of a chain that moves what is packed in Dram, or None."""
    last, alone = before[-1], len(before) == 1
    if instruction.diagonal and last.mem != Mem.DRAM:
        return "diagonal is for tiles from Dram"
    if instruction.transposed and last.mem not in VRFS:
        return "transposed is for tiles of vectors"
    if last.raw and last.op == Op.V_RD and (instruction.op != Op.V_WR or instruction.mem not in _RAW_TARGETS):
        return "only v_wr VectorRf and v_wr BiasRf may follow v_rd Dram, raw"
    if alone:
        if instruction.raw and last.mem != Mem.VECTOR_RF:
            return "v_wr Dram, raw must follow v_rd VectorRf"
        if instruction.mem == Mem.BIAS_RF and not last.raw:
            return "v_wr BiasRf must follow v_rd Dram, raw"
        if (last.raw or instruction.raw) and (last.unsigned or instruction.unsigned):
            return "raw moves codes as they are: leave out unsigned"
        return None
    if before[0].raw or last.raw:
        return "only end_chain may follow the write of what was moved raw"
    if instruction.raw or instruction.mem == Mem.BIAS_RF:
        return "what moves raw is written right after it was read"
    return None


def _softmax_order(instruction, last):
    """Sentence on what is wrong with an instruction that comes after a `v_softmax`, `last` before it, or None."""
    if last.op != Op.V_SOFTMAX:
        return "only end_chain may follow the v_wr NetQ after v_softmax"
    if (instruction.op, instruction.mem) != (Op.V_WR, Mem.NET_Q):
        return "only v_wr NetQ may follow v_softmax"
    return None


def _write_order(instruction, before):
    """Sentence on what is wrong with the position of a `v_wr`, or None."""
    written = [i.mem for i in before if i.op == Op.V_WR]
    if len(written) == WRITES:
        return f"a chain writes {WRITES} times at most"
    if instruction.mem in written:
        return f"the chain has written {MEMORY_NAMES[Mem(instruction.mem)]} already"
    if instruction.mem == Mem.MVM_Q and before[-1].op != Op.MV_MUL:
        return "v_wr MvmQ must follow mv_mul"
    return None


def check_sum(instruction: Instruction, before: int, address: int, bits: int) -> int:
    """The value of a base register of `bits` bits after an `s_add`, from the value before it.

    Raises:
        Violation: RANGE, if the register does not hold the sum.
    """
    after = before + increment(instruction)
    if not 0 <= after < 1 << bits:
        raise Violation(Error.RANGE, address, f"{REGISTER_NAMES[Reg(instruction.mem)]} would be {after}, "
                                              f"and a register holds 0 to {(1 << bits) - 1}")
    return after
