"""Strips of rows as one loop over base registers, where a program is longer than the instruction buffer.

Strips are emitted one after the other, and compared: those whose instructions differ in addresses alone, each by the
same distance from strip to strip, become the passes of a loop. The first strip stands before the loop, so that all
registers hold in the first pass what they hold in the others.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from concord.compiler.lib.build import Build
from concord.compiler.lib.program import Program
from concord.spec.isa.instructions import BASES, FIELDS, SPECS, Instruction

#: Largest value of a base register.
_LARGEST = (1 << FIELDS["a"].width) - 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """Neighbouring strips that become a loop.

    Attributes:
        first:     Number of the first strip.
        count:     Number of strips.
        distances: Distance of the address of each instruction from strip to strip.
    """

    first: int
    count: int
    distances: tuple[int, ...]

    @property
    def bases(self) -> dict[int, int]:
        """The base register for each distance."""
        moving = dict.fromkeys(distance for distance in self.distances if distance)
        return {distance: 1 + k for k, distance in enumerate(moving)}

    @property
    def legal(self) -> bool:
        """Whether the base registers suffice."""
        return len(self.bases) <= len(BASES) and all(0 < one * self.count <= _LARGEST for one in self.bases)

    @property
    def saved(self) -> int:
        """Number of instructions that the loop saves."""
        return (self.count - 1) * len(self.distances) - 2 - 2 * len(self.bases)


def emit(build: Build, strips: Sequence[Callable[[], None]]):
    """Emit strips, as many as possible in one loop.

    Args:
        strips: Functions that emit one strip each into the program of `build`.
    """
    parts = _recorded(build, strips)
    runs = [run for run in _runs(parts) if run.legal and run.saved > 0]
    run = max(runs, key=lambda one: one.saved, default=Run(first=len(strips), count=0, distances=()))
    for strip in strips[: run.first]:
        strip()
    if run.count:
        _emit_loop(build.program, parts[run.first], run)
    for strip in strips[run.first + run.count :]:
        strip()


def _emit_loop(program: Program, part: Program, run: Run):
    """Emit a strip as the body of a loop, whose addresses move from pass to pass."""
    bases = run.bases
    part.instructions = [replace(instruction, base=bases.get(distance, 0))
                         for instruction, distance in zip(part.instructions, run.distances, strict=True)]
    for base in bases.values():
        program.set_base(base, 0)
    with program.repeated(run.count):
        program.splice(part)
        for distance, base in bases.items():
            program.move_base(base, distance)


def _recorded(build: Build, strips: Sequence[Callable[[], None]]) -> list[Program]:
    """Each strip as a part of a program, with the registers that the strip before it leaves."""
    parts: list[Program] = []
    for strip in strips:
        with build.part(Program.apart(parts[-1] if parts else None)) as part:
            strip()
        parts.append(part)
    return parts


def _runs(parts: Sequence[Program]) -> list[Run]:
    """The runs of strips behind the first one that differ from each other by the same distances."""
    found: list[Run] = []
    for number, (before, part) in enumerate(pairwise(parts)):
        moved = _distances(before, part) if number else None
        last = found[-1] if found else None
        if moved is not None and last and last.first + last.count == number + 1 and last.distances == moved:
            found[-1] = replace(last, count=last.count + 1)
        elif moved is not None:
            found.append(Run(first=number, count=2, distances=moved))
    return found


def _distances(before: Program, after: Program) -> tuple[int, ...] | None:
    """Distances of addresses between two strips; None where they differ in more than addresses that can move."""
    if len(before.instructions) != len(after.instructions):
        return None
    pairs = list(zip(before.instructions, after.instructions, strict=True))
    if any(replace(one, a=0) != replace(other, a=0) or (one.a != other.a and not _moves(one)) for one, other in pairs):
        return None
    return tuple(other.a - one.a for one, other in pairs)


def _moves(instruction: Instruction) -> bool:
    """Whether an instruction has an address to which a base register may be added."""
    return "base" in SPECS[instruction.op].fields and not instruction.base
