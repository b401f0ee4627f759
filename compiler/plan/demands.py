"""What consumers need of each tensor: its codes in VectorRf, its numbers in a vector memory, or its way to the host.

Demands are collected from the last layer to the first one, so that a layer knows all of them when it is compiled.
"""

from dataclasses import dataclass, field, replace

import numpy as np
from concord.compiler.emit.buffers import Buffer
from concord.compiler.emit.storage import CodeMap, CodesView, Numbers, NumbersView
from concord.compiler.graph.kernels import Kernel
from concord.compiler.graph.network import Network, Node
from concord.compiler.graph.stages import Stages
from concord.compiler.graph.values import Codes, Value
from concord.compiler.lib import tiling
from concord.net.arithmetic.sequences import TimeAxis
from concord.net.arithmetic.windows import Window
from concord.net.layers.add import Add
from concord.net.layers.concat import Concat
from concord.net.layers.pool import MaxPool
from concord.net.layers.recurrent import Recurrent
from concord.net.layers.sequences import SequenceToImage
from concord.net.model import INPUT
from concord.spec.isa.memories import OPERAND_MEMORIES, Mem
from concord.spec.isa.operations import Stage
from concord.spec.machine.config import Config
from concord.spec.numbers.activation import Activation

#: Integers up to it are binary16 numbers.
_EXACT = 2048


@dataclass(slots=True)
class Sinks:
    """Where a tensor is to be written.

    Attributes:
        codes:    Maps in VectorRf, or numbers that are scaled for products; or parts of them.
        numbers:  Vector memories, or parts of pixels in them.
        net:      Whether it goes to the host.
        followed: Whether another layer follows in its pass: a sum, or one of the same loop over time steps.
    """

    codes: list[CodesView | NumbersView] = field(default_factory=list)
    numbers: list[NumbersView] = field(default_factory=list)
    net: bool = False
    followed: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """How a layer reads its source.

    Attributes:
        kernel: Weights of a product, or None.
        map:    Codes that a product reads, where they lie in VectorRf.
        pools:  Pairs of the codes that a maximum reads, and those that it writes.
        view:   Numbers that a maximum, a sum or a loop over time steps reads; those that a backward loop makes; the
            words that a product or a recurrent layer reads. None where they come from NetQ.
        anchor: The term of a sum that is computed last; the sum follows in the same pass, unless it is a concatenation.
        fused:  The MFU that adds the other term, in the chain of the anchor; None where the sum has its own chain.
    """

    kernel: Kernel | None = None
    map: CodeMap | None = None
    pools: tuple[tuple[CodeMap, CodesView], ...] = ()
    view: NumbersView | None = None
    anchor: Value | None = None
    fused: int | None = None


