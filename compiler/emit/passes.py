"""Passes: a layer that reads its source, and the operations that follow it pixel by pixel.

A pass runs strip by strip where it has several chains: what one of them leaves for the next one is then short, and the
multiplier works on the next strip while the multi-function units finish this one.

Where a program is longer than the instruction buffer, strips become one loop over base registers. They are emitted one
after the other, and compared: those whose instructions differ in addresses alone, each by the same distance from strip
to strip, become the passes of a loop. The first strip stands before the loop, so that all registers hold in the first
pass what they hold in the others.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from concord.compiler.emit.chains import OpenChain
from concord.compiler.emit.sources import (
    FromEnlarged,
    FromNumbers,
    FromPool,
    FromProduct,
    FromWords,
    Region,
    Windowed,
    inside,
)
from concord.compiler.emit.storage import Buffer, CodeMap, CodesView, NumbersView, TensorNumbers
from concord.compiler.graph.nodes import Value
from concord.compiler.lib.build import ModelBuild
from concord.compiler.lib.program import ProgramBuilder
from concord.compiler.lib.tiling import LARGEST, RowPart
from concord.spec.isa.instructions import BASES, SPECS, Instruction, Op
from concord.spec.machine.config import Config


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class PlannedChain:
    """A chain of a pass.

    Attributes:
        layer: Name of the layer that it belongs to.
        chain: The chain.
        parts: Lanes that it computes one after the other.
    """

    layer: str
    chain: OpenChain
    parts: tuple[RowPart, ...]

    def regions(self, region: Region) -> list[Region]:
        """A region in parts that one chain computes: rows where it enlarges an image. Where it reads windows of
        numbers, from which padding is left out, all windows of a part have one shape.
        """
        source = self.chain.source
        if isinstance(source, FromEnlarged):
            return [replace(region, row=row, rows=1) for row in range(region.row, region.row + region.rows)]
        if not isinstance(source, FromPool) or isinstance(source.source, CodeMap):
            return [region]
        window, shape = source.window, source.source.numbers.value.shape
        rows, columns = (
            _alike(first, count, window.stride[axis], window.padding[2 * axis], window.size[axis],
                   window.dilation[axis], shape[1 + axis])
            for axis, (first, count) in enumerate(
                ((region.row, region.rows), (region.column, region.columns))))
        return [replace(region, row=row, rows=height, column=column, columns=width)
                for row, height in rows for column, width in columns]


def _alike(first: int, count: int, stride: int, padding: int, size: int, step: int, length: int):
    """Runs (first, count) of neighbouring positions of a window at which as many of its pixels lie inside the image."""
    runs: list[tuple[int, int]] = []
    before = None
    for position in range(first, first + count):
        shape = inside(position * stride - padding, size, step, length)
        if shape == before:
            runs[-1] = runs[-1][0], runs[-1][1] + 1
        else:
            runs.append((position, 1))
        before = shape
    return runs


@dataclass(kw_only=True, slots=True, eq=False)
class LayerPass:
    """One layer and what follows it at the same pixels.

    Attributes:
        time:    Number of the pass.
        value:   Tensor of the pixels.
        chains:  Chains, in order.
        strips:  Numbers that hold one strip at a time.
        rows:    Rows of a strip.
        most:    Most rows that a strip may have; 0 for any number.
        flat:    Whether the pixels of its single row count as rows here.
        whole:   Whether it takes no turns with others: its chains take turns, in long strips.
    """

    time: int
    value: Value
    chains: list[PlannedChain] = field(default_factory=list)
    strips: list[TensorNumbers] = field(default_factory=list)
    rows: int = 0
    most: int = 0
    flat: bool = False
    whole: bool = False

    @property
    def length(self) -> int:
        """Number of rows that strips are made of."""
        return self.value.shape[2 if self.flat else 1]

    def buffers(self) -> list[Buffer]:
        """All buffers that the pass reads or writes."""
        found = []
        for planned in self.chains:
            match planned.chain.source:
                case FromNumbers(view=view) | FromWords(view=view) if view:
                    found.append(view.buffer)
                case FromProduct(map=one) | FromPool(source=one) | FromEnlarged(source=one):
                    found.append(one.buffer)
            found += [step.at.buffer for step in planned.chain.steps if isinstance(step.at, NumbersView | CodesView)]
        return found

    def windowed(self) -> list[Windowed]:
        """The sources that read windows."""
        sources = [planned.chain.source for planned in self.chains]
        return [source for source in sources if isinstance(source, Windowed)]

    def targets(self) -> list[NumbersView | CodesView | None]:
        """All that the pass writes; None stands for NetQ."""
        return [step.at for planned in self.chains for step in planned.chain.steps if step.op == Op.V_WR]

    def written(self) -> list[CodeMap]:
        """The maps that the pass writes."""
        return [target.map for target in self.targets() if isinstance(target, CodesView)]

    def emit(self, config: Config, program: ProgramBuilder):
        """Add the chains to a program."""
        for first in self.firsts:
            self.emit_strip_at(config, program, first)

    @property
    def firsts(self) -> range:
        """The first row of each strip."""
        return range(0, self.length, self.rows)

    def emit_strip_at(self, config: Config, program: ProgramBuilder, first: int):
        """Add the chains of the strip that begins with a row to a program."""
        self.emit_strip(config, program, first, min(self.rows, self.length - first))

    def emit_rows(self, config: Config, program: ProgramBuilder, first: int, stop: int):
        """Add the chains of some rows to a program, as many at a time as it takes."""
        for row in range(first, stop, self.rows):
            self.emit_strip(config, program, row, min(self.rows, stop - row))

    def emit_strip(self, config: Config, program: ProgramBuilder, first: int, rows: int):
        """Add the chains of some rows to a program."""
        assert rows <= self.rows or not self.strips, f"{rows} rows where there is room for {self.rows}"
        columns = self.value.shape[2]
        strip = Region(row=0, rows=1, column=first, columns=rows, width=columns, strip=first) if self.flat else Region(
            row=first, rows=rows, column=0, columns=columns, width=columns, strip=first * columns)
        for planned in self.chains:
            with program.section(planned.layer or "network input", planned.layer):
                for part in planned.parts:
                    for region in planned.regions(strip):
                        planned.chain.emit(config, program, region, part)


@dataclass(frozen=True, kw_only=True, slots=True)
class StripRun:
    """Neighbouring strips that become a loop.

    Attributes:
        first:     Number of the first strip.
        count:     Number of strips.
        distances: Distance of the address of each instruction from strip to strip.
        origins:   What of the address of each instruction in the first strip does not fit its field.
    """

    first: int
    count: int
    distances: tuple[int, ...]
    origins: tuple[int, ...] = ()

    @property
    def moves(self) -> list[tuple[int, int]]:
        """The distance and the origin of each instruction; an address that stays has its origin in no register."""
        origins = self.origins or (0,) * len(self.distances)
        return [(one, origin if one else 0) for one, origin in zip(self.distances, origins, strict=True)]

    @property
    def bases(self) -> dict[tuple[int, int], int]:
        """The base register for each distance and origin."""
        moving = dict.fromkeys(move for move in self.moves if move[0])
        return {move: 1 + k for k, move in enumerate(moving)}

    def legal(self, registers: int) -> bool:
        """Whether as many base registers suffice."""
        return len(self.bases) <= registers and all(
            distance > 0 and (origin or distance * self.count <= LARGEST) for distance, origin in self.bases)

    @property
    def saved(self) -> int:
        """Number of instructions that the loop saves."""
        return (self.count - 1) * len(self.distances) - 2 - 2 * len(self.bases)


def roll(build: ModelBuild, strips: Sequence[Callable[[], None]]):
    """Emit strips, as many as possible in one loop.

    Args:
        strips: Functions that emit one strip each into the program of `build`.
    """
    parts, registers = _recorded(build, strips), len(BASES) - bool(build.loads or build.far)  # one comes near Dram
    runs = [run for run in _runs(parts) if run.legal(registers) and run.saved > 0]
    run = max(runs, key=lambda one: one.saved, default=StripRun(first=len(strips), count=0, distances=()))
    for strip in strips[: run.first]:
        strip()
    if run.count:
        _emit_loop(build.program, parts[run.first], run)
    for strip in strips[run.first + run.count :]:
        strip()


def _emit_loop(program: ProgramBuilder, part: ProgramBuilder, run: StripRun):
    """Emit a strip as the body of a loop, whose addresses move from pass to pass."""
    bases = run.bases
    part.instructions = [replace(instruction, a=instruction.a - move[1], base=bases.get(move, 0))
                         for instruction, move in zip(part.instructions, run.moves, strict=True)]
    for (_, origin), base in bases.items():
        program.set_base(base, origin)
    with program.repeated(run.count):
        program.splice(part)
        for (distance, _), base in bases.items():
            program.move_base(base, distance)


def _recorded(build: ModelBuild, strips: Sequence[Callable[[], None]]) -> list[ProgramBuilder]:
    """Each strip as a part of a program, with the registers that the strip before it leaves."""
    parts: list[ProgramBuilder] = []
    for strip in strips:
        with build.part(ProgramBuilder.apart(parts[-1] if parts else None)) as part:
            strip()
        parts.append(part)
    return parts


def _runs(parts: Sequence[ProgramBuilder]) -> list[StripRun]:
    """The runs of strips after the first one that differ from each other by the same distances."""
    found: list[StripRun] = []
    for number, (before, part) in enumerate(pairwise(parts)):
        moved = _distances(before, part) if number else None
        last = found[-1] if found else None
        if moved is not None and last and last.first + last.count == number + 1 and last.distances == moved:
            found[-1] = replace(last, count=last.count + 1)
        elif moved is not None:
            origins = tuple(one.a & ~LARGEST if _moves(one) else 0 for one in before.instructions)
            found.append(StripRun(first=number, count=2, distances=moved, origins=origins))
    return found


def _distances(before: ProgramBuilder, after: ProgramBuilder) -> tuple[int, ...] | None:
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
