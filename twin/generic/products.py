"""Products of a flow as calls: of tiles that the firmware brings, or of tiles that the program loads."""

import numpy as np
from concord.spec.machine.config import Config
from concord.twin.flow.flow import Refs, Step
from concord.twin.generic.items import Items
from concord.twin.generic.values import codes


def product(items: Items, step: Step) -> str:
    """Name of the results [batch, iterations, rows] of the product of a step."""
    chain, lines, n = step.chain, items.lines, items.config.native_dim
    operand = _operand(items, step)
    if step.reads[0].value.ndim == 2 or not chain.from_entries:
        return _multiplied(items, step, operand, 0, chain.row_tiles)
    size = chain.registers.columns * n  # elements of the operand of a row tile
    parts = [_multiplied(items, step, lines.call("part", operand, first=tile * size, last=(tile + 1) * size), tile,
                         tile + 1) for tile in range(chain.row_tiles)]
    return parts[0] if len(parts) == 1 else lines.call("join", *parts)


def cannot_wrap(config: Config, weights: np.ndarray, start: np.ndarray, *, integer: bool) -> bool:
    """Whether every sum of a product fits the accumulator and is exact in float64, whatever its operand is.

    Args:
        config:  The machine.
        weights: Values [rows, elements]; in block floating point with their exponents.
        start:   Start values [rows]; zeros if there are none.
        integer: Whether the product is in integer mode.
    """
    largest = -config.activations.lowest if integer else 2.0 ** config.activations.e_max
    most = float((np.abs(weights).sum(1) * largest + np.abs(start.astype(np.float64))).max())
    return most * 2.0 ** (0 if integer else config.acc_frac) < 2.0 ** min(config.sum_bits - 1, 53)


def _operand(items, step) -> str:
    """Name of the codes [batch, iterations, elements], those of all row tiles side by side."""
    chain, config, refs = step.chain, items.config, step.reads[0]
    mode, iterations = chain.product, len(refs.value)
    if chain.from_entries:
        entries = items.taken_entries(refs, "mantissas" if mode.integer else "reals")
        return items.lines.call("reshape", entries, shape=(iterations, refs.value[0].size * config.native_dim))
    words, size = items.taken_words(refs), refs.value[0].size * config.mfu_lanes
    vectors = items.lines.call("reshape", words, shape=(iterations, size // config.native_dim, config.native_dim))
    found = codes(items.lines, config.activations, vectors, config.native_dim, integer=bool(mode.integer),
                  unsigned=bool(mode.unsigned))
    return items.lines.call("reshape", found, shape=(iterations, size))


def _multiplied(items, step, operand, begin, end) -> str:
    """Name of the results [batch, iterations, rows] of row tiles `begin` to `end` of a product."""
    chain, config, lines = step.chain, items.config, items.lines
    mode, integer = chain.product, bool(chain.product.integer)
    first, last = begin * config.native_dim, min(end * config.native_dim, chain.registers.rows)
    start = np.zeros(last - first, np.int32)
    if mode.bias:
        start = items.images.biases()[mode.b:mode.b + chain.result_words].ravel()[first:last]
    arguments = (lines.store("start", start),) if mode.bias else ()
    scale = chain.registers.out_scale if integer else config.acc_frac
    weights = _weights(items, step, begin, end, last - first)
    if isinstance(weights, np.ndarray):
        stored = lines.store("weights", weights, bits=config.weights.bits)
        if cannot_wrap(config, weights, start, integer=integer):
            return lines.call("dense", operand, stored, *arguments, **({"scale": scale} if integer else {}))
        weights = stored
    units = (0, 0) if integer else tuple(fmt.e_min - fmt.bits + 1 for fmt in (config.activations, config.weights))
    return lines.call("accumulated", operand, weights, *arguments, scale=scale, bits=config.sum_bits, units=units,
                      shift=0 if integer else config.alignment)


def _weights(items, step, begin, end, rows) -> np.ndarray | str:
    """Weights [rows, elements], or the name of [batch, rows, elements] where the program loads them."""
    refs = Refs(value=step.tiles.value[begin:end], item=step.tiles.item[begin:end])
    tiles, n = items.taken_tiles(refs, integer=bool(step.chain.product.integer)), items.config.native_dim
    elements = refs.item.shape[1] * n
    if isinstance(tiles, np.ndarray):
        return tiles.transpose(0, 2, 1, 3).reshape(-1, elements)[:rows]
    order = np.arange(refs.item.size * n * n).reshape(*refs.item.shape, n, n).transpose(0, 2, 1, 3)
    return items.lines.take(order.reshape(-1, elements)[:rows], tiles)
