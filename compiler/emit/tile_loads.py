"""Tiles that stay in Dram: which matrices are loaded when, and to which tiles of MatrixRf.

A program is made as if MatrixRf held all matrices. Where it does not, some stay there as long as the program runs, and
the others are loaded from Dram, one after the other, into the rest of it, each before the product that needs it and
beside those before. Loads are chains that are put between others, so that nothing else of the program changes.

A loop is entered with all of its matrices if the rest of MatrixRf holds them; else each of its passes loads them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from concord.compiler.emit.load_times import Load, LoadTimes, quickest
from concord.compiler.emit.tile_uses import COUNTS, Loop, TileUse, builds, demand, items_of, registers_before
from concord.compiler.lib.build import ModelBuild
from concord.compiler.lib.limits import Reason
from concord.compiler.lib.program import ProgramBuilder
from concord.compiler.lib.tile_store import Matrix, choose_residents
from concord.spec.isa.instructions import Instruction, Op, Reg
from concord.spec.isa.memories import Mem
from concord.spec.machine.config import Config

AHEAD = 2  #: Matrices that are loaded before the product that needs them, while others are multiplied.


@dataclass(slots=True)
class Rest:
    """The tiles of MatrixRf that matrices share by turns.

    Attributes:
        first, end: Its tiles.
        held:       Matrices in it with their first tiles, and the index after the last chain that reads each.
    """

    first: int
    end: int
    held: dict[Matrix, tuple[int, int]] = field(default_factory=dict)
    next: int = 0

    def __post_init__(self):
        self.next = self.first

    def take(self, matrix: Matrix, group: int) -> tuple[int, int]:
        """Give room to a matrix, the first of a group that needs so many tiles together.

        Returns:
            Its first tile, and the index from which on the room is free.
        """
        if self.next + group > self.end:
            self.next = self.first
        at, self.next = self.next, self.next + matrix.count
        free = 0
        for other, (start, end) in list(self.held.items()):
            if start < at + matrix.count and at < start + other.count:
                free = max(free, end)
                del self.held[other]
        return at, free


class TileLoads:
    """The loads of a program.

    Args:
        config:   The machine.
        program:  The program, whose products name tiles as if MatrixRf held all matrices.
        matrices: The matrices, each with its address in Dram or, where it stays in MatrixRf, with its home.
        resident: Number of tiles of MatrixRf that stay, from tile 0 on.
    """

    def __init__(self, config: Config, program: ProgramBuilder, matrices: Sequence[Matrix], resident: int):
        self.config, self._program = config, program
        self._matrices = {matrix.first: matrix for matrix in matrices}
        self._rest = Rest(resident, config.matrix_tiles)
        self._tiles: dict[int, int] = {}  # first tile of each product, or made tile, by the index of its instruction
        self.loads: list[Load] = []  #: The loads, in order.

    def emit(self) -> list[Reason]:
        """Put the loads into the program. Returns a reason for each thing that has no room."""
        room = self._rest.end - self._rest.first
        for one in self._matrices.values():
            if one.home is None and one.count > room:
                return [Reason(sentence=f"a product needs {one.count} tiles at once, and MatrixRf has {room} for tiles "
                                        "from Dram", attribute="matrix_tiles",
                               needed=self.config.matrix_tiles - room + one.count, available=self.config.matrix_tiles)]
        for k, instruction in enumerate(self._program.instructions):
            if builds(instruction):
                one = next(one for one in self._matrices.values() if one.holds(instruction.a))
                self._tiles[k] = one.home + instruction.a - one.first
        self.schedule(items_of(self.config, self._program.instructions, self._matrices))
        self._rewrite()
        return []

    def schedule(self, items: Sequence[TileUse | Loop], start: int = 0):
        """Choose tiles, and when loads begin, for a part of the program that begins at an index."""
        recent = [start] * AHEAD  # indices of the last products for which something was loaded
        for item in items:
            uses = tuple(use for use in (item.uses() if isinstance(item, Loop) else (item,)) if use.matrix.home is None)
            matrices = list(dict.fromkeys(use.matrix for use in uses))
            needed = sum(matrix.count for matrix in matrices)
            if isinstance(item, Loop) and needed > self._rest.end - self._rest.first:
                self._rest.held.clear()
                self.schedule(item.items, item.first + 1)
                self._rest.held.clear()
                recent = [item.end] * AHEAD
                continue
            before = item.first if isinstance(item, Loop) else item.at - 1
            # Where one of a loop's matrices is missing, all are loaded: those that are there would be in the way.
            missing = [] if all(matrix in self._rest.held for matrix in matrices) else matrices
            for matrix in missing:
                at, free = self._rest.take(matrix, needed)
                needed -= matrix.count
                earliest = max(recent[0], free, self.loads[-1].before if self.loads else 0)
                self.loads.append(Load(min(earliest, before), matrix, at))
                self._rest.held[matrix] = at, 0
            if missing:
                recent = [*recent[1:], before]
            for use in uses:
                at, _ = self._rest.held[use.matrix]
                self._tiles[use.at] = at
                self._rest.held[use.matrix] = at, item.end
            for use in (item.uses() if isinstance(item, Loop) else (item,)):
                if use.matrix.home is not None:
                    self._tiles[use.at] = use.matrix.home

    def _rewrite(self):
        """Write the program anew, with loads between its chains."""
        old, counts = self._program.instructions, list(registers_before(self._program.instructions))
        loads, index = list(self.loads), []
        new: list[Instruction] = []
        for k, instruction in enumerate(old):
            here = []
            while loads and loads[0].before == k:
                here.append(loads.pop(0))
            if here:
                new += self._chains(here, counts[k])
            index.append(len(new))
            new.append(replace(instruction, a=self._tiles[k]) if k in self._tiles else instruction)
        self._program.moved(new, index)

    def _chains(self, loads: Sequence[Load], known: tuple[int | None, ...]) -> list[Instruction]:
        """The instructions of loads. Registers hold afterwards what they held before, where that is known.

        Args:
            known: Values of `COUNTS`, or None.
        """
        made, now = [], dict(zip(COUNTS, known, strict=True))

        def set_register(register, value):
            if now[register] != value:
                made.append(Instruction(op=Op.S_WR, mem=register, a=value))
                now[register] = value

        for matrix, at in ((load.matrix, load.at) for load in loads):
            set_register(Reg.ITERATIONS, matrix.count)
            if now[Reg.ITERATIONS_X] is None or matrix.count % now[Reg.ITERATIONS_X]:
                set_register(Reg.ITERATIONS_X, 1)
            made += [
                Instruction(op=Op.M_RD, mem=Mem.DRAM, a=matrix.address, inc=int(matrix.count > 1)),
                Instruction(op=Op.M_WR, mem=Mem.MATRIX_RF, a=at, integer=int(matrix.integer),
                            diagonal=int(matrix.diagonal)),
                Instruction(op=Op.END_CHAIN)]
        for register, value in zip(COUNTS, known, strict=True):
            if value is not None:
                set_register(register, value)
        return made


def _estimate(build: ModelBuild, matrices: Sequence[Matrix], items: Sequence[TileUse | Loop],
              resident: set[int]) -> int | None:
    """Clock cycles of the products of a program if some matrices stay; None where the others have no room."""
    stored = _stored(matrices, resident | {one.first for one in matrices if one.built})
    home = sum(one.count for one in stored if one.home is not None)
    if home + max((one.count for one in stored if one.home is None), default=0) > build.config.matrix_tiles:
        return None
    by_first = {one.first: one for one in stored}
    loads = TileLoads(build.config, build.program, stored, home)
    items = [_renamed(item, by_first) for item in items]
    loads.schedule(items)
    times = LoadTimes(build.config, loads.loads)
    times.run(items)
    return times.ended


def _renamed(item: TileUse | Loop, matrices: dict[int, Matrix]) -> TileUse | Loop:
    """A part of a program whose products name matrices as they are stored."""
    if isinstance(item, Loop):
        return replace(item, items=tuple(_renamed(one, matrices) for one in item.items))
    return replace(item, matrix=matrices[item.matrix.first])


def _stored(matrices: Sequence[Matrix], resident: set[int]) -> list[Matrix]:
    """Matrices with their homes in MatrixRf, if they stay there, or their addresses in Dram."""
    stored, home, address = [], 0, 0
    for matrix in matrices:
        stays = matrix.first in resident
        stored.append(replace(matrix, home=home if stays else None, address=0 if stays else address))
        home, address = home + matrix.count * stays, address + matrix.words * (not stays)
    return stored


def load_tiles(build: ModelBuild):
    """Let a program load the tiles that MatrixRf does not hold; what has no room joins the shortages of the build."""
    config, program = build.config, build.program.instructions
    made = [instruction.a for instruction in program if builds(instruction)]
    matrices = [replace(matrix, built=any(map(matrix.holds, made))) for matrix in build.matrices()]
    by_first = {matrix.first: matrix for matrix in matrices}
    items = items_of(config, program, by_first)
    resident = quickest(config, matrices, choose_residents(config, matrices, demand(config, program, by_first)),
                        partial(_estimate, build, matrices, items))
    resident |= {one.first for one in matrices if one.built}
    stored = _stored(matrices, resident)
    home = sum(one.count for one in stored if one.home is not None)
    address = sum(one.words for one in stored if one.home is None)
    if address > config.dram_words:
        build.shortages.append(Reason(
            sentence=f"Dram needs {address} words for tiles and has {config.dram_words}, "
                     f"{address - config.dram_words} too few", attribute="dram_words", needed=address,
            available=config.dram_words))
        return
    build.shortages += TileLoads(config, build.program, stored, home).emit()
    build.store_matrices(stored)
