"""Shrink a failing program: take parts away as long as it still fails."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from concord.sim.stimulus.programs import Case
from concord.spec.isa.instructions import Instruction, Op, Reg, decode, encode
from concord.spec.isa.rules import SOURCES


def shrink(case: Case, fails: Callable[[Case], bool]) -> Case:
    """Return a smaller case that fails too; chains, loops, operations, iterations and rows are taken away one by one.

    Args:
        case:  A case that fails.
        fails: Tells whether a case fails. It is called only with cases that end, or stop with an error, like `case`.
    """
    while True:
        for program in _smaller(case.program):
            try:
                candidate = case.having(program)
            except ValueError:
                continue  # the candidate takes more words of NetQ than the case has
            if candidate.error == case.error and fails(candidate):
                case = candidate
                break
        else:
            return case


def _smaller(program: tuple[int, ...]) -> Iterator[list[int]]:
    """Candidates that are one step smaller; those of large steps come first."""
    units = _units(program)
    size = len(units) // 2
    while size:
        for first in range(0, len(units) - size + 1, size):
            yield _join(units[:first] + units[first + size:])
        size //= 2
    for address, word in enumerate(program):
        instruction = decode(word)
        if instruction is None:
            continue
        if instruction.op == Op.LOOP:
            yield from _fewer_passes(program, address, instruction)
        elif instruction.op == Op.S_WR:
            yield from _lower(program, address, instruction)
        elif instruction.op not in (*SOURCES, Op.END_CHAIN):
            yield [*program[:address], *program[address + 1:]]


def _units(program) -> list[list[int]]:
    """Parts that can be taken away whole: a chain, or one instruction between chains."""
    units, inside = [], False
    for word in program:
        if inside:
            units[-1].append(word)
        else:
            units.append([word])
        instruction = decode(word)
        inside = instruction is not None and (instruction.op in SOURCES or inside and instruction.op != Op.END_CHAIN)
    return units


def _join(units):
    return [word for unit in units for word in unit]


def _fewer_passes(program, address, instruction) -> Iterator[list[int]]:
    """Candidates in which the loop at `address` is unwrapped or makes fewer passes."""
    depth = 0
    for end in range(address, len(program)):
        inner = decode(program[end])
        depth += 0 if inner is None else (inner.op == Op.LOOP) - (inner.op == Op.END_LOOP)
        if depth == 0:
            yield [*program[:address], *program[address + 1:end], *program[end + 1:]]
            break
    yield from _lower(program, address, instruction)


def _lower(program, address, instruction: Instruction) -> Iterator[list[int]]:
    """Candidates with a smaller count or register value at `address`."""
    if instruction.op == Op.S_WR and instruction.mem == Reg.OUT_SCALE:
        return
    for value in {1, instruction.a // 2, instruction.a - 1}:
        if 0 < value < instruction.a:
            yield [*program[:address], encode(replace(instruction, a=value)), *program[address + 1:]]
