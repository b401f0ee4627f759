"""Cut matrices into native tiles, and products into parts that the machine can hold; bounds of sums, from weights."""

from dataclasses import dataclass

import numpy as np
from concord.net.arithmetic.integer import IntegerProduct
from concord.spec.isa.instructions import FIELDS
from concord.spec.machine.config import Config
from concord.spec.numbers.formats import Format

#: Largest value of a scalar register.
LARGEST = (1 << FIELDS["a"].width) - 1


@dataclass(frozen=True, kw_only=True, slots=True)
class RowPart:
    """Rows of a matrix that one product computes.

    Attributes:
        row:  First row, which begins a word of the result; in images, a native vector of each pixel.
        rows: Number of rows.
    """

    row: int
    rows: int

    @property
    def span(self) -> slice:
        """The rows as a slice."""
        return slice(self.row, self.row + self.rows)


def parts(config: Config, rows: int, columns: int = 1, most: int | None = None) -> list[RowPart]:
    """Cut `rows` rows into products that the accumulators hold.

    Args:
        columns: Number of native vectors of a row.
        most:    Most tiles of a product, as far as one row of tiles has no more; None for any number.
    """
    limit = min(config.accumulator_rows, LARGEST)
    if most is not None:
        limit = min(limit, max(1, most // columns) * config.native_dim)
    if rows > limit:
        # Parts have whole native tiles if possible: a cut inside a tile leaves a part of it unused.
        unit = config.native_dim if limit >= config.native_dim else config.mfu_lanes
        limit = limit // unit * unit
    return [RowPart(row=row, rows=min(limit, rows - row)) for row in range(0, rows, limit)]


def padded(array: np.ndarray, count: int, axis: int) -> np.ndarray:
    """`array`, padded with zeros at its end along `axis` to a length of `count`."""
    widths = [(0, 0)] * array.ndim
    widths[axis] = (0, count - array.shape[axis])
    return np.pad(array, widths)


def whole_vectors(config: Config, values: np.ndarray | None) -> np.ndarray | None:
    """Operands padded with zeros to whole native vectors, so that the padding of the input stays +0."""
    return None if values is None else padded(values, config.vectors_of(len(values)) * config.native_dim, 0)


def stacked(config: Config, gates: np.ndarray) -> np.ndarray:
    """Join gates[gates, rows, ...] to one tall matrix [gates * rows', ...]; zero rows pad each gate to whole words."""
    tall = padded(gates, config.words_of(gates.shape[1]) * config.mfu_lanes, 1)
    return tall.reshape(-1, *gates.shape[2:])


def tiles(config: Config, matrix: np.ndarray) -> np.ndarray:
    """Cut matrix[rows, columns] into [tiles, N, N] in the order of MatrixRf: tile (r, c) has number r * Columns + c."""
    size = config.native_dim
    down, across = (config.vectors_of(n) for n in matrix.shape)
    whole = padded(padded(matrix, down * size, 0), across * size, 1)
    return whole.reshape(down, size, across, size).swapaxes(1, 2).reshape(-1, size, size)


def tile_exponents(config: Config, exponents: np.ndarray) -> np.ndarray:
    """Cut exponents[rows, columns / N] into [tiles, N] in the order of `tiles`; padding rows get the smallest one."""
    size = config.native_dim
    down = config.vectors_of(len(exponents))
    whole = np.full((down * size, exponents.shape[1]), config.weights.e_min, np.int8)
    whole[: len(exponents)] = exponents
    return whole.reshape(down, size, -1).swapaxes(1, 2).reshape(-1, size)


@dataclass(frozen=True, kw_only=True, slots=True)
class Bound:
    """The bound of one product's sums.

    Attributes:
        product: Name of the product.
        bits:    Accumulator bits, sign included, that hold every sum for any input.
        has:     Accumulator bits of the machine.
        clamped: Share of the weights' blocks whose exponent was clamped; 0 in integer mode.
    """

    product: str
    bits: int
    has: int
    clamped: float = 0.0

    @property
    def proven(self) -> bool:
        """Whether no sum can overflow, for any input."""
        return self.bits <= self.has

    def __str__(self) -> str:
        if self.proven:
            text = f"{self.product}: no sum wraps ({self.bits} of {self.has} accumulator bits)"
        else:
            text = f"{self.product}: a sum may wrap ({self.bits} accumulator bits hold every sum, there are {self.has})"
        return text + (f"; {self.clamped:.1%} of the weight blocks have a clamped exponent" if self.clamped else "")


def integer_bound(config: Config, product: IntegerProduct) -> Bound:
    """The bound of a product in integer mode."""
    return Bound(product=product.name, bits=product.bits, has=config.sum_bits)


def block_bound(config: Config, product: str, mantissas: np.ndarray, exponents: np.ndarray) -> Bound:
    """The bound of a product in block floating point, for inputs whose blocks all have the largest exponent.

    Args:
        mantissas: Mantissas of the weights, [rows, columns]; columns are a multiple of the native dimension N.
        exponents: Exponents of the weights, [rows, columns / N].
    """
    blocks = mantissas.reshape(*exponents.shape, config.native_dim)
    sums = np.abs(blocks.astype(np.int64)).sum(axis=-1) * -config.activations.lowest
    # All values are in units of the accumulator's last bit; they are Python integers, as up to 80 bits are legal.
    shifts = exponents.astype(np.int64) - config.weights.e_min
    across = config.activations.e_max - config.activations.e_min + config.alignment
    rows = (sums.astype(object) << shifts.astype(object)).sum(axis=1)
    return Bound(
        product=product,
        bits=(int(rows.max()) << across).bit_length() + 1,
        has=config.sum_bits,
        clamped=clamped_share(blocks, exponents, config.weights),
    )


def clamped_share(blocks: np.ndarray, exponents: np.ndarray, fmt: Format) -> float:
    """Share of blocks[..., N] whose exponent was limited: their mantissas saturate, or leave leading bits unused."""
    largest = np.abs(blocks).max(axis=-1)
    below = (exponents == fmt.e_min) & (largest > 0) & (largest < 1 << max(0, fmt.bits - 2))
    above = (exponents == fmt.e_max) & ((blocks == fmt.highest) | (blocks == fmt.lowest)).any(axis=-1)
    return float((below | above).mean())
