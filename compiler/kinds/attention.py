"""Attention.

A pass computes, head by head, the scores of all queries, their exponentials, which go to VectorRf side by side, and the
reciprocals of the sums. For each native vector of the result follows the product of the exponentials and the values of
all heads that have a part of it, times the reciprocals. The tiles of a head are zero outside its channels, so that the
sum is exact. The same pass makes the tiles, each before its product, and heads take turns; where memories have no room
for two heads, a pass before it makes all tiles.
"""

from dataclasses import dataclass, replace

import numpy as np
from concord.compiler.emit.chains import OpenChain
from concord.compiler.emit.sources import FromNumbers, FromProduct
from concord.compiler.emit.storage import Buffer, CodeMap, CodesView, NumbersView, TensorNumbers
from concord.compiler.graph.network import PlannedNetwork
from concord.compiler.graph.nodes import CompiledKind, PlannedNode, TensorCodes, Value
from concord.compiler.kinds.attention_tiles import Heads, key_tiles, value_tiles
from concord.compiler.kinds.reductions import exponentials, reciprocals
from concord.compiler.lib import limits, tiling
from concord.compiler.lib.limits import Reason
from concord.compiler.lib.tiling import RowPart
from concord.compiler.plan.demands import Demands, Reading
from concord.compiler.plan.planner import Planner
from concord.golden.lib.float16 import to_bits
from concord.net.arithmetic.native_vectors import adjacent, joined
from concord.net.arithmetic.windows import Window
from concord.net.layers.attention import BlockAttention
from concord.spec.isa.memories import OPERAND_MEMORIES, VRFS, Mem, depth
from concord.spec.isa.operations import Operation, Stage, position
from concord.spec.machine.config import Config

_ADDED, _MULTIPLIED = OPERAND_MEMORIES[Stage.ADD], OPERAND_MEMORIES[Stage.MUL]
_PIXEL = Window(size=(1, 1))
#: Memories of keys and of values: those that the softmax beside them does not write.
_KEYS, _VALUES = Mem.INITIAL_VRF, _MULTIPLIED[1]
#: Largest share of these memories that keys or values take; larger ones lie wherever there is room.
_SHARE = 0.75
#: Words of scores of one head that each memory must hold, so that two heads take turns.
_SPACIOUS = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class AttentionReading(Reading):
    """What an attention reads: the codes of its queries (`map`), its keys (`view`), and

    Attributes:
        values: Numbers of its values.
        powers: For each head, its group and the codes of the exponentials of this group side by side, of which those of
            each head begin a native vector.
    """

    values: NumbersView
    powers: list[tuple[range, CodeMap]]


