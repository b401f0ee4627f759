"""Where the matrices of a network lie: in MatrixRf as long as the program runs, or in Dram."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from concord.spec.isa.dram import tile_words
from concord.spec.machine.config import Config


@dataclass(frozen=True, kw_only=True, slots=True)
class Matrix:
    """A matrix in native tiles.

    Attributes:
        first:    Its first tile, if MatrixRf held all matrices.
        count:    Number of its tiles.
        size:     Words of Dram of one of them.
        integer:  Whether it is in integer mode.
        diagonal: Whether all of its tiles are diagonal.
        built:    Whether the program makes its tiles itself, which therefore stay in MatrixRf.
        home:     Its first tile of MatrixRf, where it stays there; None for one that is loaded.
        address:  Its first word of Dram, where it is loaded.
    """

    first: int
    count: int
    size: int
    integer: bool
    diagonal: bool
    built: bool = False
    home: int | None = None
    address: int = 0

    @property
    def words(self) -> int:
        """Words of Dram of all tiles."""
        return self.count * self.size

    def holds(self, tile: int) -> bool:
        """Whether a tile is one of its own, if MatrixRf held all matrices."""
        return self.first <= tile < self.first + self.count


def matrix_of(config: Config, first: int, mantissas: np.ndarray, *, integer: bool) -> Matrix:
    """A matrix from its tiles: mantissas [tiles, N, N]."""
    off = ~np.eye(config.native_dim, dtype=bool)
    diagonal = not mantissas[:, off].any()
    return Matrix(first=first, count=len(mantissas), integer=integer, diagonal=diagonal,
                  size=tile_words(config, integer=integer, diagonal=diagonal))


def least_rest(matrices: Sequence[Matrix]) -> int:
    """Tiles of MatrixRf for matrices that are loaded: the next one comes while one is multiplied."""
    largest = sorted((matrix.count for matrix in matrices), reverse=True)[:2]
    return sum(largest)


def choose_residents(config: Config, matrices: Sequence[Matrix], demand: dict[int, tuple[int, int]]) -> set[int]:
    """First tiles of the matrices that stay in MatrixRf: those that the program makes, and as many others as have room,
    first those that are needed most often and hide their loads least.

    Args:
        matrices: All matrices.
        demand:   How often each one is needed in an inference, and iterations of its products, by its first tile.
    """
    def saved(matrix):
        often, work = demand.get(matrix.first, (0, 0))
        return -often, work, matrix.count

    built = [matrix for matrix in matrices if matrix.built]
    order = sorted((matrix for matrix in matrices if not matrix.built), key=saved)
    chosen, left = {matrix.first for matrix in built}, list(order)
    for matrix in order:
        rest = [one for one in left if one is not matrix]
        used = sum(one.count for one in matrices if one.first in chosen) + matrix.count
        if used + least_rest(rest) <= config.matrix_tiles:
            chosen.add(matrix.first)
            left = rest
    return chosen
