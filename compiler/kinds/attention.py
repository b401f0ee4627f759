"""Attention.

One pass makes tiles of all keys and values. The next one computes, head by head, the scores of all queries and their
softmax, whose weights go to VectorRf, the weights of all heads side by side. At the end come products of these weights
and the values: for each native vector of the result, of all heads that have a part of it. The tiles of a head are zero
outside its channels, so that their sum is exact.
"""

from dataclasses import dataclass, replace

import numpy as np
from concord.compiler.emit.chains import OpenChain
from concord.compiler.emit.sources import FromNumbers, FromProduct, Multiplied
from concord.compiler.emit.storage import Buffer, CodeMap, CodesView, NumbersView, TensorNumbers
from concord.compiler.emit.tile_making import Building, TileLoad, together
from concord.compiler.graph.network import PlannedNetwork
from concord.compiler.graph.nodes import CompiledKind, PlannedNode, TensorCodes, Value
from concord.compiler.kinds.reductions import exponentials, shares
from concord.compiler.lib import limits, tiling
from concord.compiler.lib.limits import Reason
from concord.compiler.lib.tiling import RowPart
from concord.compiler.plan.demands import Demands, Reading
from concord.compiler.plan.planner import Planner
from concord.net.arithmetic.native_vectors import adjacent, joined
from concord.net.arithmetic.windows import Window
from concord.net.layers.attention import BlockAttention
from concord.spec.isa.instructions import Instruction, Op
from concord.spec.isa.memories import OPERAND_MEMORIES, VRFS, Mem, depth
from concord.spec.isa.operations import Operation, Stage
from concord.spec.machine.config import Config