class AttentionKind(CompiledKind):
    """Attention, on machines that make tiles of what they compute."""

    takes_turns = True

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
        if layer.key_positions > config.accumulator_rows:
            found.append(limits.accumulator_rows(config, layer.key_positions, f"its {layer.key_positions} keys"))
        return found

    def made(self, network: PlannedNetwork, layer, sources):
        for source in sources:
            if source.lanes > source.shape[0]:
                network.problem(layer, "it reads a tensor whose channels do not follow each other: put a layer with "
                                       "weights between it and a concatenation")
        return network.new(layer)

    def computed(self, network: PlannedNetwork, node):
        return position(Stage.MUL, 0)

    def demand(self, demands: Demands, node):
        config, layer, (queries, keys, values) = demands.config, node.layer, node.sources
        codes = TensorCodes(integer=False)
        powers = []
        for group in Heads(config=config, count=layer.heads, size=layer.values[0] // layer.heads).groups():
            one = CodeMap.of(config, Value(
                name=f"{node.name}, powers", shape=(len(group) * layer.key_positions, *node.value.shape[1:]),
                places=joined([adjacent(layer.key_positions)] * len(group), config.native_dim)), codes)
            one.read_by(_PIXEL, False)
            demands.maps.append(one)
            powers += [(group, one)] * len(group)
        demands.readings[node.name] = AttentionReading(
            map=demands.codes_of(queries, codes, _PIXEL, False), powers=powers,
            view=_whole_vectors(demands, keys, _KEYS), values=_whole_vectors(demands, values, _VALUES))

    def plan(self, planner: Planner, node):
        config, layer, reading = planner.build.config, node.layer, planner.demands.readings[node.name]
        keys, values = (Heads(config=config, count=layer.heads, size=shape[0] // layer.heads)
                        for shape in (layer.keys, layer.values))
        tiles = [key_tiles(planner, reading.view, keys, head, layer.key_positions, node.name)
                 for head in range(layer.heads)]
        products = list(value_tiles(planner, reading.values, values, layer.key_positions, node.name))
        parts = {one.part: one for _, one, _ in products}
        spacious = _spacious(config, layer)
        if not spacious:
            planner.begin_pass(replace(node.sources[1], shape=(layer.keys[0], 1, 1)))
            for *_, building in tiles + products:
                planner.append(node, building)

        scores = FromProduct(map=reading.map, window=_PIXEL, parts={}, out_scale=None)
        planner.bring(OpenChain(source=scores))
        planner.begin_pass(node.value)
        factors, mask = planner.strip_in(_MULTIPLIED[0], node.value), _mask(planner, node)
        rooms = [_room(planner, node) for _ in range(min(layer.heads, 1 + spacious))]
        result = OpenChain(source=FromProduct(map=reading.powers[0][1], window=_PIXEL, parts=parts, out_scale=None))
        result.apply(Operation.VV_MUL, 0, factors)
        planner.complete(node, result, tuple(parts))
        made = planner.passes[-1]
        made.whole = True
        spread = any(len(own) > 1 for own, *_ in products) or any(  # a held operand moves as other words of its chain
            isinstance(step.at, NumbersView) for step in result.steps[1:])
        unused = [room[-1].numbers for room in rooms[1:]] if spread else [factors.numbers]
        made.strips = [strip for strip in made.strips if strip not in unused]
        if spread:  # the reciprocals of one head at a time lie anywhere, until they are spread
            rooms = [(*room[:-1], rooms[0][-1]) for room in rooms]
            rooms[0][-1].numbers.avoid = frozenset()
        at = next(number for number, one in enumerate(made.chains) if one.chain is result)
        results, after = made.chains[at], made.chains[at + 1:]
        del made.chains[at:]

        def load(head: int):
            """Add the chains that make tiles for the results whose last head is this one."""
            for own, _, building in products:
                if spacious and own.stop == head + 1:
                    planner.append(node, building)

        def finish(head: int):
            """Add the results whose last head is this one."""
            chain = result if spread else _held(result, rooms[head % len(rooms)][-1])
            chain = replace(chain, source=replace(result.source, map=reading.powers[head][1]))
            made.chains.extend(replace(results, chain=chain, parts=(one.part,)) for own, one, _ in products
                               if own.stop == head + 1)

        late = len(rooms) - 1
        for head, (score, building) in enumerate(tiles):
            source, room = replace(scores, parts={score.part: score}), rooms[head % len(rooms)]
            if spacious:
                planner.append(node, building)
            self._scores(planner, node, source, head, mask, room)
            load(head - late)
            self._powers(planner, node, source, head, room)
            if spread:
                _spread(planner, node, values.words(head), room[-1], factors)
            finish(head - late)
        if late:
            load(layer.heads - 1)
            finish(layer.heads - 1)
        made.chains += after
        planner.build.bounds += _bounds(config, node, keys)

    @staticmethod
    def _scores(planner: Planner, node: PlannedNode, source: FromProduct, head: int, mask: NumbersView | None,
                room: tuple[NumbersView, ...]):
        """The chain of the scores of a head, and of the largest one of each query."""
        layer, (scores, largest, _), chain = node.layer, room, OpenChain(source=source)
        if mask is not None:
            chain.apply(Operation.VV_ADD, 0, mask if len(layer.mask) == 1 else replace(
                mask, word=head * layer.positions * mask.numbers.words))
        chain.write(scores)
        chain.apply(Operation.V_LARGEST, 0 if mask is None else 1)
        chain.write(largest)
        planner.append(node, chain, tuple(source.parts))

    @staticmethod
    def _powers(planner: Planner, node: PlannedNode, source: FromProduct, head: int, room: tuple[NumbersView, ...]):
        """The chain of the exponentials of a head, and of the reciprocals of their sums."""
        layer, reading, (scores, largest, factor) = node.layer, planner.demands.readings[node.name], room
        chain, share = exponentials(scores, largest), np.array([layer.share])
        planner.hold(chain, Operation.VV_MUL, to_bits(share), share if planner.build.real else to_bits(share),
                     f"{node.name}, share")
        group, one = reading.powers[head]
        vector = (head - group.start) * planner.build.config.vectors_of(layer.key_positions)
        chain.write(CodesView(codes=one.codes, map=one, vector=vector))
        reciprocals(chain, factor)
        planner.append(node, chain, tuple(source.parts))


def _whole_vectors(demands: Demands, value: Value, wanted: Mem) -> NumbersView:
    """Numbers of a tensor of which each pixel begins a native vector, so that tiles can be made of them.

    They lie in a memory if they fit there, else in any one.
    """
    words = demands.config.vectors_of(value.lanes) * demands.config.vector_words
    mem = wanted if value.pixels * words <= _SHARE * depth(demands.config, wanted) else None
    for view in demands.sinks[value.name].numbers:
        if view.buffer.mem is mem and (view.numbers.words, view.buffer.align) == (words, demands.config.vector_words):
            return view
    numbers = TensorNumbers(value=value, words=words, buffer=Buffer(
        mem=mem, name=f"{value.name or 'network input'}, numbers", size=value.pixels * words,
        align=demands.config.vector_words))
    demands.numbers.append(numbers)
    demands.sinks[value.name].numbers.append(NumbersView(numbers=numbers))
    return demands.sinks[value.name].numbers[-1]


def _spread(planner: Planner, node: PlannedNode, words: range, factor: NumbersView, factors: NumbersView):
    """Chains that write the reciprocals of a head to all lanes of its channels.

    They are positive, and zeros stand in lanes of their word that no key has.
    """
    for word in words:
        chain = OpenChain(source=FromNumbers(view=replace(factor, word=factor.numbers.words - 1)))
        chain.apply(Operation.V_LARGEST, 0)
        chain.write(replace(factors, word=word))
        planner.append(node, chain, (RowPart(row=0, rows=planner.build.config.mfu_lanes),))


def _held(result: OpenChain, factor: NumbersView) -> OpenChain:
    """The chain of the result of a head, whose words are all multiplied by one number of each position."""
    first = replace(result.steps[0], at=replace(factor, held=True))
    return replace(result, steps=[first, *result.steps[1:]], stride=factor.stride)


def _mask(planner: Planner, node: PlannedNode) -> NumbersView | None:
    """The numbers that are added to the scores, query by query, and head by head if heads have their own."""
    layer, config = node.layer, planner.build.config
    if layer.mask is None:
        return None
    words, content = config.words_of(layer.key_positions), planner.build.content(layer).mask
    masks, content = (tiling.padded(one, words * config.mfu_lanes, 2).reshape(-1) for one in (layer.mask, content))
    slot = planner.constant(_ADDED[0], masks, content, f"{node.name}, mask")
    value = Value.of(f"{node.name}, mask", (layer.key_positions, *node.value.shape[1:]))
    return NumbersView(numbers=TensorNumbers(value=value, words=words, buffer=Buffer(
        mem=slot.mem, address=slot.address, size=slot.words, name=f"{node.name}, mask", kept=True)))


def _spacious(config: Config, layer: BlockAttention) -> bool:
    """Whether memories have room for two heads, which take turns: one is multiplied while the other is a softmax."""
    return _SPACIOUS * layer.positions * config.words_of(layer.key_positions) <= min(depth(config, mem) for mem in VRFS)


def _room(planner: Planner, node: PlannedNode) -> tuple[NumbersView, ...]:
    """Numbers for scores, their largest one, and the reciprocals of the sums of exponentials, of one head."""
    value = Value.of(f"{node.name}, scores", (node.layer.key_positions, *node.value.shape[1:]))
    return (planner.strip(value, frozenset(_ADDED[:1])), planner.strip_in(_ADDED[0], value),
            planner.strip_in(_MULTIPLIED[0], value))


def _bounds(config: Config, node: PlannedNode, heads: Heads) -> list[tiling.Bound]:
    """Bounds of the sums of both products, for tiles of the largest mantissas and exponents.

    Powers are 1 at most, whose exponent is 1.
    """
    weights, found = config.weights, []
    for what, columns, least in (
            ("scores", max(len(heads.vectors(head)) for head in range(heads.count)), 0),
            ("values", config.vectors_of(node.layer.key_positions), max(0, config.activations.e_max - 1))):
        mantissas = np.full((1, columns * config.native_dim), -weights.lowest, np.int64)
        exponents = np.full((1, columns), weights.e_max, np.int64)
        bound = tiling.block_bound(config, f"{node.name}, {what}", mantissas, exponents)
        found.append(replace(bound, bits=bound.bits - least, clamped=0.0))
    return found
