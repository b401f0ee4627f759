"""Instruction words to canonical program text: assembling it gives the same words, and these give the same text."""

from concord.spec.isa.assembler import assemble
from concord.spec.isa.instructions import (
    BASES,
    REGISTER_NAMES,
    SPECS,
    WORD,
    Instruction,
    OperandKind,
    Reg,
    decode,
    increment,
    out_scale,
    register_value,
)
from concord.spec.isa.memories import MEMORY_NAMES, QUEUES, VRFS, Mem


def disassemble(words: list[int]) -> str:
    """Canonical text of instruction words, one line each."""
    return "".join(f"{disassemble_word(word)}\n" for word in words)


def disassemble_word(word: int) -> str:
    """Canonical text of one instruction word."""
    instruction = decode(word)
    text = None if instruction is None else _text(instruction)
    # A word that text cannot express, such as one with bits that its opcode does not take, stays a number.
    return text if text and assemble(text) == [word] else f".word 0x{word:0{WORD // 4}x}"


def _text(instruction: Instruction) -> str | None:
    """Text of an instruction, or None where its memory or register is unknown."""
    operands = _WRITERS[SPECS[instruction.op].kind](instruction)
    if operands is None:
        return None
    mnemonic = instruction.op.name.lower() + "_inc" * instruction.inc
    return f"{mnemonic} {', '.join(operands)}".rstrip()


def _memory_text(instruction, *rest):
    name = MEMORY_NAMES.get(instruction.mem)
    return None if name is None else [name, *rest]


def _vector_text(instruction):
    if instruction.mem not in QUEUES:
        modes = ["integer"] * instruction.integer + ["unsigned"] * instruction.unsigned
        if (modes and instruction.mem != Mem.VECTOR_RF) or (instruction.raw and instruction.mem != Mem.DRAM):
            return None
        return _memory_text(
            instruction, _address_text(instruction), *modes, *["raw"] * instruction.raw)
    return None if instruction.a or instruction.inc or instruction.base else _memory_text(instruction)


def _matrix_source_text(instruction):
    if instruction.mem == Mem.DRAM or instruction.mem in VRFS:
        return _memory_text(instruction, _address_text(instruction))
    return None if instruction.a or instruction.inc or instruction.base else _memory_text(instruction)


def _address_text(instruction):
    base = instruction.base
    return f"{instruction.a} + {REGISTER_NAMES[BASES[base - 1]]}" if base else str(instruction.a)


def _matrix_target_text(instruction):
    modes = [name for name in ("integer", "diagonal", "transposed") if getattr(instruction, name)]
    return _memory_text(instruction, _address_text(instruction), *modes)


def _product_text(instruction):
    modes = (("integer", instruction.integer), (f"bias {instruction.b}", instruction.bias),
             ("unsigned", instruction.unsigned), ("window", instruction.window))
    return [_address_text(instruction), *(text for text, chosen in modes if chosen)]


def _register_text(instruction):
    name = REGISTER_NAMES.get(instruction.mem)
    value = out_scale(instruction.a) if instruction.mem == Reg.OUT_SCALE else register_value(instruction)
    return None if name is None or (instruction.b and instruction.mem not in BASES) else [name, str(value)]


def _increment_text(instruction):
    known = instruction.mem in BASES
    return [REGISTER_NAMES[Reg(instruction.mem)], str(increment(instruction))] if known else None


#: Functions that write the operands of each kind.
_WRITERS = {
    OperandKind.NONE: lambda _: [], OperandKind.VECTOR: _vector_text, OperandKind.MATRIX_SOURCE: _matrix_source_text,
    OperandKind.MATRIX_TARGET: _matrix_target_text, OperandKind.PRODUCT: _product_text,
    OperandKind.OPERAND: lambda i: [_address_text(i), *["held"] * i.held],
    OperandKind.REGISTER: _register_text, OperandKind.INCREMENT: _increment_text,
    OperandKind.COUNT: lambda i: [str(i.a)],
}
