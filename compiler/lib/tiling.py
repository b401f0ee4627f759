"""Matrices as native tiles, and products cut to what the machine holds at once."""

from dataclasses import dataclass

import numpy as np
from concord.spec.config import Config
from concord.spec.isa import FIELDS

#: Largest value of a scalar register.
LARGEST = (1 << FIELDS["a"].width) - 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """Some rows of a matrix that one product gives.

    Attributes:
        row:  First row, at the beginning of a word.
        rows: How many.
    """

    row: int
    rows: int


def parts(config: Config, rows: int) -> list[Part]:
    """Cut `rows` rows into products that the accumulators hold."""
    limit = min(config.accumulator_rows, LARGEST)
    if rows > limit:
        # Whole native tiles where possible: a cut inside one leaves part of a tile unused.
        unit = config.native_dim if limit >= config.native_dim else config.mfu_lanes
        limit = limit // unit * unit
    return [Part(row=row, rows=min(limit, rows - row)) for row in range(0, rows, limit)]


def padded(array: np.ndarray, count: int, axis: int) -> np.ndarray:
    """`array` with zeros behind it along `axis`, `count` long."""
    widths = [(0, 0)] * array.ndim
    widths[axis] = (0, count - array.shape[axis])
    return np.pad(array, widths)


def whole_vectors(config: Config, values: np.ndarray | None) -> np.ndarray | None:
    """Operands for whole native vectors, with zeros behind them: the padding of the input stays +0."""
    return None if values is None else padded(values, config.vectors_of(len(values)) * config.native_dim, 0)


def stacked(config: Config, gates: np.ndarray) -> np.ndarray:
    """[gates, rows, ...] as one tall [gates * rows', ...], each gate padded with zero rows to whole words."""
    tall = padded(gates, config.words_of(gates.shape[1]) * config.mfu_lanes, 1)
    return tall.reshape(-1, *gates.shape[2:])


def tiles(config: Config, matrix: np.ndarray) -> np.ndarray:
    """[rows, columns] as [tiles, N, N] in the order of MatrixRf: tile of row r and column c is r * Columns + c."""
    size = config.native_dim
    down, across = (config.vectors_of(n) for n in matrix.shape)
    whole = padded(padded(matrix, down * size, 0), across * size, 1)
    return whole.reshape(down, size, across, size).swapaxes(1, 2).reshape(-1, size, size)


def tile_exponents(config: Config, exponents: np.ndarray) -> np.ndarray:
    """[rows, columns / N] of row blocks as [tiles, N] in the order of `tiles`; padding rows have the smallest."""
    size = config.native_dim
    down = config.vectors_of(len(exponents))
    whole = np.full((down * size, exponents.shape[1]), config.weights.e_min, np.int8)
    whole[: len(exponents)] = exponents
    return whole.reshape(down, size, -1).swapaxes(1, 2).reshape(-1, size)
