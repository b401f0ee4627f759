"""Layers that multiply: dense layers, convolutions and averages, in integers and in block floating point.

A chain computes the product, applies the constants of the layer's arithmetic, and its activation function.
"""

from dataclasses import replace
from math import prod

import numpy as np
from concord.compiler.emit.chains import OpenChain
from concord.compiler.emit.sources import FromPool, FromProduct, FromWords, Multiplied
from concord.compiler.emit.storage import CodeMap, NumbersView
from concord.compiler.graph import kernels
from concord.compiler.graph.kernels import Kernel
from concord.compiler.graph.network import PlannedNetwork
from concord.compiler.graph.nodes import CompiledKind, PlannedNode, TensorCodes, Value
from concord.compiler.lib import limits, tiling
from concord.compiler.lib.build import ModelBuild
from concord.compiler.lib.program import clipped
from concord.compiler.lib.tiling import RowPart
from concord.compiler.plan.demands import Demands, Reading
from concord.compiler.plan.planner import Planner
from concord.golden.lib import float16
from concord.net.layers.convolution import BlockConv
from concord.net.layers.dense import Dense
from concord.net.layers.joins import Add
from concord.net.layers.pooling import Average, BlockAverage
from concord.spec.isa.instructions import Instruction, Op
from concord.spec.isa.operations import Operation, next_mfu, position
from concord.spec.machine.config import Config
from concord.spec.numbers.activation import Activation


class ProductKind(CompiledKind):
    """Products in block floating point, to which the bias is added."""

    def operations(self, network: PlannedNetwork, node: PlannedNode) -> dict[str, Operation]:
        """What is applied to a product before its activation function, by the attribute that holds the constants."""
        return {"bias": Operation.VV_ADD}

    def operands(self, layer, config):
        """Each reason why the weights, or the codes of the input, do not fit a machine."""
        return limits.block_operands(layer, config)

    def limits(self, layer, config, *, images):
        found = self.operands(layer, config)
        if not images:
            found += [] if isinstance(layer, Dense) else limits.adjacent_blocks(layer)
            return found + limits.columns(config, config.vectors_of(layer.inputs)) + limits.product_rows(
                config, layer.outputs)
        if config.accumulator_rows < config.native_dim:
            vector = f"a native vector of {config.native_dim}"
            found.insert(0, limits.accumulator_rows(config, config.native_dim, vector))
        return found

    def made(self, network: PlannedNetwork, layer, sources):
        if kernels.alone(layer, sources[0]):
            return Value(name=layer.name, shape=layer.made, places=sources[0].places)
        return network.new(layer)

    def objections(self, network: PlannedNetwork, layer, source):
        if source.in_words:
            return []
        return kernels.problems(layer, source, network.config.native_dim, network.patched(source))

    def computed(self, network: PlannedNetwork, node):
        last = -1
        for operation in self.operations(network, node).values():
            last = position(operation.stage, next_mfu(operation.stage, last))
        return last

    def minus_zero(self, network: PlannedNetwork, node):
        return not isinstance(node.layer, BlockConv) or bool((node.layer.bias == float16.SIGN).any())

    def demand(self, demands: Demands, node):
        kernel, source = demands.network.kernel(node), node.sources[0]
        if source.in_words:
            reading = Reading(kernel=kernel, view=_words(demands, node, kernel.codes))
        else:
            code_map = demands.codes_of(source, kernel.codes, kernel.window, kernel.apart)
            reading = Reading(kernel=kernel, map=code_map)
        demands.readings[node.name] = reading

    def plan(self, planner: Planner, node):
        reading, build = planner.demands.readings[node.name], planner.build
        source = source_of(build, node, reading.kernel, reading.map or reading.view)
        chain, real = OpenChain(source=source), build.content(node.layer)
        for what, operation in self.operations(planner.demands.network, node).items():
            planner.operate(chain, operation, node, getattr(node.layer, what), what, getattr(real, what))
        chain.activate(node.activation)
        planner.begin(node, chain, tuple(source.parts))
        build.bounds.append(bound_of(build.config, node, reading.kernel))


