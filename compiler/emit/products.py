"""Cuts the weights of a window into chains, and stores their tiles and start values."""

from collections.abc import Sequence

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


def source_of(build: Build, node: Node, kernel: Kernel, source: CodeMap) -> FromProduct:
    """Store the weights of a layer, and make the source of its chains that read a window of VectorRf."""
    layer, config = node.layer, build.config
    integer = kernel.codes.integer
    start, content = (node.value.spread(one.start) if integer else np.zeros(0, np.int64)
                      for one in (layer, build.content(layer)))
    average = isinstance(layer, Average | BlockAverage)
    parts, shared = {}, None
    for part, vector, vectors, group in cut(config, kernel, average):
        if shared is None or not average:
            shared = _store(build, node.name, kernel, part, vector, vectors, group, average)
        rows = slice(part.row, part.row + part.rows)
        biased = integer and bool(start[rows].any())
        parts[part] = Multiplied(
            part=part, vector=vector, vectors=vectors, group=group,
            product=Instruction(op=Op.MV_MUL, integer=int(integer), bias=int(biased), window=1, a=shared,
                                b=build.bias(f"{node.name}, start", content[rows]) if biased else 0))
    return FromProduct(map=source, window=kernel.window, parts=parts, out_scale=layer.p if integer else None)


def words_source_of(build: Build, node: Node, kernel: Kernel, view: NumbersView | None) -> FromWords:
    """Store the weights of a dense layer, and make the source of its chains that read a vector.

    A layer with more rows than the accumulators hold becomes several chains.
    """
    layer, config, codes = node.layer, build.config, kernel.codes
    columns, parts = config.vectors_of(node.sources[0].lanes), {}
    biased, start = codes.integer and bool(layer.start.any()), getattr(build.content(layer), "start", None)
    for part in tiling.parts(config, node.value.lanes):
        rows = kernel.matrix(config.native_dim, part.span, slice(columns))
        product = Instruction(
            op=Op.MV_MUL, integer=int(codes.integer), unsigned=int(codes.unsigned), bias=int(biased),
            a=_stored(build, f"{node.name}, weights", kernel, [rows]),
            b=build.bias(f"{node.name}, start", start[part.span]) if biased else 0)
        parts[part] = Multiplied(part=part, product=clipped(product, codes.clip))
    return FromWords(view=view, columns=columns, parts=parts, out_scale=layer.p if codes.integer else None)


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


def _store(build, name, kernel, part, vector, vectors, group, average) -> int:
    """Store the tiles of one chain, and return the address of the first one."""
    size = build.config.native_dim
    if average:
        kernel = _identity(kernel, size)
        part, vector = Part(row=0, rows=size), 0
    rows = [kernel.matrix(size, slice(row, min(row + size, part.row + part.rows)),
                          slice(vector + tile * group, vector + tile * group + vectors))
            for tile, row in enumerate(range(part.row, part.row + part.rows, size))]
    what = "one identity tile for each pixel of the average" if average else "weights"
    return _stored(build, f"{name}, {what}", kernel, rows)


def _stored(build: Build, title: str, kernel: Kernel, rows: Sequence[tuple[np.ndarray, np.ndarray | None]]) -> int:
    """Store rows of a kernel, mantissas with their exponents, and return the address of the first tile."""
    mantissas, exponents = zip(*rows, strict=True)
    if kernel.codes.integer:
        return build.integer_matrix(title, np.concatenate(mantissas))
    return build.block_matrix(title, np.concatenate(mantissas), np.concatenate(exponents))


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