class Demands:
    """The demands of all layers of a network.

    Args:
        config:  Configuration of the machine.
        network: The network.

    Attributes:
        stages:   The stages that the chains of layers use.
        sinks:    Where each tensor is to be written, by its name.
        readings: How each layer reads its source, by its name.
        maps:     All maps in VectorRf.
        numbers:  All numbers in vector memories.
        whole_vectors: Whether the input must come in whole native vectors, since a product reads it from NetQ.
    """

    def __init__(self, config: Config, network: Network):
        self.config, self.network, self.stages = config, network, Stages(network)
        self.sinks = {node.name: Sinks() for node in network.nodes}
        self.readings: dict[str, Reading] = {}
        self.maps: list[CodeMap] = []
        self.numbers: list[Numbers] = []
        self.whole_vectors = False
        for node in network.results:
            if isinstance(node.layer, Concat):
                self.readings[node.name] = Reading(view=self._numbers_of(node.value, None))
            else:
                self.sinks[node.name].net, self.sinks[node.name].followed = not network.every, network.every
        for node in reversed(network.nodes):
            if node.layer is not None and not self.unused(node):
                self._demand(node)
        self._merge()

    def unused(self, node: Node) -> bool:
        """Whether no one reads what a layer makes."""
        sinks = self.sinks[node.name]
        return not (sinks.net or sinks.codes or sinks.numbers or sinks.followed)

    def anchored(self, value: Value) -> list[Node]:
        """The sums that follow a tensor in its pass."""
        return [node for node, index in self.network.consumers(value)
                if isinstance(node.layer, Add) and not self.unused(node) and self.readings[node.name].anchor is value
                and index == node.sources.index(value)]

    def _demand(self, node: Node):
        match node.layer:
            case Concat():
                self._demand_parts(node)
            case Add():
                self.readings[node.name] = self._reading_of_sum(node)
            case MaxPool():
                self.readings[node.name] = self._reading_of_pool(node)
            case Recurrent():
                self._demand_sequence(node)
            case SequenceToImage():
                self.sinks[node.sources[0].name].followed = True
                if self.network.loop(node).layers[0].reverse:
                    self.readings[node.name] = Reading(view=NumbersView(numbers=self._new_numbers(node.value, None)))
            case _:
                kernel, source = self.network.kernel(node), node.sources[0]
                if source.in_words:
                    self.readings[node.name] = Reading(kernel=kernel, view=self._words_of(node, kernel.codes))
                    return
                code_map = self._codes_of(source, kernel.codes, kernel.window, kernel.apart)
                self.readings[node.name] = Reading(kernel=kernel, map=code_map)

    def _words_of(self, node: Node, codes: Codes) -> NumbersView | None:
        """The words that a product reads: the tensor's own numbers, or scaled ones; None for those in NetQ."""
        source, scaled = node.sources[0], codes.scale is not None or codes.offset is not None
        if not scaled:
            once = len(tiling.parts(self.config, node.value.lanes)) == 1
            return None if once and self.from_net(source) else self._numbers_of(source, None)
        sinks = self.sinks[source.name]
        found = next((view for view in sinks.codes
                      if view.numbers.value is source and view.codes.scales_as(codes)), None)
        if found is None:
            found = NumbersView(numbers=self._new_numbers(source, source.read), codes=codes)
            sinks.codes.append(found)
        return found

    def from_net(self, value: Value) -> bool:
        """Whether a product or a recurrent layer can read a vector from NetQ, where it can be read only once."""
        network = self.network
        alone = len(network.entering) == 1 == len(network.consumers(value)) and value.name == INPUT
        direct = alone and (not network.before or value.lanes % self.config.native_dim == 0)
        self.whole_vectors |= direct
        return direct

    def _codes_of(self, value: Value, codes: Codes, window: Window, apart: bool) -> CodeMap:
        """A map of a tensor's codes; one that another layer needs serves too if its codes are alike."""
        found = next((view.map for view in self.sinks[value.name].codes if view.map.value is value
                      and view.map.codes.alike(codes) and view.map.codes.borders_agree(codes)), None)
        if found is None:
            found = CodeMap.of(self.config, value, codes)
            self.maps.append(found)
            self.sinks[value.name].codes.append(CodesView(codes=codes, map=found))
        elif found.codes.border is None:
            found.codes = codes
        found.read_by(window, apart)
        return found

    def _numbers_of(self, value: Value, mem: Mem | None) -> NumbersView:
        """The numbers of a tensor in a memory, or in any one."""
        for view in self.sinks[value.name].numbers:
            if view.numbers.value is value and view.buffer.mem == mem:
                return view
        view = NumbersView(numbers=self._new_numbers(value, mem))
        self.sinks[value.name].numbers.append(view)
        return view

    def _new_numbers(self, value: Value, mem: Mem | None) -> Numbers:
        words = self.config.words_of(value.lanes)
        buffer = Buffer(mem=mem, name=f"{value.name or 'network input'}, numbers", size=value.pixels * words)
        self.numbers.append(Numbers(value=value, buffer=buffer, words=words))
        return self.numbers[-1]

    def _demand_sequence(self, node: Node):
        """A loop over time steps reads numbers; in the loop, a layer reads the hidden vector of the one before it.

        The host sends time steps in order, so a loop that begins with the first one needs no copy of them.
        """
        source = node.sources[0]
        if source.in_words:
            self.sinks[source.name].followed = True
            entering = self.network.maker(source).layer is None and not self.from_net(source)
            self.whole_vectors |= not self.network.before
            self.readings[node.name] = Reading(view=self._numbers_of(source, source.read) if entering else None)
        elif not self.network.begins_loop(node):
            self.sinks[source.name].followed = True
        elif self.network.maker(source).layer is None and len(self.network.consumers(source)) == 1 and self._in_order(
                node):
            self.readings[node.name] = Reading()
        else:
            self.readings[node.name] = Reading(view=self._numbers_of(source, None))

    def _in_order(self, node: Node) -> bool:
        """Whether a loop reads the pixels of its source from the first one to the last one."""
        loop, source = self.network.loop(node), node.sources[0]
        by_row = source.shape[1] == 1 or loop.entry.time is TimeAxis.ROWS
        return by_row and not node.layer.reverse

    def _demand_parts(self, node: Node):
        """Pass the demands of a concatenation on to its parts.

        Raises:
            ValueError: a demand of a flattened part has another scale for each pixel.
        """
        config, sinks, first = self.config, self.sinks[node.name], 0
        flat = node.value.pixels == 1
        for source in node.sources:
            channels = slice(first, first + (source.elements if flat else source.shape[0]))
            vector, word = (int(node.value.places[first]) // size for size in (config.native_dim, config.mfu_lanes))
            apart = flat and source.pixels > 1
            for view in sinks.codes:
                codes = view.codes.part(channels)
                if isinstance(view, NumbersView):
                    self.sinks[source.name].codes.append(replace(view, word=view.word + word, codes=codes))
                    continue
                if apart:
                    codes = codes.of_channels(source.shape[0])
                    if codes is None:
                        raise ValueError(
                            f"layer {node.name!r} ({node.layer.title}): a layer behind it scales the pixels of a "
                            f"channel of {source.name!r} by different factors: give all pixels of a channel one scale")
                step = config.vectors_of(source.lanes) if apart else view.step
                self.sinks[source.name].codes.append(
                    CodesView(codes=codes, map=view.map, vector=view.vector + vector, step=step))
            for view in sinks.numbers:
                words = config.vectors_of(source.lanes) * config.vector_words if apart else view.words
                self.sinks[source.name].numbers.append(
                    NumbersView(numbers=view.numbers, word=view.word + word, words=words))
            first = channels.stop

    def _reading_of_sum(self, node: Node) -> Reading:
        """One term is computed last, and the sum follows in its pass; the other one waits in a vector memory."""
        anchor, other = self.stages.terms(node)
        if self.stages.apart(anchor, other):
            self._numbers_of(anchor, None)
            return Reading(view=self._numbers_of(other, OPERAND_MEMORIES[Stage.ADD][0]), anchor=anchor)
        fused = self.stages.fused(node, anchor)
        self.sinks[anchor.name].followed = True
        mem = OPERAND_MEMORIES[Stage.ADD][fused or 0]
        return Reading(view=self._numbers_of(other, mem), anchor=anchor, fused=fused)

    def _reading_of_pool(self, node: Node) -> Reading:
        """Codes if all consumers take integer codes, which rise with the numbers; otherwise numbers."""
        sinks, source = self.sinks[node.name], node.sources[0]
        monotone = all(self._monotone(node, view.codes) for view in sinks.codes)
        if sinks.net or sinks.numbers or sinks.followed or not monotone:
            return Reading(view=self._numbers_of(source, None))
        window, pools = node.layer.window, []
        for view in sinks.codes:
            lowest = 0 if view.codes.unsigned else self.config.activations.lowest
            border = np.full(source.shape[0], lowest, np.float16).view(np.uint16) if any(window.padding) else None
            real = None if border is None else np.full(source.shape[0], -np.inf)
            codes = view.codes.with_border(border, real)
            pools.append((self._codes_of(source, codes, window, False), view))
        return Reading(pools=tuple(pools))

    def _monotone(self, node: Node, codes: Codes) -> bool:
        """Whether the codes of the largest number are the largest code, so that codes can be compared."""
        if not codes.integer or self.config.activations.levels > _EXACT:
            return False
        if codes.scale is not None and (codes.scale & 0x8000).any():
            return False
        return node.activation is Activation.NONE or (
            node.activation is Activation.RELU and codes.unsigned and codes.offset is None)

    def _merge(self):
        """Let numbers that may lie in any memory lie in one that holds the same tensor anyway."""
        for numbers in [numbers for numbers in self.numbers if numbers.buffer.mem is None]:
            views = self.sinks[numbers.value.name].numbers
            other = next((view.numbers for view in views if view.numbers.value is numbers.value
                          and view.buffer.mem is not None), None)
            if other is not None:
                numbers.buffer = other.buffer
                self.numbers.remove(numbers)
                views[:] = [view for view in views if view.numbers is not numbers]
