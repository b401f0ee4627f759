"""Cuts the weights of a window into chains, and stores their tiles and start values."""

import numpy as np
from concord.compiler.emit.sources import FromProduct, FromWords, Multiplied
from concord.compiler.emit.storage import CodeMap, NumbersView
from concord.compiler.graph.kernels import Kernel
from concord.compiler.graph.network import Node
from concord.compiler.lib import bounds, tiling
from concord.compiler.lib.build import Build
from concord.compiler.lib.program import clipped
from concord.compiler.lib.tiling import Part
from concord.net.layers.average import Average, BlockAverage
from concord.spec.isa.instructions import Instruction, Op
from concord.spec.machine.config import Config


def source_of(build: Build, node: Node, kernel: Kernel, read: CodeMap | NumbersView | None) -> FromProduct | FromWords:
    """Store the weights of a layer, and make the source of its chains.

    Args:
        read: What the product reads: a window of VectorRf, a vector in words, or None for a vector in NetQ.
    """
    layer, config, integer = node.layer, build.config, kernel.codes.integer
    average, words = isinstance(layer, Average | BlockAverage), not isinstance(read, CodeMap)
    start, content = (node.value.spread(one.start) if integer else np.zeros(0, np.int64)
                      for one in (layer, build.content(layer)))
    columns, parts, shared = config.vectors_of(node.sources[0].lanes), {}, None
    for part, vector, vectors, group in (
            [(part, 0, columns, 0) for part in tiling.parts(config, node.value.lanes)] if words else
            cut(config, kernel, average)):
        if shared is None or not average:
            shared = _store(build, node.name, kernel, part, vector, vectors, group, average)
        biased = bool((start if words else start[part.span]).any())
        product = Instruction(
            op=Op.MV_MUL, integer=int(integer), unsigned=int(words and kernel.codes.unsigned), bias=int(biased),
            window=int(not words), a=shared, b=build.bias(f"{node.name}, start", content[part.span]) if biased else 0)
        parts[part] = Multiplied(part=part, vector=vector, vectors=vectors, group=group,
                                 product=clipped(product, kernel.codes.clip) if words else product)
    out_scale = layer.p if integer else None
    if words:
        return FromWords(view=read, columns=columns, parts=parts, out_scale=out_scale)
    return FromProduct(map=read, window=kernel.window, parts=parts, out_scale=out_scale)


def bound_of(config: Config, node: Node, kernel: Kernel) -> bounds.Bound:
    """The bound of a layer's sums."""
    if kernel.codes.integer:
        return bounds.integer_bound(config, node.layer.product)
    vectors = kernel.exponents.shape[-1]
    mantissas, exponents = kernel.matrix(config.native_dim, slice(None), slice(vectors))
    return bounds.block_bound(config, node.name, mantissas, exponents)


def cut(config: Config, kernel: Kernel, average: bool = False) -> list[tuple[Part, int, int, int]]:
    """The chains of a product: outputs, first native vector of a pixel, number of them, and distance of row tiles.

    A chain takes row tiles whose native vectors move by one distance from each row tile to the next. Averages have a
    chain for each native vector, which all use the same tiles.
    """
    size, outputs = config.native_dim, len(kernel.mantissas)
    seen = [kernel.vectors_seen(size, slice(row, row + size)) for row in range(0, outputs, size)]
    most = 1 if average else max(1, min(config.accumulator_rows, tiling.LARGEST) // size)
    runs, first = [], 0
    while first < len(seen):
        last = first + 1
        group = seen[last][0] - seen[first][0] if last < len(seen) else 0
        while last < len(seen) and last - first < most and _follows(seen, first, last, group):
            last += 1
        group = group if last - first > 1 else 0
        vector, vectors = seen[first][0], seen[first][1] - seen[first][0]
        rows = min(outputs, last * size) - first * size
        runs.append((Part(row=first * size, rows=rows), vector, vectors, group))
        first = last
    return runs


def _follows(seen: list[tuple[int, int]], first: int, last: int, group: int) -> bool:
    """Whether a row tile reads as many native vectors as the first one of its run, at the distance of the run."""
    (start, end), (low, high) = seen[first], seen[last]
    return group >= 0 and low - start == (last - first) * group and high - low == end - start


def _store(build: Build, name: str, kernel: Kernel, part: Part, vector: int, vectors: int, group: int,
           average: bool) -> int:
    """Store the tiles of one chain, mantissas with their exponents, and return the address of the first one."""
    size, what = build.config.native_dim, "weights"
    if average:
        kernel, what = _identity(kernel, size), "one identity tile for each pixel of the average"
        part, vector = Part(row=0, rows=size), 0
    rows = [kernel.matrix(size, slice(row, min(row + size, part.row + part.rows)),
                          slice(vector + tile * group, vector + tile * group + vectors))
            for tile, row in enumerate(range(part.row, part.row + part.rows, size))]
    mantissas, exponents = zip(*rows, strict=True)
    if kernel.codes.integer:
        return build.integer_matrix(f"{name}, {what}", np.concatenate(mantissas))
    return build.block_matrix(f"{name}, {what}", np.concatenate(mantissas), np.concatenate(exponents))


def _identity(kernel: Kernel, size: int) -> Kernel:
    """The identity tile of an average for each pixel of its window."""
    one = kernel.mantissas.max()
    mantissas = np.zeros((size, *kernel.mantissas.shape[1:3], size), kernel.mantissas.dtype)
    mantissas[np.arange(size), ..., np.arange(size)] = one
    exponents = None
    if kernel.exponents is not None:
        lane, *_, channel = np.argwhere(kernel.mantissas)[0]
        exponents = np.full((*mantissas.shape[:3], 1), kernel.exponents[lane, 0, 0, channel // size], np.int8)
    return Kernel(window=kernel.window, mantissas=mantissas, exponents=exponents, codes=kernel.codes, apart=True)
