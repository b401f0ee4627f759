"""Which channels the heads of an attention have, and the tiles that the program makes of their keys and values."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from concord.compiler.emit.sources import FromNumbers, Multiplied
from concord.compiler.emit.storage import NumbersView
from concord.compiler.emit.tile_making import Building, TileLoad, together
from concord.compiler.lib.tiling import RowPart
from concord.compiler.plan.planner import Planner
from concord.spec.isa.instructions import Instruction, Op
from concord.spec.machine.config import Config


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Heads:
    """Which channels each head has, and the native vectors in which they lie.

    Attributes:
        config: Configuration of the machine.
        count:  Number of heads.
        size:   Channels of a head.
    """

    config: Config
    count: int
    size: int

    def vectors(self, head: int) -> range:
        """The native vectors of a pixel in which a head has channels."""
        n = self.config.native_dim
        return range(head * self.size // n, -(-(head + 1) * self.size // n))

    def lanes(self, head: int, vector: int) -> range:
        """The lanes of a pixel that a head has in a native vector."""
        n = self.config.native_dim
        return range(max(head * self.size, vector * n), min((head + 1) * self.size, (vector + 1) * n))

    def words(self, head: int) -> range:
        """The words of a pixel in which a head has channels."""
        lanes = self.config.mfu_lanes
        return range(head * self.size // lanes, -(-(head + 1) * self.size // lanes))

    def groups(self) -> list[range]:
        """Neighbouring heads that share native vectors."""
        begins = [head for head in range(self.count) if head * self.size % self.config.native_dim == 0]
        return [range(*ends) for ends in pairwise([*begins, self.count])]

    def runs(self) -> list[tuple[range, range]]:
        """Runs of native vectors that have channels of the same heads, each with these heads."""
        found: list[tuple[range, range]] = []
        for vector in range(-(-self.count * self.size // self.config.native_dim)):
            heads = [head for head in range(self.count) if vector in self.vectors(head)]
            own = range(heads[0], heads[-1] + 1)
            if found and found[-1][1] == own:
                found[-1] = range(found[-1][0].start, vector + 1), own
            else:
                found.append((range(vector, vector + 1), own))
        return found


def key_tiles(planner: Planner, view: NumbersView, heads: Heads, head: int, positions: int, name: str
              ) -> tuple[Multiplied, Building]:
    """The product of queries and the keys of a head, whose rows are positions, and the chains that make its tiles.

    Args:
        view:   Numbers of all keys.
        positions: Number of positions.
        name:   Name of the attention.
    """
    config, n, vectors = heads.config, heads.config.native_dim, heads.vectors(head)
    tile = _tiles(planner, f"{name}, keys of head {head}", positions, len(vectors))
    loads = [
        TileLoad(tile=tile + row * len(vectors) + column, word=row * n * view.stride + _word(config, lanes),
                 rows=len(lanes), vectors=min(n, positions - row * n), tiles=1, step=0, transposed=False)
        for row in range(-(-positions // n)) for column, vector in enumerate(vectors)
        for lanes in [heads.lanes(head, vector)]]
    product = Multiplied(part=RowPart(row=0, rows=positions), vector=vectors.start, vectors=len(vectors),
                         product=Instruction(op=Op.MV_MUL, a=tile, window=1))
    return product, Building(source=FromNumbers(view=view), loads=together(loads, config.vector_words))


def value_tiles(planner: Planner, view: NumbersView, heads: Heads, positions: int, name: str
                ) -> Iterator[tuple[range, Multiplied, Building]]:
    """The products of powers and values, whose rows are channels: one for each run of native vectors that have channels
    of the same heads, with these heads and the chains that make its tiles.

    Args:
        view:   Numbers of all values.
        positions: Number of positions.
        name:   Name of the attention.
    """
    config, n, each = heads.config, heads.config.native_dim, heads.config.vectors_of(positions)
    firsts = {head: group.start for group in heads.groups() for head in group}
    for vectors, own in heads.runs():
        columns = len(own) * each
        rows = min(len(vectors) * n, heads.count * heads.size - vectors.start * n)
        tile = _tiles(planner, f"{name}, values of heads {own.start} to {own.stop - 1}", rows, columns)
        loads = [
            TileLoad(tile=tile + row * columns + (head - own.start) * each + column,
                     word=column * n * view.stride + _word(config, lanes), rows=len(lanes),
                     vectors=min(n, positions - column * n), tiles=1, step=0, transposed=True)
            for row, vector in enumerate(vectors) for head in own for lanes in [heads.lanes(head, vector)]
            for column in range(each)]
        product = Multiplied(
            part=RowPart(row=vectors.start * n, rows=rows), vector=(own.start - firsts[own.start]) * each,
            vectors=columns, product=Instruction(op=Op.MV_MUL, a=tile, window=1))
        yield own, product, Building(source=FromNumbers(view=view), loads=together(loads, config.vector_words))


def _tiles(planner: Planner, name: str, rows: int, columns: int) -> int:
    """The first of the tiles of a matrix that the program makes; the host brings zeros."""
    n = planner.build.config.native_dim
    rows = -(-rows // n) * n
    return planner.build.matrix(name, np.zeros((rows, columns * n), planner.build.config.weights.dtype),
                                np.full((rows, columns), planner.build.config.weights.e_min, np.int8))


def _word(config: Config, lanes: range) -> int:
    """The word of a pixel in which lanes begin."""
    return lanes.start // config.mfu_lanes
