"""Random numbers that reach the edges of their range, and random contents of memories."""

import numpy as np
from concord.golden.host.messages import bias_message, entries_message, packed_message, write_message
from concord.golden.mvm.elements import encode, nearest
from concord.spec.isa.memories import VRFS, depth
from concord.spec.machine.config import Config
from concord.spec.numbers.formats import Format

_SPECIAL = np.array([
    0x0000, 0x8000, 0x0001, 0x8001, 0x03FF, 0x0400, 0x3BFF, 0x3C00, 0xBC00, 0x3C01, 0x4000, 0x4400, 0x5800, 0x7BFF,
    0xFBFF, 0x7C00, 0xFC00, 0x7C01, 0x7E00, 0xFE55, 0x7FFF], np.uint16)  # zeros, subnormals, powers of two, ends, NaNs


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


def block_fields(mantissas: np.ndarray, exponent: int) -> dict:
    """The fields of a block on the wires, such as an entry of VectorRf; elements with a precision are codes."""
    return {"mantissas": dict(enumerate(mantissas.tolist())), "exponent": int(exponent)}


def random_block(rng: np.random.Generator, fmt: Format, size: int) -> dict:
    """The fields of a random block of `size` elements."""
    values = mantissas(rng, fmt, size)
    return block_fields(encode(values, fmt) if fmt.precision else values, rng.integers(fmt.e_max - fmt.e_min + 1))


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


def random_words(config: Config, rng: np.random.Generator, count: int, *, wild: bool) -> np.ndarray:
    """Random words uint16[count, M], some all zero. If `wild`, words hold any bit pattern, infinities and NaNs too."""
    shape = count, config.mfu_lanes
    scale = 2.0 ** rng.integers(-3, 6, (count, 1))
    values = rng.normal(0, 1, shape) * scale
    values = np.where(rng.random((count, 1)) < 0.5, np.rint(values), values)
    bits = np.where(rng.random((count, 1)) < 0.1, 0, values).astype(np.float16).view(np.uint16)
    if wild:
        bits = np.where(rng.random(shape) < 0.05, rng.choice(_SPECIAL, shape), bits)
        bits = np.where(rng.random(shape) < 0.02, rng.integers(0, 1 << 16, shape).astype(np.uint16), bits)
    return bits


def tiles(config: Config, rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Mantissas [count, N, N] and stored exponents [count, N] of random tiles, some with whole lane groups of zeros."""
    n, fmt = config.native_dim, config.weights
    mantissas = rng.integers(fmt.lowest, fmt.highest + 1, (count, n, n))
    extreme = rng.choice((fmt.lowest, fmt.highest), (count, n, n))
    mantissas = np.where(rng.random((count, 1, 1)) < 0.2, extreme, mantissas)
    marks = rng.integers(0, config.groups + 1, (count, 1, 1)) * config.lanes
    kept = (rng.random((count, 1, 1)) < 0.5) | (np.arange(n) < marks)
    largest = fmt.e_max - fmt.e_min
    exponents = rng.integers(0, largest + 1, (count, n))
    middle = np.clip(rng.integers(-2, 3, (count, n)) - fmt.e_min, 0, largest)
    return legal(mantissas * kept, fmt), np.where(rng.random((count, 1)) < 0.7, middle, exponents)


def entries(config: Config, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Mantissas [entries, N] and stored exponents [entries] that fill VectorRf; some entries are all zero."""
    fmt, count = config.activations, config.vector_rf
    mantissas = rng.integers(fmt.lowest, fmt.highest + 1, (count, config.native_dim))
    small = mantissas // rng.choice((1, 1, 4, 32), (count, 1))
    extreme = rng.choice((fmt.lowest, fmt.highest), mantissas.shape)
    mantissas = np.where(rng.random((count, 1)) < 0.15, extreme, small) * (rng.random((count, 1)) < 0.9)
    largest = fmt.e_max - fmt.e_min
    middle = np.clip(rng.integers(-2, 3, count) - fmt.e_min, 0, largest)
    return legal(mantissas, fmt), np.where(rng.random(count) < 0.6, middle, rng.integers(0, largest + 1, count))


def biases(config: Config, rng: np.random.Generator) -> np.ndarray:
    """Random integers int64[words, M] that fill BiasRf."""
    shape = config.bias_words, config.mfu_lanes
    bits = rng.integers(0, config.bias_bits, shape)
    return np.clip(rng.integers(-1 << bits, (1 << bits) + 1), -(1 << config.bias_bits - 1),
                   (1 << config.bias_bits - 1) - 1)


def modes(config: Config, rng: np.random.Generator) -> list[bool]:
    """A random mode for each tile; neighbours mostly have the same mode."""
    cuts = np.sort(rng.integers(0, config.matrix_tiles, int(rng.integers(1, 5))))
    first = int(rng.integers(2))
    return [bool((np.searchsorted(cuts, tile, "right") + first) % 2) for tile in range(config.matrix_tiles)]


def memory_messages(config: Config, rng: np.random.Generator, tile_modes: list[bool], *, wild: bool) -> list[bytes]:
    """Messages that fill every memory."""
    messages = [write_message(config, mem, random_words(config, rng, depth(config, mem), wild=wild)) for mem in VRFS]
    if config.vector_rf:
        messages.append(entries_message(config, *entries(config, rng)))
    cuts = [t for t in range(1, config.matrix_tiles) if tile_modes[t] != tile_modes[t - 1]]
    for first, last in zip([0, *cuts], [*cuts, config.matrix_tiles], strict=True):
        messages.append(packed_message(config, *tiles(config, rng, last - first), first, integer=tile_modes[first]))
    return [*messages, bias_message(config, biases(config, rng))]