_ADDED, _MULTIPLIED = OPERAND_MEMORIES[Stage.ADD], OPERAND_MEMORIES[Stage.MUL]
_PIXEL = Window(size=(1, 1))
#: Memories of keys and of values: those that the softmax beside them does not write.
_KEYS, _VALUES = Mem.INITIAL_VRF, _MULTIPLIED[1]
#: Largest share of these memories that keys or values take; larger ones lie wherever there is room.
_SHARE = 0.75
#: Words of scores of one head that each memory must hold, so that two heads take turns.
_SPACIOUS = 4


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Heads:
    """Which channels each head has, and the native vectors in which they lie.

    Attributes:
        config: Configuration of the machine.
        count:  Number of heads.
        size:   Channels of a head.
    """

    config: Config
    count: int
    size: int

    def vectors(self, head: int) -> range:
        """The native vectors of a pixel in which a head has channels."""
        n = self.config.native_dim
        return range(head * self.size // n, -(-(head + 1) * self.size // n))

    def lanes(self, head: int, vector: int) -> range:
        """The lanes of a pixel that a head has in a native vector."""
        n = self.config.native_dim
        return range(max(head * self.size, vector * n), min((head + 1) * self.size, (vector + 1) * n))

    def runs(self) -> list[tuple[range, range]]:
        """Runs of native vectors that have channels of the same heads, each with these heads."""
        found: list[tuple[range, range]] = []
        for vector in range(-(-self.count * self.size // self.config.native_dim)):
            heads = [head for head in range(self.count) if vector in self.vectors(head)]
            own = range(heads[0], heads[-1] + 1)
            if found and found[-1][1] == own:
                found[-1] = range(found[-1][0].start, vector + 1), own
            else:
                found.append((range(vector, vector + 1), own))
        return found


@dataclass(frozen=True, kw_only=True, slots=True)
class AttentionReading(Reading):
    """What an attention reads: the codes of its queries (`map`), its keys (`view`), and

    Attributes:
        values:  Numbers of its values.
        weights: Codes of the weights of all heads, each of which begins a native vector.
    """

    values: NumbersView
    weights: CodeMap


class AttentionKind(CompiledKind):
    """Attention, on machines that make tiles of what they compute."""

    def limits(self, layer: BlockAttention, config, *, images):
        found = limits.reductions(config) + limits.block_operands(layer, config)
        if not config.dram_words:
            found.append(Reason(
                sentence="it multiplies two computed tensors, and only machines with Dram make tiles of what they "
                         "compute: set dram_words in a machine of your own, or choose vision_dram",
                attribute="dram_words", needed=1, available=0))
        for what, channels in (("queries and keys", layer.queries[0]), ("values", layer.values[0])):
            size = channels // layer.heads
            if layer.heads > 1 and size % config.mfu_lanes:
                found.append(Reason(
                    sentence=f"each head has {size} channels of {what}, which is no whole number of words of "
                             f"{config.mfu_lanes}: give each head a multiple of {config.mfu_lanes} channels"))
        if layer.places > config.accumulator_rows:
            found.append(limits.accumulator_rows(config, layer.places, f"its {layer.places} keys"))
        return found

    def made(self, network: PlannedNetwork, layer, sources):
        for source in sources:
            if source.lanes > source.shape[0]:
                network.problem(layer, "it reads a tensor whose channels do not follow each other: put a layer with "
                                       "weights between it and a concatenation")
        return network.new(layer)

    def demand(self, demands: Demands, node):
        config, layer, (queries, keys, values) = demands.config, node.layer, node.sources
        codes = TensorCodes(integer=False)
        weights = Value(
            name=f"{node.name}, weights", shape=(layer.heads * layer.places, *node.value.shape[1:]),
            places=joined([adjacent(layer.places)] * layer.heads, config.native_dim))
        one = CodeMap.of(config, weights, codes)
        one.read_by(_PIXEL, False)
        demands.maps.append(one)
        demands.readings[node.name] = AttentionReading(
            map=demands.codes_of(queries, codes, _PIXEL, False), weights=one,
            view=_whole_vectors(demands, keys, _KEYS), values=_whole_vectors(demands, values, _VALUES))

    def plan(self, planner: Planner, node):
        config, layer, reading = planner.build.config, node.layer, planner.demands.readings[node.name]
        keys, values = (Heads(config=config, count=layer.heads, size=shape[0] // layer.heads)
                        for shape in (layer.keys, layer.values))
        planner.begin_pass(replace(node.sources[1], shape=(layer.keys[0], 1, 1)))
        first = [self._keys(planner, node, keys, head) for head in range(layer.heads)]
        parts = self._values(planner, node, values)

        scores = FromProduct(map=reading.map, window=_PIXEL, parts={}, out_scale=None)
        planner.bring(OpenChain(source=scores))
        planner.begin_pass(node.value)
        mask = _mask(planner, node)
        rooms = _rooms(planner, node)
        for head, tile in enumerate(first):
            source = replace(scores, parts=_scored(keys, head, layer.places, tile))
            self._weights(planner, node, source, head, mask, rooms[head % len(rooms)])
        source = FromProduct(map=reading.weights, window=_PIXEL, parts=parts, out_scale=None)
        planner.complete(node, OpenChain(source=source), tuple(parts))
        planner.build.bounds += _bounds(config, node, keys)

    @staticmethod
    def _keys(planner: Planner, node: PlannedNode, heads: Heads, head: int) -> int:
        """Let chains make tiles of the keys of a head, whose rows are positions; returns the first tile."""
        config, places, view = heads.config, node.layer.places, planner.demands.readings[node.name].view
        n, vectors = config.native_dim, heads.vectors(head)
        tile = _tiles(planner, f"{node.name}, keys of head {head}", places, len(vectors))
        loads = [
            TileLoad(tile=tile + row * len(vectors) + column, word=row * n * view.stride + _word(config, lanes),
                     rows=len(lanes), vectors=min(n, places - row * n), tiles=1, step=0, transposed=False)
            for row in range(-(-places // n)) for column, vector in enumerate(vectors)
            for lanes in [heads.lanes(head, vector)]]
        planner.append(node, Building(source=FromNumbers(view=view), loads=together(loads, config.vector_words)))
        return tile

    @staticmethod
    def _values(planner: Planner, node: PlannedNode, heads: Heads) -> dict[RowPart, Multiplied]:
        """Let chains make tiles of all values, whose rows are channels; returns the parts of their product."""
        config, layer, view = heads.config, node.layer, planner.demands.readings[node.name].values
        n, each, found, loads = config.native_dim, -(-layer.places // config.native_dim), {}, []
        for vectors, own in heads.runs():
            columns = len(own) * each
            rows = min(len(vectors) * n, layer.values[0] - vectors.start * n)
            tile = _tiles(planner, f"{node.name}, values of heads {own.start} to {own.stop - 1}", rows, columns)
            loads += [
                TileLoad(tile=tile + row * columns + (head - own.start) * each + column,
                         word=column * n * view.stride + _word(config, lanes), rows=len(lanes),
                         vectors=min(n, layer.places - column * n), tiles=1, step=0, transposed=True)
                for row, vector in enumerate(vectors) for head in own for lanes in [heads.lanes(head, vector)]
                for column in range(each)]
            part = RowPart(row=vectors.start * n, rows=rows)
            found[part] = Multiplied(part=part, vector=own.start * each, vectors=columns,
                                     product=Instruction(op=Op.MV_MUL, a=tile, window=1))
        planner.append(node, Building(source=FromNumbers(view=view), loads=together(loads, config.vector_words)))
        return found

    @staticmethod
    def _weights(planner: Planner, node: PlannedNode, source: FromProduct, head: int, mask: NumbersView | None,
                 room: tuple[NumbersView, ...]):
        """The chains of the scores of a head, of their exponentials, and of the weights."""
        layer, reading, (part,) = node.layer, planner.demands.readings[node.name], source.parts
        scores, largest, powers, factor = room
        chain = OpenChain(source=source)
        if mask is not None:
            chain.apply(Operation.VV_ADD, 0, mask if len(layer.mask) == 1 else replace(
                mask, word=head * layer.positions * mask.numbers.words))
        chain.write(scores)
        chain.apply(Operation.V_LARGEST, 0 if mask is None else 1)
        chain.write(largest)
        planner.append(node, chain, (part,))

        planner.append(node, exponentials(scores, largest, powers, factor), (part,))
        chain = shares(powers, factor)
        vector = head * planner.build.config.vectors_of(layer.places)
        chain.write(CodesView(codes=reading.weights.codes, map=reading.weights, vector=vector))
        planner.append(node, chain, (part,))


def _whole_vectors(demands: Demands, value: Value, mem: Mem | None) -> NumbersView:
    """Numbers of a tensor of which each pixel begins a native vector, so that tiles can be made of them.

    They lie in a memory if they fit there, else in any one.
    """
    words = demands.config.vectors_of(value.lanes) * demands.config.vector_words
    mem = mem if value.pixels * words <= _SHARE * depth(demands.config, mem) else None
    for view in demands.sinks[value.name].numbers:
        if view.buffer.mem is mem and (view.numbers.words, view.buffer.align) == (words, demands.config.vector_words):
            return view
    numbers = TensorNumbers(value=value, words=words, buffer=Buffer(
        mem=mem, name=f"{value.name or 'network input'}, numbers", size=value.pixels * words,
        align=demands.config.vector_words))
    demands.numbers.append(numbers)
    demands.sinks[value.name].numbers.append(NumbersView(numbers=numbers))
    return demands.sinks[value.name].numbers[-1]


def _tiles(planner: Planner, name: str, rows: int, columns: int) -> int:
    """The first of the tiles of a matrix that the program makes; the host brings zeros."""
    n = planner.build.config.native_dim
    rows = -(-rows // n) * n
    return planner.build.matrix(name, np.zeros((rows, columns * n), planner.build.config.weights.dtype),
                                np.full((rows, columns), planner.build.config.weights.e_min, np.int8))


def _word(config: Config, lanes: range) -> int:
    """The word of a pixel in which lanes begin."""
    return lanes.start // config.mfu_lanes


def _scored(heads: Heads, head: int, places: int, tile: int) -> dict[RowPart, Multiplied]:
    """The product of queries and the keys of a head."""
    part, vectors = RowPart(row=0, rows=places), heads.vectors(head)
    return {part: Multiplied(part=part, vector=vectors.start, vectors=len(vectors),
                             product=Instruction(op=Op.MV_MUL, a=tile, window=1))}


def _mask(planner: Planner, node: PlannedNode) -> NumbersView | None:
    """The numbers that are added to the scores, query by query, and head by head if heads have their own."""
    layer, config = node.layer, planner.build.config
    if layer.mask is None:
        return None
    words, content = config.words_of(layer.places), planner.build.content(layer).mask
    masks, content = (tiling.padded(one, words * config.mfu_lanes, 2).reshape(-1) for one in (layer.mask, content))
    place = planner.constant(_ADDED[0], masks, content, f"{node.name}, mask")
    value = Value.of(f"{node.name}, mask", (layer.places, *node.value.shape[1:]))
    return NumbersView(numbers=TensorNumbers(value=value, words=words, buffer=Buffer(
        mem=place.mem, address=place.address, size=place.words, name=f"{node.name}, mask", kept=True)))


def _rooms(planner: Planner, node: PlannedNode) -> list[tuple[NumbersView, ...]]:
    """Numbers for scores, their largest one, exponentials, and the reciprocals of their sums, of one head.

    If there is room for two heads, they take turns, so that one is multiplied while the softmax of the other runs.
    """
    config, layer = planner.build.config, node.layer
    value = Value.of(f"{node.name}, scores", (layer.places, *node.value.shape[1:]))
    spacious = _SPACIOUS * layer.positions * config.words_of(layer.places) <= min(depth(config, mem) for mem in VRFS)
    return [(planner.strip(value, frozenset(_ADDED[:1])), planner.strip_in(_ADDED[0], value),
             planner.strip(value, frozenset({_MULTIPLIED[0]})), planner.strip_in(_MULTIPLIED[0], value))
            for _ in range(min(layer.heads, 1 + spacious))]


def _bounds(config: Config, node: PlannedNode, heads: Heads) -> list[tiling.Bound]:
    """Bounds of the sums of both products, for tiles of the largest mantissas and exponents.

    Weights of values are 1 at most, whose exponent is 1.
    """
    weights, found = config.weights, []
    for what, columns, least in (
            ("scores", max(len(heads.vectors(head)) for head in range(heads.count)), 0),
            ("values", config.vectors_of(node.layer.places), max(0, config.activations.e_max - 1))):
        mantissas = np.full((1, columns * config.native_dim), -weights.lowest, np.int64)
        exponents = np.full((1, columns), weights.e_max, np.int64)
        bound = tiling.block_bound(config, f"{node.name}, {what}", mantissas, exponents)
        found.append(replace(bound, bits=bound.bits - least, clamped=0.0))
    return found
