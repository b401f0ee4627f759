"""Writes of scalar registers that loops repeat: what each pass would write again stands before the loop, or nowhere.

The decoder takes instructions one after the other, so that each of them costs cycles in every pass.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from concord.compiler.lib.program import ProgramBuilder, loop_end
from concord.spec.isa.instructions import BASES, Instruction, Op, Reg

#: Registers that only products read. Any chain may read another one.
_OF_PRODUCTS = (Reg.COLUMNS, Reg.OUT_SCALE)
#: Values of registers by their numbers. One that is missing has a value that depends on the pass of a loop.
_Known = dict[int, int]
#: Those of iterations when a program begins.
_START: _Known = {Reg.ITERATIONS: 1, Reg.ITERATIONS_X: 1}


@dataclass(slots=True)
class _Kept:
    """An instruction that stays, and the address that it had; None where it is new."""

    address: int | None
    instruction: Instruction


def without_repeated_writes(program: ProgramBuilder):
    """Leave out writes of registers that hold the value already; write once before a loop what is constant in it.

    The loop over time steps needs nothing from before but the writes directly before it: a program may begin there.
    """
    old = program.instructions
    kept = list(_kept(program, 0, len(old), dict(_START)))
    index, at = [], 0
    for address in range(len(old)):  # one that is left out has the address of the next one that stays
        while kept[at].address is None or kept[at].address < address:
            at += 1
        index.append(at)
    program.moved([one.instruction for one in kept], index)


def _kept(program: ProgramBuilder, first: int, end: int, known: _Known) -> Iterator[_Kept]:
    """What stays of the instructions from one address to another. `known` becomes what registers hold after them."""
    instructions, address = program.instructions, first
    while address < end:
        one = instructions[address]
        if one.op is Op.LOOP:
            after = loop_end(instructions, address)
            if address == program.loop:
                known.clear()
                known.update(_START)
            for register, values in _written(instructions[address:after]).items():
                if known.get(register) == values[-1]:
                    continue
                known.pop(register, None)
                if values[0] == values[-1] and not _read_first(instructions[address:after], register):
                    known[register] = values[0]
                    yield _Kept(None, Instruction(op=Op.S_WR, mem=register, a=values[0]))
            yield _Kept(address, one)
            yield from _kept(program, address + 1, after, known)
            address = after
            continue
        if not _sets(one):
            yield _Kept(address, one)
        elif known.get(one.mem) != one.a:
            known[one.mem] = one.a
            yield _Kept(address, one)
        address += 1


def _written(loop: Sequence[Instruction]) -> dict[int, list[int]]:
    """The values that the instructions of a loop write into each register, in order."""
    found: dict[int, list[int]] = {}
    for one in filter(_sets, loop):
        found.setdefault(one.mem, []).append(one.a)
    return found


def _read_first(loop: Sequence[Instruction], register: int) -> bool:
    """Whether a loop may read a register before it writes it."""
    readers = (Op.MV_MUL,) if register in _OF_PRODUCTS else (Op.V_RD, Op.M_RD)
    return next(one.op in readers for one in loop if one.op in readers or _sets(one) and one.mem == register)


def _sets(one: Instruction) -> bool:
    """Whether an instruction writes a scalar register that is no base register."""
    return one.op is Op.S_WR and one.mem not in BASES
