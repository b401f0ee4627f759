"""Words of Dram beyond the 65,536 that an address reaches: a base register comes near them before each chain."""

from dataclasses import replace

from concord.compiler.lib.limits import Reason
from concord.compiler.lib.program import ProgramBuilder
from concord.spec.isa.instructions import ADDRESS_BITS, BASES, Instruction, Op, Reg
from concord.spec.isa.memories import Mem

REACH = 1 << ADDRESS_BITS  #: Words that an address reaches from its base register.


def free_base(program: ProgramBuilder) -> int | None:
    """A base register that a program does not use, or None."""
    used = {one.base for one in program.instructions}
    used |= {1 + BASES.index(Reg(one.mem)) for one in program.instructions
             if one.op in (Op.S_WR, Op.S_ADD) and one.mem in BASES}
    return next((k for k in range(len(BASES), 0, -1) if k not in used), None)


def come_near(program: ProgramBuilder) -> list[Reason]:
    """Let a program reach all words of Dram that its instructions name. Returns a reason if it cannot."""
    old = program.instructions
    if not any(map(_far, old)):
        return []
    base, origin, index = free_base(program), None, []
    if base is None:
        return [Reason(sentence="words of Dram beyond its word 65535 need a base register, and the program uses all "
                                f"{len(BASES)}: let fewer layers read what a recurrent layer computes")]
    new: list[Instruction] = []
    for k, one in enumerate(old):
        if one.op in (Op.LOOP, Op.END_LOOP):
            origin = None
        if one.op in (Op.V_RD, Op.M_RD) and (wanted := _wanted(old, k)):
            if origin is None or not all(0 <= address - origin < REACH for address in wanted):
                origin = min(wanted)
                new.append(Instruction(op=Op.S_WR, mem=BASES[base - 1], a=origin % REACH, b=origin // REACH))
            if max(wanted) - origin >= REACH:
                return [Reason(sentence="a chain reads and writes words of Dram that are more than 65535 apart")]
        index.append(len(new))
        new.append(replace(one, a=one.a - origin, base=base) if _far(one) else one)
    program.moved(new, index)
    return []


def _far(one: Instruction) -> bool:
    """Whether an instruction names words of Dram that its address does not reach."""
    return one.op in (Op.V_RD, Op.V_WR, Op.M_RD) and one.mem == Mem.DRAM and one.a >= REACH and not one.base


def _wanted(program: list[Instruction], k: int) -> list[int]:
    """The addresses out of reach of the chain that begins at an index."""
    end = next(j for j in range(k, len(program)) if program[j].op == Op.END_CHAIN)
    return [one.a for one in program[k:end] if _far(one)]
