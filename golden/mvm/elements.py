"""Elements of native tiles and vectors: rounding to significant bits, codes, and records that hold them in messages.

Elements of a format with a precision have exponents of their own; all others are integers in two's complement.
"""

import numpy as np
from concord.spec.host.messages import entry_bytes, record_bytes
from concord.spec.machine.config import Config
from concord.spec.numbers.formats import Format


def nearest(values, fmt: Format):
    """Round to the nearest mantissa of a format, ties to even, without clipping.

    With a precision p, a magnitude a is rounded to a multiple of 2**s, s = max(0, floor(log2 a) - (p - 1)), as IEEE 754
    does with subnormals. Of two powers of two (p = 1), a value half way between them takes the larger, and 1/2 takes 0.

    Args:
        values: float64[...], mantissas with fractions.
        fmt:    Format of the mantissas.

    Returns:
        float64[...], integers.
    """
    if not fmt.precision:
        return np.rint(values)
    exponent = np.frexp(values)[1].astype(np.int64)  # 2**(exponent - 1) <= a < 2**exponent; 0 for 0
    step = np.ldexp(1.0, np.maximum(0, exponent - fmt.precision))
    return np.rint(values / step) * step


def representable(mantissas, fmt: Format) -> bool:
    """Whether all integers are mantissas of a format."""
    mantissas = np.asarray(mantissas)
    if not mantissas.size:
        return True
    if not fmt.lowest <= mantissas.min() <= mantissas.max() <= fmt.highest:
        return False
    return not fmt.precision or bool((nearest(mantissas.astype(np.float64), fmt) == mantissas).all())


def encode(mantissas, fmt: Format):
    """Codes of mantissas, int64[...] of `code_bits` bits: two's complement, or sign, field and fraction.

    With a precision p, field 0 means the fraction itself, and field f > 0 means (2**(p-1) + fraction) * 2**(f-1).
    """
    mantissas = np.asarray(mantissas, np.int64)
    if not fmt.precision:
        return mantissas & (1 << fmt.bits) - 1
    size, below = np.abs(mantissas), fmt.precision - 1
    exponent = np.frexp(size.astype(np.float64))[1].astype(np.int64)
    field = np.maximum(0, exponent - below)
    fraction = (size >> np.maximum(field - 1, 0)) & (1 << below) - 1
    return (mantissas < 0).astype(np.int64) << fmt.code_bits - 1 | field << below | fraction


def decode(codes, fmt: Format):
    """Mantissas int64[...] of codes that `encode` made; the code of -0 is 0."""
    codes = np.asarray(codes, np.int64)
    if not fmt.precision:
        return codes - (codes >> fmt.bits - 1 << fmt.bits)
    below = fmt.precision - 1
    field, fraction = codes >> below & (1 << fmt.field_bits) - 1, codes & (1 << below) - 1
    size = fraction + (field > 0) * (1 << below) << np.maximum(field - 1, 0)
    return np.where(codes >> fmt.code_bits - 1 & 1, -size, size)


def pack_tiles(config: Config, mantissas, stored_exponents) -> bytes:
    """Payload of a PACKED message: tile by tile, row by row, lane group by lane group.

    Args:
        config:           The machine.
        mantissas:        int64[tiles, N, N].
        stored_exponents: int64[tiles, N], E - e_min of each row; zeros in integer mode.
    """
    exponents = np.repeat(np.asarray(stored_exponents, np.int64).reshape(-1), config.groups)
    return _records(config.weights, np.asarray(mantissas, np.int64).reshape(-1, config.lanes), exponents,
                    record_bytes(config))


def unpack_tiles(config: Config, data: bytes):
    """Mantissas int64[tiles, N, N] and stored exponents int64[tiles, N] of a payload that `pack_tiles` made.

    The exponent of a row is taken from its last lane group.
    """
    n = config.native_dim
    mantissas, exponents = _fields(config.weights, config.lanes, data, record_bytes(config))
    return mantissas.reshape(-1, n, n), exponents.reshape(-1, n, config.groups)[..., -1]


def pack_entries(config: Config, mantissas, stored_exponents) -> bytes:
    """Payload of a message with entries of VectorRf.

    Args:
        config:           The machine.
        mantissas:        Integers [entries, N].
        stored_exponents: Integers [entries], E - e_min; zeros in integer mode.
    """
    return _records(config.activations, np.asarray(mantissas, np.int64), np.asarray(stored_exponents, np.int64),
                    entry_bytes(config))


def unpack_entries(config: Config, data: bytes):
    """Mantissas int64[entries, N] and stored exponents int64[entries] of a payload that `pack_entries` made."""
    return _fields(config.activations, config.native_dim, data, entry_bytes(config))


def marks(config: Config, mantissas):
    """Zero mark of each tile, the number of lane groups up to the last one that is not all zero.

    Args:
        config:    The machine.
        mantissas: int64[tiles, N, N].
    """
    groups = np.asarray(mantissas).reshape(-1, config.native_dim, config.groups, config.lanes)
    used = (groups != 0).any((1, 3))
    return np.where(used, np.arange(1, config.groups + 1), 0).max(1, initial=0)


def to_bits(values, bits: int) -> np.ndarray:
    """The bits uint8[n * bits] of integers [n], the lowest first."""
    return _bits(np.asarray(values, np.int64), bits).reshape(-1)


def from_bits(row, bits: int) -> np.ndarray:
    """The integers int64[n], not negative, of bits [n * bits] that `to_bits` made."""
    return np.asarray(row, np.int64).reshape(-1, bits) @ (1 << np.arange(bits))


def _records(fmt: Format, mantissas, exponents, size):
    """Bytes of records [n, mantissas]: codes, then the stored exponent, then zeros up to `size` bytes."""
    record = np.concatenate([
        _bits(encode(mantissas, fmt), fmt.code_bits).reshape(len(mantissas), -1),
        _bits(exponents, fmt.exponent_bits)], axis=1)
    return np.packbits(np.pad(record, ((0, 0), (0, 8 * size - record.shape[1]))), axis=1, bitorder="little").tobytes()


def _fields(fmt: Format, count, data, size):
    """Mantissas int64[n, count] and stored exponents int64[n] of records of `size` bytes."""
    bits = fmt.code_bits
    raw = np.frombuffer(data, np.uint8).reshape(-1, size)
    record = np.unpackbits(raw, axis=1, bitorder="little").astype(np.int64)
    end = count * bits
    codes = record[:, :end].reshape(-1, count, bits) @ (1 << np.arange(bits))
    return decode(codes, fmt), record[:, end:end + fmt.exponent_bits] @ (1 << np.arange(fmt.exponent_bits))


def _bits(values, bits):
    return (values[..., None] >> np.arange(bits) & 1).astype(np.uint8)