class IntegerProductKind(ProductKind):
    """Products of integers, which are multiplied by S; then T is added, unless it is zero and no one sees its sign."""

    def operations(self, network: PlannedNetwork, node):
        scale = {"scale": Operation.VV_MUL}
        return scale if _adds_nothing(network, node) else scale | {"offset": Operation.VV_ADD}

    def operands(self, layer, config):
        return limits.integer_operands(layer, config, [layer.weights]) + limits.start_values(layer.start, config)

    def minus_zero(self, network: PlannedNetwork, node):
        return bool((node.layer.offset == float16.SIGN).any())


class CodesOfResults(ProductKind):
    """What both kinds of quantised results share: their codes lie in VectorRf, in networks without images, too."""

    def limits(self, layer, config, *, images):
        found = super().limits(layer, config, images=True)
        return found if images else found + limits.entries(layer, config)

    def made(self, network: PlannedNetwork, layer, sources):
        return replace(sources[0], name=layer.name)

    def demand(self, demands: Demands, node):
        kernel = demands.network.kernel(node)
        codes = demands.codes_of(node.sources[0], kernel.codes, kernel.window, kernel.apart)
        demands.readings[node.name] = Reading(kernel=kernel, map=codes)


class ResultKind(CodesOfResults, IntegerProductKind):
    """Quantised results of products: their codes are read as numbers, which are multiplied by S; then T is added."""

    def operands(self, layer, config):
        return limits.integer_operands(layer, config, [layer.weights])

    def plan(self, planner: Planner, node: PlannedNode):
        chain, real, shift = _read_codes(planner, node), planner.build.content(node.layer), 2.0**-node.layer.p
        for what, operation in self.operations(planner.demands.network, node).items():
            values, content = getattr(node.layer, what), getattr(real, what)
            if what == "scale":  # the codes are not shifted, so that S is
                values, content = _shifted(values, shift), _shifted(content, shift)
            planner.operate(chain, operation, node, values, what, content)
        chain.activate(node.activation)
        planner.begin(node, chain)


class BlockAverageKind(ProductKind):
    """Averages in block floating point: sums of pixels, which are multiplied by S."""

    def operations(self, network: PlannedNetwork, node):
        return {"scale": Operation.VV_MUL}

    def minus_zero(self, network: PlannedNetwork, node):
        return True


class BlockResultKind(CodesOfResults, BlockAverageKind):
    """Quantised results in block floating point, which are read as numbers."""

    def operations(self, network: PlannedNetwork, node):
        return {}

    def plan(self, planner: Planner, node: PlannedNode):
        chain = _read_codes(planner, node)
        chain.activate(node.activation)
        planner.begin(node, chain)


def _read_codes(planner: Planner, node: PlannedNode) -> OpenChain:
    """A chain that begins with the codes of a quantised result as numbers."""
    reading = planner.demands.readings[node.name]
    return OpenChain(source=FromPool(source=reading.map, window=node.layer.window, codes=reading.kernel.codes))


def _shifted(values: np.ndarray, shift: float) -> np.ndarray:
    """Binary16 patterns or real numbers, multiplied by a power of two."""
    if values.dtype == np.uint16:
        return float16.to_bits(float16.to_real(values) * shift)
    return values * shift


def _adds_nothing(network: PlannedNetwork, node: PlannedNode) -> bool:
    """Whether the offset T of an integer layer can be skipped: it is zero, and no reader sees its sign."""
    if node.layer.offset.any():
        return False
    if node.activation is Activation.RELU:
        return True
    adds = network.consumers(node.value)
    if len(adds) != 1 or not isinstance(adds[0][0].layer, Add) or adds[0][0].layer.operation is not Operation.VV_ADD:
        return False
    makers = [network.maker(source) for source in adds[0][0].sources if source is not node.value]
    return adds[0][0].activation is Activation.RELU or not any(
        maker.kind.minus_zero(network, maker) for maker in makers)


