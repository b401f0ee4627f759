"""Layers without weights: sums and products of tensors, concatenations, maximum pooling and enlarged images.

A sum or product of two tensors follows the one that is computed last, in the same pass and if possible in the same
chain; the other one waits in a vector memory. A concatenation has no chain: its parts are written where its readers
want them.
"""

from dataclasses import replace

import numpy as np
from concord.compiler.emit.chains import OpenChain
from concord.compiler.emit.sources import FromEnlarged, FromNumbers, FromPool, Source
from concord.compiler.emit.storage import CodeMap, CodesView, NumbersView
from concord.compiler.graph.network import PlannedNetwork, title
from concord.compiler.graph.nodes import CompiledKind, PlannedNode, TensorCodes, Value
from concord.compiler.lib import limits
from concord.compiler.plan.demands import Demands, Reading
from concord.compiler.plan.planner import Planner
from concord.net.arithmetic.native_vectors import flattened, joined
from concord.net.arithmetic.windows import Window
from concord.net.layers.enlarging import Enlarge
from concord.net.layers.joins import Concat
from concord.spec.isa.memories import OPERAND_MEMORIES, Mem
from concord.spec.isa.operations import Operation, Stage, next_mfu, position
from concord.spec.machine.config import Config
from concord.spec.numbers.activation import Activation

#: Integers up to it are binary16 numbers.
_EXACT = 2048


class SumKind(CompiledKind):
    """The sum or product of two tensors. Its anchor is the term that is computed last."""

    def limits(self, layer, config, *, images):
        return [] if images else limits.vector_rows(layer.outputs)

    def made(self, network: PlannedNetwork, layer, sources):
        a, b = sources
        if a.shape != b.shape or not np.array_equal(a.places, b.places):
            network.problem(layer, f"its tensors, images of {title(a.shape)} and {title(b.shape)}, lie in different "
                                   "order: add images of one shape, whose parts of a concatenation are multiples of "
                                   f"{network.config.native_dim} channels")
        return replace(a, name=layer.name)

    def time(self, network: PlannedNetwork, node):
        """A sum follows its last term in the same pass, before sums listed after it."""
        maker = network.maker(_terms(network, node)[0])
        own = super().time(network, node)
        return own if isinstance(maker.layer, Concat) else (*maker.kind.time(network, maker), *own)

    def computed(self, network: PlannedNetwork, node):
        anchor, other = _terms(network, node)
        stage = node.layer.operation.stage
        return position(stage, 0 if _apart(network, anchor, other) else _fused(network, node, anchor) or 0)

    def minus_zero(self, network: PlannedNetwork, node):
        return node.layer.operation is not Operation.VV_ADD or any(
            maker.kind.minus_zero(network, maker) for maker in map(network.maker, node.sources))

    def demand(self, demands: Demands, node):
        """One term is computed last, and the sum follows in its pass; the other one waits in a vector memory."""
        network = demands.network
        anchor, other = _terms(network, node)
        if _apart(network, anchor, other):
            demands.numbers_of(anchor)
            fused = None
        else:
            fused = _fused(network, node, anchor)
            demands.sinks[anchor.name].followed = True
        mem, far = OPERAND_MEMORIES[node.layer.operation.stage][fused or 0], other.name in demands.far
        view = demands.numbers_of(other, Mem.DRAM if far else mem)
        demands.readings[node.name] = Reading(anchor=anchor, fused=fused, **{"far" if far else "view": view})

    def plan(self, planner: Planner, node):
        anchor = planner.demands.readings[node.name].anchor
        if isinstance(planner.demands.network.maker(anchor).layer, Concat):
            planner.begin_pass(node.value)
            planner.add(node, next(view for view in planner.demands.sinks[anchor.name].numbers
                                   if view.numbers.value is anchor))


