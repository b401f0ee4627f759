"""Native tiles as bytes of PACKED messages, and the zero marks of tiles."""

import numpy as np
from concord.spec.config import Config
from concord.spec.messages import record_bytes


def pack_tiles(config: Config, mantissas, stored_exponents) -> bytes:
    """Payload of a PACKED message: tile by tile, row by row, lane group by lane group.

    Args:
        config:           The machine.
        mantissas:        int64[tiles, N, N].
        stored_exponents: int64[tiles, N], E - e_min of each row; zeros in integer mode.
    """
    fields = np.asarray(mantissas, np.int64).reshape(-1, config.lanes)
    exponents = np.repeat(np.asarray(stored_exponents, np.int64).reshape(-1), config.groups)
    record = np.concatenate([
        _bits(fields, config.weights.bits).reshape(len(fields), -1),
        _bits(exponents[:, None], config.weights.exponent_bits)[:, 0],
    ], axis=1)
    padded = np.pad(record, ((0, 0), (0, 8 * record_bytes(config) - record.shape[1])))
    return np.packbits(padded, axis=1, bitorder="little").tobytes()


def unpack_tiles(config: Config, data: bytes):
    """Mantissas int64[tiles, N, N] and stored exponents int64[tiles, N] of a payload that `pack_tiles` made.

    The exponent of a row is taken from its last lane group.
    """
    n, bits = config.native_dim, config.weights.bits
    raw = np.frombuffer(data, np.uint8).reshape(-1, record_bytes(config))
    record = np.unpackbits(raw, axis=1, bitorder="little").astype(np.int64)
    end = config.lanes * bits
    mantissas = record[:, :end].reshape(-1, config.lanes, bits) @ (1 << np.arange(bits))
    mantissas -= mantissas >> bits - 1 << bits
    exponents = record[:, end:end + config.weights.exponent_bits] @ (1 << np.arange(config.weights.exponent_bits))
    return mantissas.reshape(-1, n, n), exponents.reshape(-1, n, config.groups)[..., -1]


def marks(config: Config, mantissas):
    """Zero mark of each tile, the number of lane groups up to the last one that is not all zero.

    Args:
        config:    The machine.
        mantissas: int64[tiles, N, N].
    """
    groups = np.asarray(mantissas).reshape(-1, config.native_dim, config.groups, config.lanes)
    used = (groups != 0).any((1, 3))
    return np.where(used, np.arange(1, config.groups + 1), 0).max(1, initial=0)


def _bits(values, bits):
    return (values[..., None] >> np.arange(bits) & 1).astype(np.uint8)
