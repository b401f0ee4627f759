"""Random numbers that reach the edges of their range."""

import numpy as np
from concord.golden.mvm.elements import nearest
from concord.spec.machine.config import Config
from concord.spec.numbers.formats import Format


def integers(rng: np.random.Generator, bits: int, shape) -> np.ndarray:
    """Random signed Python integers of `bits` bits, of all magnitudes, among them the ends of the range."""
    size = int(np.prod(shape))
    kept = rng.integers(1, bits + 1, size)
    values = [int.from_bytes(rng.bytes(-(-bits // 8)), "little", signed=True) for _ in range(size)]
    values = [(value & (1 << keep) - 1) - (1 << keep - 1) for value, keep in zip(values, kept.tolist(), strict=True)]
    ends = rng.random(size) < 0.1
    values = [(-(1 << bits - 1), (1 << bits - 1) - 1)[value & 1] if end else value
              for value, end in zip(values, ends, strict=True)]
    return np.array(values, object).reshape(shape)


def mantissas(rng: np.random.Generator, fmt: Format, shape) -> np.ndarray:
    """Random mantissas of a format; some are its extremes, some are zero."""
    values = rng.integers(fmt.lowest, fmt.highest + 1, shape)
    values = np.where(rng.random(shape) < 0.2, rng.choice((fmt.lowest, fmt.highest), shape), values)
    return legal(np.where(rng.random(shape) < 0.1, 0, values), fmt)


def legal(values: np.ndarray, fmt: Format) -> np.ndarray:
    """The mantissas of a format next to some integers of its range; those with a precision are of all magnitudes."""
    if not fmt.precision:
        return values
    # Halving by the value's low bits spreads the magnitudes over all exponents.
    spread = values / np.ldexp(1.0, np.abs(values) % fmt.bits)
    chosen = np.where((np.abs(values) == fmt.highest), values, spread)
    return np.clip(nearest(chosen, fmt), fmt.lowest, fmt.highest).astype(np.int64)


def numbers(rng: np.random.Generator, shape, span: int) -> np.ndarray:
    """Bit patterns of binary16 numbers of magnitudes of about 2**-span to 2**span, some of them not finite."""
    value = np.ldexp(rng.normal(size=shape), rng.integers(-span, span + 1, shape))
    bits = np.clip(value, -60000, 60000).astype(np.float16).view(np.uint16)
    return np.where(rng.random(shape) < 0.002, rng.choice(np.array([0x7C00, 0xFC00, 0x7E01], np.uint16), shape), bits)


def sparse(rng: np.random.Generator, config: Config, tiles: int) -> np.ndarray:
    """Mask bool[tiles, N, N] of elements that may be other than zero; some tiles lack their last columns, or all."""
    keep = rng.choice([0, config.native_dim // 4, config.native_dim, config.native_dim], (tiles, 1, 1))
    return np.broadcast_to(np.arange(config.native_dim) < keep, (tiles, config.native_dim, config.native_dim))
