"""Chains that make tiles of the numbers of a tensor, for products of two tensors that are computed."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from concord.compiler.emit.chains import OpenChain
from concord.compiler.emit.sources import Region
from concord.compiler.lib.program import ProgramBuilder
from concord.compiler.lib.tiling import RowPart
from concord.spec.isa.instructions import Instruction, Op, Reg
from concord.spec.isa.memories import Mem
from concord.spec.machine.config import Config


@dataclass(frozen=True, kw_only=True, slots=True)
class TileLoad:
    """A chain that makes tiles of vectors.

    Attributes:
        tile:       First tile.
        word:       First word of the first vector, counted from that of the first position.
        rows:       Elements of a vector.
        vectors:    Vectors of a tile.
        tiles:      Number of tiles.
        step:       Words from the vectors of a tile to those of the next one.
        transposed: Whether vectors are columns of tiles.
    """

    tile: int
    word: int
    rows: int
    vectors: int
    tiles: int
    step: int
    transposed: bool


@dataclass(kw_only=True, slots=True, eq=False)
class Building(OpenChain):
    """The chains that make tiles of the numbers of a tensor, which stand in the first strip of a pass.

    Attributes:
        loads: These chains.
    """

    loads: tuple[TileLoad, ...] = ()

    def emit(self, config: Config, program: ProgramBuilder, region: Region, part: RowPart):
        view = self.source.view
        for one in self.loads if region.strip == 0 else ():
            program.chain(
                Instruction(op=Op.M_RD, mem=view.buffer.mem, a=view.address(0) + one.word, inc=1),
                Instruction(op=Op.M_WR, mem=Mem.MATRIX_RF, a=one.tile, transposed=int(one.transposed)), rows=one.rows,
                registers={Reg.ITERATIONS: one.vectors * one.tiles, Reg.ITERATIONS_X: one.vectors,
                           Reg.STRIDE_X: view.stride, Reg.STRIDE_Y: one.step})


def together(loads: Sequence[TileLoad], size: int) -> tuple[TileLoad, ...]:
    """Loads of neighbouring tiles whose vectors are at one distance, native vectors of some words, as one chain each.
    """
    found: list[TileLoad] = []
    for one in loads:
        last = found[-1] if found else None
        if last is not None and (one.rows, one.vectors, one.transposed) == (last.rows, last.vectors, last.transposed):
            step = one.word - last.word if last.tiles == 1 else last.step
            fits = step > 0 and step % size == 0 and one.word == last.word + last.tiles * step
            if fits and one.tile == last.tile + last.tiles:
                found[-1] = replace(last, tiles=last.tiles + 1, step=step)
                continue
        found.append(one)
    return tuple(found)
