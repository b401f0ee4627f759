"""Base registers in random programs: their movements, the instructions that name them, and what programs reach."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from concord.spec.isa.chain import Chain
from concord.spec.isa.instructions import BASES, REGISTER_BITS, SPECS, Instruction, Op, decode
from concord.spec.isa.memories import QUEUES, Mem

_STEPS = (1, 1, 2, 3, 4, 8, -1, -2, -4)  #: Words or entries; a native vector of the tested machines has 1 to 4 words.

#: What random programs must reach on a machine with VectorRf.
BASE_BINS = frozenset(
    [f"base: {name} of {memory}" for name in ("v_rd", "v_wr") for memory in ("words", "entries")]
    + ["base: operand", "base: two in one chain", "base: moved by a loop", "base: product moved by a loop",
       "base: of VectorRf moved by a loop"])


def movement(rng: np.random.Generator) -> Instruction:
    """An `s_wr` or an `s_add` of a base register."""
    reg = int(rng.choice(BASES))
    if rng.random() < 0.4:
        return Instruction(op=Op.S_WR, mem=reg, a=int(rng.integers(12)))
    return Instruction(op=Op.S_ADD, mem=reg, a=int(rng.choice(_STEPS)) % (1 << REGISTER_BITS))


def with_base(instruction: Instruction, bases: tuple[int, ...], rng: np.random.Generator) -> Instruction:
    """The instruction, or the same one with a part of its address in a base register, if it can name one.

    Args:
        bases: Base registers by the field `base`.
    """
    if instruction.mem in QUEUES or "base" not in SPECS[instruction.op].fields or rng.random() < 0.6:
        return instruction
    base = int(rng.choice([k for k, value in enumerate(bases) if value <= instruction.a]))
    return replace(instruction, a=instruction.a - bases[base], base=base)


def base_bins(program: list[int], chain: Chain, earlier: dict[int, tuple[Instruction, ...]]) -> Iterator[str]:
    """The bins that a chain hits.

    Args:
        earlier: The instructions of the last chain at each address; this one joins them.
    """
    body = [decode(program[chain.address + k]) for k in range(len(chain.instructions))]
    for instruction in body:
        if instruction.base and instruction.mem:
            kind = "entries" if instruction.mem == Mem.VECTOR_RF else "words"
            yield f"base: {instruction.op.name.lower()} of {kind}"
        elif instruction.base:
            yield "base: operand"
    if len({instruction.base for instruction in body} - {0}) > 1:
        yield "base: two in one chain"
    if earlier.get(chain.address, chain.instructions) != chain.instructions:
        yield "base: moved by a loop"
        if chain.product:
            yield "base: product moved by a loop"
        if any(instruction.mem == Mem.VECTOR_RF and instruction.base for instruction in body):
            yield "base: of VectorRf moved by a loop"
    earlier[chain.address] = chain.instructions