def _words(demands: Demands, node: PlannedNode, codes: TensorCodes) -> NumbersView | None:
    """The words that a product reads: the tensor's own numbers, or scaled ones; None for those in NetQ."""
    source, scaled = node.sources[0], codes.scale is not None or codes.offset is not None
    if not scaled:
        columns = demands.config.vectors_of(source.lanes)
        once = len(tiling.parts(demands.config, node.value.lanes, columns, demands.most_tiles)) == 1
        return None if once and demands.from_net(source) else demands.numbers_of(source)
    sinks = demands.sinks[source.name]
    found = next((view for view in sinks.codes
                  if view.numbers.value is source and view.codes.scales_as(codes)), None)
    if found is None:
        found = NumbersView(numbers=demands.new_numbers(source, source.read), codes=codes)
        sinks.codes.append(found)
    return found


def source_of(build: ModelBuild, node: PlannedNode, kernel: Kernel,
              read: CodeMap | NumbersView | None) -> FromProduct | FromWords:
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
            [(part, 0, columns, 0) for part in tiling.parts(config, node.value.lanes, columns, build.most_tiles)]
            if words else cut(config, kernel, average, build.most_tiles)):
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


def bound_of(config: Config, node: PlannedNode, kernel: Kernel) -> tiling.Bound:
    """The bound of a layer's sums."""
    if kernel.codes.integer:
        return tiling.integer_bound(config, node.layer.product)
    vectors = kernel.exponents.shape[-1]
    mantissas, exponents = kernel.matrix(config.native_dim, slice(None), slice(vectors))
    return tiling.block_bound(config, node.name, mantissas, exponents)


def cut(config: Config, kernel: Kernel, average: bool = False,
        tiles: int | None = None) -> list[tuple[RowPart, int, int, int]]:
    """The chains of a product: outputs, first native vector of a pixel, number of them, and distance of row tiles.

    A chain takes row tiles whose native vectors move by one distance from each row tile to the next. Averages have a
    chain for each native vector, which all use the same tiles.

    Args:
        tiles: Most tiles of a chain, as far as one row of tiles has no more; None for any number.
    """
    size, outputs = config.native_dim, len(kernel.mantissas)
    seen = [kernel.vectors_seen(size, slice(row, row + size)) for row in range(0, outputs, size)]
    limit = 1 if average else max(1, min(config.accumulator_rows, tiling.LARGEST) // size)
    runs, first = [], 0
    while first < len(seen):
        last = first + 1
        group = seen[last][0] - seen[first][0] if last < len(seen) else 0
        row = (seen[first][1] - seen[first][0]) * prod(kernel.window.size)
        most = limit if tiles is None else min(limit, max(1, tiles // row))
        while last < len(seen) and last - first < most and _follows(seen, first, last, group):
            last += 1
        group = group if last - first > 1 else 0
        vector, vectors = seen[first][0], seen[first][1] - seen[first][0]
        rows = min(outputs, last * size) - first * size
        runs.append((RowPart(row=first * size, rows=rows), vector, vectors, group))
        first = last
    return runs


def _follows(seen: list[tuple[int, int]], first: int, last: int, group: int) -> bool:
    """Whether a row tile reads as many native vectors as the first one of its run, at the distance of the run."""
    (start, end), (low, high) = seen[first], seen[last]
    return group >= 0 and low - start == (last - first) * group and high - low == end - start


def _store(build: ModelBuild, name: str, kernel: Kernel, part: RowPart, vector: int, vectors: int, group: int,
           average: bool) -> int:
    """Store the tiles of one chain, mantissas with their exponents, and return the address of the first one."""
    size, what = build.config.native_dim, "weights"
    if average:
        kernel, what = _identity(kernel, size), "one identity tile for each pixel of the average"
        part, vector = RowPart(row=0, rows=size), 0
    rows = [kernel.matrix(size, slice(row, min(row + size, part.row + part.rows)),
                          slice(vector + tile * group, vector + tile * group + vectors))
            for tile, row in enumerate(range(part.row, part.row + part.rows, size))]
    mantissas, exponents = zip(*rows, strict=True)
    return build.matrix(f"{name}, {what}", np.concatenate(mantissas),
                        None if kernel.codes.integer else np.concatenate(exponents))


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
