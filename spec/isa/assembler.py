"""Program text to instruction words.

One instruction a line, `#` starts a comment, upper and lower case are the same. A mnemonic is the opcode's name, with
`_inc` after it for addresses that move with the iterations, and a plus sign before the base register of an address:

    s_wr Rows, 128
    v_rd NetQ
    mv_mul 3, integer, bias 4, unsigned
    vv_add1_inc 8
    vv_mul1 3, held
    v_wr InitialVrf, 12
    v_wr VectorRf, 3 + Base1, integer
    end_chain
    s_add Base1, -16

On machines with Dram, also `v_rd Dram, 5, raw`, `m_rd_inc Dram, 8 + Base2`, `m_wr MatrixRf, 3, integer, diagonal`,
`m_rd_inc InitialVrf, 8`, `m_wr MatrixRf, 3 + Base1, transposed` and `mv_mul 3 + Base1`; numbers of base registers have
32 bits there.

`set_iterations n, x` is short for `s_wr Iterations, n` and `s_wr IterationsX, x`; without x, x is n.
`.word 0x…` stands for a word that is no legal instruction.
"""

from concord.spec.isa.instructions import (
    BASES,
    FIELDS,
    LONG_BITS,
    REGISTER_BITS,
    REGISTER_NAMES,
    SPECS,
    WORD,
    Instruction,
    Op,
    OperandKind,
    Reg,
    encode,
    increment_fields,
)
from concord.spec.isa.memories import MEMORY_NAMES, QUEUES, VRFS, Mem

_OPS = {op.name.lower(): op for op in Op}
_MEMORIES = {name.lower(): mem for mem, name in MEMORY_NAMES.items()}
_TILE_MODES = {"integer", "diagonal", "transposed"}
_REGISTERS = {name.lower(): reg for reg, name in REGISTER_NAMES.items()}


def assemble(text: str) -> list[int]:
    """The instruction words of program text.

    Raises:
        ValueError: a line is wrong; the sentence names it.
    """
    return [word for _, word in numbered(text)]


def numbered(text: str) -> list[tuple[int, int]]:
    """The number of its line, from 1, and the instruction word of each instruction of program text.

    Raises:
        ValueError: a line is wrong; the sentence names it.
    """
    words = []
    for number, line in enumerate(text.splitlines(), 1):
        try:
            words += [(number, word) for word in _line(line.partition("#")[0].strip().lower())]
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from None
    return words


def _line(line: str) -> list[int]:
    mnemonic, _, rest = line.partition(" ")
    operands = [operand.strip() for operand in rest.split(",")] if rest.strip() else []
    if not mnemonic:
        return []
    if mnemonic == ".word":
        return [_number(_one(mnemonic, operands), 0, (1 << WORD) - 1)]
    if mnemonic == "set_iterations":
        return _set_iterations(operands)
    inc = mnemonic not in _OPS and mnemonic.endswith("_inc")
    op = _OPS.get(mnemonic.removesuffix("_inc") if inc else mnemonic)
    if op is None or inc and "inc" not in SPECS[op].fields:
        raise ValueError(f"there is no instruction {mnemonic!r}")
    fields = _PARSERS[SPECS[op].kind](mnemonic, operands)
    return [encode(Instruction(op=op, inc=int(inc), **fields))]


def _set_iterations(operands):
    if len(operands) not in (1, 2):
        raise ValueError("set_iterations takes a count and at most a count along x")
    counts = [_short(operand) for operand in (operands[0], operands[-1])]
    registers = (Reg.ITERATIONS, Reg.ITERATIONS_X)
    return [encode(Instruction(op=Op.S_WR, mem=reg, a=n)) for reg, n in zip(registers, counts, strict=True)]


def _none(mnemonic, operands):
    if operands:
        raise ValueError(f"{mnemonic} takes no operand")
    return {}


def _vector(mnemonic, operands):
    if not operands:
        raise ValueError(f"{mnemonic} needs a memory")
    mem = _named("memory", MEMORY_NAMES, _MEMORIES, operands[0])
    if mem == Mem.VECTOR_RF:
        return _entries(mnemonic, operands)
    if mem == Mem.DRAM:
        if operands[2:] not in ([], ["raw"]) or len(operands) < 2:
            raise ValueError(f"{mnemonic} Dram takes an address and at most the word raw")
        return {"mem": mem, "raw": len(operands) - 2} | _address(operands[1])
    if mem in QUEUES:
        if len(operands) > 1 or mnemonic.endswith("_inc"):
            raise ValueError(f"{MEMORY_NAMES[mem]} is a queue: it takes neither an address nor _inc")
        return {"mem": mem}
    if len(operands) != 2:
        raise ValueError(f"{mnemonic} {MEMORY_NAMES[mem]} needs one address, and takes nothing more: integer and "
                         "unsigned are words for VectorRf")
    return {"mem": mem} | _address(operands[1])


