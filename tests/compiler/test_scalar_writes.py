"""Programs without the writes of registers that loops repeat give each chain the registers that it had."""

from collections.abc import Iterator

import numpy as np
import pytest
from concord.compiler.emit.scalar_writes import without_repeated_writes
from concord.compiler.lib.program import NET, ProgramBuilder, Slot, read, write
from concord.spec.isa.instructions import BASES, Instruction, Op, Reg
from concord.spec.isa.memories import Mem

REGISTERS = (Reg.ROWS, Reg.COLUMNS, Reg.OUT_SCALE, Reg.STRIDE_X, Reg.ITERATIONS)
WORDS = Slot(mem=Mem.INITIAL_VRF)


def drawn(rng: np.random.Generator, length: int, depth: int = 0) -> Iterator[Instruction]:
    """A random program of chains, writes of registers and loops in each other."""
    for _ in range(length):
        match rng.integers(8):
            case 0 | 1 | 2:
                yield Instruction(op=Op.S_WR, mem=rng.choice(REGISTERS), a=int(rng.integers(1, 3)))
            case 3:
                yield Instruction(op=Op.S_WR, mem=rng.choice(BASES), a=int(rng.integers(1, 3)))
            case 4 if depth < 3:
                yield Instruction(op=Op.LOOP, a=int(rng.integers(1, 4)))
                yield from drawn(rng, length // 2, depth + 1)
                yield Instruction(op=Op.END_LOOP)
            case _:
                yield read(WORDS)
                yield from [Instruction(op=Op.MV_MUL)] * int(rng.integers(2))
                yield from (write(WORDS), Instruction(op=Op.END_CHAIN))


def chains(program: list[Instruction]) -> list[tuple]:
    """Each chain that a program runs, with the values of the registers that it reads."""
    values, found, open_loops, at = {Reg.ITERATIONS: 1}, [], [], 0
    while at < len(program):
        one = program[at]
        match one.op:
            case Op.S_WR | Op.V_RD | Op.MV_MUL:
                if one.op is Op.S_WR:
                    values[one.mem] = one.a
                else:
                    product = one.op is Op.MV_MUL
                    found.append((one.op, *(value for register, value in sorted(values.items())
                                            if product or register not in (Reg.COLUMNS, Reg.OUT_SCALE))))
            case Op.LOOP:
                open_loops.append([at, one.a])
            case Op.END_LOOP:
                open_loops[-1][1] -= 1
                if open_loops[-1][1]:
                    at = open_loops[-1][0]
                else:
                    open_loops.pop()
        at += 1
    return found


@pytest.mark.parametrize("seed", range(100))
def test_chains_run_under_the_same_registers(seed):
    """Registers that a program has never written count, too: what comes before a loop is no value of before."""
    rng, program = np.random.default_rng(seed), ProgramBuilder()
    first = [Instruction(op=Op.S_WR, mem=register, a=1) for register in REGISTERS]
    program.instructions = [*first, *drawn(rng, 12), Instruction(op=Op.END)]
    before, length = chains(program.instructions), len(program.instructions)
    without_repeated_writes(program)
    assert chains(program.instructions) == before
    assert len(program.instructions) <= length


def test_what_is_constant_in_a_loop_is_written_before_it():
    """So is what each step begins with, also where it is known: the program may begin there."""
    program = ProgramBuilder()
    program.chain(read(NET), write(WORDS), rows=8)
    with program.repeated():
        program.note("x")
        program.chain(read(NET), write(WORDS), rows=8)
        with program.section("product", "fc"):
            program.chain(read(WORDS), Instruction(op=Op.MV_MUL), write(WORDS), rows=16, columns=2)
        program.chain(read(WORDS), write(NET), rows=8)
    program.end()
    without_repeated_writes(program)
    assert program.text() == """\
s_wr Rows, 8
v_rd NetQ
v_wr InitialVrf, 0
end_chain
s_wr Rows, 8
s_wr Columns, 2
loop 1
# x
v_rd NetQ
v_wr InitialVrf, 0
end_chain
# product
s_wr Rows, 16
v_rd InitialVrf, 0
mv_mul 0
v_wr InitialVrf, 0
end_chain
s_wr Rows, 8
v_rd InitialVrf, 0
v_wr NetQ
end_chain
end_loop
end
"""
    assert program.loop == 6
    assert [(one.first, one.last) for one in program.sections] == [(10, 14)]