def _terms(network: PlannedNetwork, node: PlannedNode) -> tuple[Value, Value]:
    """The term of a sum that is computed last, and the other one."""
    first, second = (maker.kind.time(network, maker) for maker in map(network.maker, node.sources))
    last = int(second > first)
    return node.sources[last], node.sources[1 - last]


def _apart(network: PlannedNetwork, anchor: Value, other: Value) -> bool:
    """Whether no chain computes the last term of a sum alone: a concatenation, or both terms."""
    return anchor is other or isinstance(network.maker(anchor).layer, Concat)


def _fused(network: PlannedNetwork, node: PlannedNode, anchor: Value) -> int | None:
    """The MFU that can add to the last term of a sum in the chain that computes it, or None."""
    maker = network.maker(anchor)
    if any(result.value is anchor for result in network.results) or len(network.consumers(anchor)) > 1:
        return None
    stage = node.layer.operation.stage
    mfu = next_mfu(stage, maker.kind.last(network, maker))
    if mfu is None or (node.activation is not Activation.NONE
                       and next_mfu(Stage.ACT, position(stage, mfu)) is None):
        return None
    return mfu


class ConcatenationKind(CompiledKind):
    """The parts of a tensor one after the other: images along channels, or flattened images, or vectors in words."""

    def limits(self, layer, config, *, images):
        return [] if images else limits.vector_rows(max(layer.sizes))

    def made(self, network: PlannedNetwork, layer, sources):
        config, first = network.config, sources[0]
        if first.in_words:
            parts = [source.places for source in sources]
            return replace(first, name=layer.name, shape=(layer.outputs, 1, 1), places=joined(parts, config.mfu_lanes))
        if len({source.shape[1:] for source in sources}) == 1:
            channels = sum(source.shape[0] for source in sources)
            return Value(name=layer.name, shape=(channels, *first.shape[1:]),
                         places=joined([source.places for source in sources], config.native_dim))
        parts = [flattened(source.places, source.pixels, config.native_dim) for source in sources]
        return Value(name=layer.name, shape=(layer.outputs, 1, 1), places=joined(parts, config.native_dim))

    def time(self, network: PlannedNetwork, node):
        return max(maker.kind.time(network, maker) for maker in map(network.maker, node.sources))

    def demand(self, demands: Demands, node):
        """Pass the demands of a concatenation on to its parts.

        Raises:
            ValueError: a demand of a flattened part has another scale for each pixel.
        """
        config, sinks, first = demands.config, demands.sinks[node.name], 0
        flat = node.value.pixels == 1
        for source in node.sources:
            channels = slice(first, first + (source.elements if flat else source.shape[0]))
            vector, word = (int(node.value.places[first]) // size for size in (config.native_dim, config.mfu_lanes))
            apart = flat and source.pixels > 1
            for view in sinks.codes:
                codes = view.codes.part(channels)
                if isinstance(view, NumbersView):
                    demands.sinks[source.name].codes.append(replace(view, word=view.word + word, codes=codes))
                    continue
                if apart:
                    codes = codes.of_channels(source.shape[0])
                    if codes is None:
                        raise ValueError(
                            f"layer {node.name!r} ({node.layer.title}): a layer after it scales the pixels of a "
                            f"channel of {source.name!r} by different factors: give all pixels of a channel one scale")
                step = config.vectors_of(source.lanes) if apart else view.step
                demands.sinks[source.name].codes.append(
                    CodesView(codes=codes, map=view.map, vector=view.vector + vector, step=step))
            for view in sinks.numbers:
                words = config.vectors_of(source.lanes) * config.vector_words if apart else view.words
                demands.sinks[source.name].numbers.append(
                    NumbersView(numbers=view.numbers, word=view.word + word, words=words))
            first = channels.stop

    def plan(self, planner: Planner, node):
        """One chain sends a concatenation that is the network's result."""
        if reading := planner.demands.readings.get(node.name):
            planner.begin_pass(node.value)
            planner.note_sent(node.name)
            planner.send(node, OpenChain(source=FromNumbers(view=reading.view)))


class PoolKind(CompiledKind):
    """Maxima of windows; each channel stays in its lane."""

    def made(self, network: PlannedNetwork, layer, sources):
        return Value(name=layer.name, shape=layer.made, places=sources[0].places)

    def demand(self, demands: Demands, node):
        """Codes if all consumers take integer codes, which rise with the numbers; otherwise numbers."""
        sinks, source = demands.sinks[node.name], node.sources[0]
        monotone = all(_monotone(demands.config, node, view.codes) for view in sinks.codes)
        if sinks.net or sinks.numbers or sinks.followed or not monotone:
            demands.readings[node.name] = Reading(view=demands.numbers_of(source))
            return
        pools = [(self._source_codes(demands, node, view.codes), view) for view in sinks.codes]
        demands.readings[node.name] = Reading(pools=tuple(pools))

    def plan(self, planner: Planner, node):
        config, reading = planner.build.config, planner.demands.readings[node.name]
        for source, target in reading.pools:
            chain = OpenChain(source=self._source(config, node, source, target.codes))
            chain.write(target)
            planner.bring(chain)
            planner.begin_pass(node.value)
            planner.append(node, chain)
        if not reading.pools:
            chain = OpenChain(source=self._source(config, node, reading.view))
            chain.activate(node.activation)
            planner.begin(node, chain)

    def _source_codes(self, demands: Demands, node: PlannedNode, codes: TensorCodes) -> CodeMap:
        """The codes of the source of which those of the result are some."""
        window, source = node.layer.window, node.sources[0]
        lowest = 0 if codes.unsigned else demands.config.activations.lowest
        border = np.full(source.shape[0], lowest, np.float16).view(np.uint16) if any(window.padding) else None
        real = None if border is None else np.full(source.shape[0], -np.inf)
        return demands.codes_of(source, codes.with_border(border, real), window, False)

    def _source(self, config: Config, node: PlannedNode, source: CodeMap | NumbersView,
                codes: TensorCodes | None = None) -> Source:
        """The source of the chain of a layer."""
        return FromPool(source=source, window=node.layer.window, codes=codes)


class EnlargementKind(PoolKind):
    """Images each of whose pixels becomes a rectangle of pixels: another order of reading, row by row."""

    def made(self, network: PlannedNetwork, layer, sources):
        channels, places = layer.made[0], sources[0].places
        apart = _part_vectors(network.config, layer) * network.config.native_dim
        parts = np.arange(layer.operator.parts)[:, None] * apart + places[:channels]
        if not np.array_equal(parts.ravel(), places):
            network.problem(layer, f"the {channels} channels of each pixel that it makes do not begin a native vector: "
                                   f"let it read a concatenation of {layer.operator.parts} images")
        return Value(name=layer.name, shape=layer.made, places=places[:channels])

    def _source_codes(self, demands: Demands, node, codes):
        whole = codes.with_border(None).repeated(node.layer.operator.parts)
        return demands.codes_of(node.sources[0], whole, Window(size=(1, 1)), False)

    def _source(self, config, node, source, codes=None):
        return FromEnlarged(source=source, factor=tuple(node.layer.factor), codes=codes,
                            vectors=_part_vectors(config, node.layer))


def _part_vectors(config: Config, layer: Enlarge) -> int:
    """Number of native vectors from one part of a pixel to the next one; 0 where a pixel is repeated."""
    return config.vectors_of(layer.made[0]) if layer.shuffled else 0


def _monotone(config: Config, node: PlannedNode, codes: TensorCodes) -> bool:
    """Whether the codes of the largest number are the largest code, so that codes can be compared."""
    if not codes.integer or config.activations.levels > _EXACT:
        return False
    if codes.scale is not None and (codes.scale & 0x8000).any():
        return False
    return node.activation is Activation.NONE or (
        node.activation is Activation.RELU and codes.unsigned and codes.offset is None)
