"""What each of several cores does of a step: shares of samples, of rows of parameters, and of gradients of weights."""

from collections.abc import Iterator
from math import prod

from concord.compiler.training.emitter import Span
from concord.compiler.training.graph import Product
from concord.compiler.training.tiles import block_cycles
from concord.spec.trainer.config import LANES, SUM_PLANES

SUM_WORDS = 2 * SUM_PLANES  #: Words of server memory of a row of the accumulators, with the plain lane.


def share(total: int, core: int, cores: int) -> Span:
    """The part of a row of elements that belongs to a core; the first cores have one more where it does not divide."""
    size, more = divmod(total, cores)
    return Span(core * size + min(core, more), size + (core < more))


def own_weights(layer: Product, batch: int, core: int, cores: int) -> tuple[Span, Span] | None:
    """The blocks of channels and the taps whose gradients a core makes alone, of all samples.

    Args:
        layer: The layer. Taps are its pixels if it is dense, and rows of its kernel otherwise.
        batch: Samples of all cores.
        core, cores: Number of the core, and of all.

    Returns:
        Both; None if it takes fewer cycles that each core has the gradients of all weights, of its samples, and that
        cores add them through server memory.
    """
    every = [layer.x.blocks, layer.taps if layer.dense else layer.rows]
    if cores == 1:
        return Span(0, every[0]), Span(0, every[1])
    parts = [share(count, 0, cores).count / count for count in every]
    axis = parts.index(min(parts))
    if every[axis] < cores:
        return None
    products = block_cycles(layer.taps * layer.x.blocks * -(-batch * layer.pixels // LANES), layer.outputs, 2)
    loads = batch * layer.blocks * layer.y.pixels * (3 if layer.pool else 2)
    pooling = 2 * batch * layer.blocks * layer.pixels if layer.pool else 0
    alone = max(parts[axis] * products, pooling, loads)
    exchange = layer.taps * layer.x.blocks * layer.outputs * SUM_WORDS * cores
    if alone > max(products, pooling, loads) / cores + exchange:
        return None
    spans = [Span(0, count) for count in every]
    spans[axis] = share(every[axis], core, cores)
    return spans[0], spans[1]


def boxes(
    rows: Span, counts: tuple[int, int, int], most: int
) -> Iterator[tuple[tuple[int, int, int], tuple[int, int, int]]]:
    """Cut rows that three axes count, the last one fastest, into boxes.

    Args:
        rows:   The rows.
        counts: Elements of each axis.
        most:   Most rows of a box.

    Yields:
        The first element and the number of elements of each axis.
    """
    _, taps, outputs = counts
    row, stop = rows.start, rows.start + rows.count
    while row < stop:
        left, (pair, output) = min(stop - row, most), divmod(row, outputs)
        block, tap = divmod(pair, taps)
        if not tap and not output and left >= taps * outputs:
            sizes = (left // (taps * outputs), taps, outputs)
        elif not output and left >= outputs:
            sizes = (1, min(left // outputs, taps - tap), outputs)
        else:
            sizes = (1, 1, min(left, outputs - output))
        yield (block, tap, output), sizes
        row += prod(sizes)
