"""Native tiles and entries of VectorRf as bytes of messages, and the zero marks of tiles."""

import numpy as np
from concord.golden.mvm import elements
from concord.spec.host.messages import entry_bytes, record_bytes
from concord.spec.machine.config import Config
from concord.spec.numbers.formats import Format


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


def _records(fmt: Format, mantissas, exponents, size):
    """Bytes of records [n, mantissas]: codes, then the stored exponent, then zeros up to `size` bytes."""
    record = np.concatenate([
        _bits(elements.encode(mantissas, fmt), fmt.code_bits).reshape(len(mantissas), -1),
        _bits(exponents, fmt.exponent_bits)], axis=1)
    return np.packbits(np.pad(record, ((0, 0), (0, 8 * size - record.shape[1]))), axis=1, bitorder="little").tobytes()


def _fields(fmt: Format, count, data, size):
    """Mantissas int64[n, count] and stored exponents int64[n] of records of `size` bytes."""
    bits = fmt.code_bits
    raw = np.frombuffer(data, np.uint8).reshape(-1, size)
    record = np.unpackbits(raw, axis=1, bitorder="little").astype(np.int64)
    end = count * bits
    codes = record[:, :end].reshape(-1, count, bits) @ (1 << np.arange(bits))
    return elements.decode(codes, fmt), record[:, end:end + fmt.exponent_bits] @ (1 << np.arange(fmt.exponent_bits))


def _bits(values, bits):
    return (values[..., None] >> np.arange(bits) & 1).astype(np.uint8)