def _entries(mnemonic, operands):
    modes = operands[2:]
    if len(operands) < 2 or len(set(modes)) < len(modes) or not {"integer", "unsigned"}.issuperset(modes):
        raise ValueError(f"{mnemonic} VectorRf takes an address and, once each, the words integer and unsigned")
    return {"mem": Mem.VECTOR_RF} | _address(operands[1]) | dict.fromkeys(modes, 1)


def _address(text):
    """An address, and after a plus sign the base register that is added to it."""
    address, plus, base = (part.strip() for part in text.partition("+"))
    fields = {"a": _short(address)}
    return fields | {"base": 1 + BASES.index(_base(base))} if plus else fields


def _base(text):
    names = {reg: REGISTER_NAMES[reg] for reg in BASES}
    return _named("base register", names, {name.lower(): reg for reg, name in names.items()}, text)


def _matrix_source(mnemonic, operands):
    mem = _named("memory", MEMORY_NAMES, _MEMORIES, operands[0] if operands else _one(mnemonic, operands))
    if mem == Mem.DRAM or mem in VRFS:
        if len(operands) != 2:
            raise ValueError(f"{mnemonic} {MEMORY_NAMES[mem]} needs an address, and takes nothing more")
        return {"mem": mem} | _address(operands[1])
    _one(mnemonic, operands)
    if mem in QUEUES and mnemonic.endswith("_inc"):
        raise ValueError(f"{MEMORY_NAMES[mem]} is a queue: it takes neither an address nor _inc")
    return {"mem": mem}


def _matrix_target(mnemonic, operands):
    modes = operands[2:]
    if len(operands) < 2 or len(set(modes)) < len(modes) or not _TILE_MODES.issuperset(modes):
        raise ValueError(f"{mnemonic} takes a memory, a tile and, once each, the words integer, diagonal, transposed")
    mem = _named("memory", MEMORY_NAMES, _MEMORIES, operands[0])
    return {"mem": mem} | _address(operands[1]) | dict.fromkeys(modes, 1)


def _product(mnemonic, operands):
    if not operands:
        raise ValueError(f"{mnemonic} needs a tile")
    fields = _address(operands[0])
    for operand in operands[1:]:
        name, *value = operand.split()
        if name in fields or name not in ("integer", "bias", "unsigned", "window") or len(value) != (name == "bias"):
            raise ValueError(f"{mnemonic} takes, once each, integer, bias with an address, unsigned, window: "
                             f"not {operand!r}")
        fields[name] = 1
        if value:
            fields["b"] = _short(value[0])
    return fields


def _operand(mnemonic, operands):
    if operands[1:] not in ([], ["held"]):
        raise ValueError(f"{mnemonic} takes an address and at most the word held")
    return _address(_one(mnemonic, operands[:1])) | {"held": len(operands) - 1}


def _count(mnemonic, operands):
    return {"a": _short(_one(mnemonic, operands))}


def _register(mnemonic, operands):
    if len(operands) != 2:
        raise ValueError(f"{mnemonic} takes a register and a value")
    reg = _named("register", REGISTER_NAMES, _REGISTERS, operands[0])
    if reg == Reg.OUT_SCALE:
        half = 1 << REGISTER_BITS - 1
        return {"mem": reg, "a": _number(operands[1], -half, half - 1) % (2 * half)}
    if reg in BASES:
        high, low = divmod(_number(operands[1], 0, (1 << LONG_BITS) - 1), 1 << REGISTER_BITS)
        return {"mem": reg, "a": low, "b": high}
    return {"mem": reg, "a": _short(operands[1])}


def _increment(mnemonic, operands):
    if len(operands) != 2:
        raise ValueError(f"{mnemonic} takes a base register and a number")
    half = 1 << LONG_BITS - 1
    return {"mem": _base(operands[0])} | increment_fields(_number(operands[1], -half, half - 1))


#: Functions that read the operands of each kind.
_PARSERS = {
    OperandKind.NONE: _none, OperandKind.VECTOR: _vector, OperandKind.MATRIX_SOURCE: _matrix_source,
    OperandKind.MATRIX_TARGET: _matrix_target,
    OperandKind.PRODUCT: _product, OperandKind.OPERAND: _operand, OperandKind.REGISTER: _register,
    OperandKind.INCREMENT: _increment, OperandKind.COUNT: _count,
}


def _one(mnemonic, operands):
    if len(operands) != 1:
        raise ValueError(f"{mnemonic} takes one operand, not {len(operands)}")
    return operands[0]


def _named(what, names, codes, text):
    if text not in codes:
        raise ValueError(f"there is no {what} {text!r}: choose one of {', '.join(names.values())}")
    return codes[text]


def _short(text):
    return _number(text, 0, (1 << FIELDS["a"].width) - 1)


def _number(text, lowest, highest):
    try:
        value = int(text, 0)
    except ValueError:
        hint = (": a base register stands after a number, as in 8 + Base1, and only addresses of words, entries and "
                "tiles take one")
        raise ValueError(f"{text!r} is not a number" + hint * ("base" in text)) from None
    if not lowest <= value <= highest:
        raise ValueError(f"{value} does not lie in {lowest}..{highest}")
    return value
