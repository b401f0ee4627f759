"""What consumers need of each tensor: its codes in VectorRf, its numbers in a vector memory, or its way to the host.

Demands are collected from the last layer to the first one, so that a layer knows all of them when it is compiled.
"""

from dataclasses import dataclass, field

import numpy as np
from concord.compiler.images.buffers import Buffer
from concord.compiler.images.kernels import Kernel
from concord.compiler.images.network import Network, Node
from concord.compiler.images.storage import CodeMap, CodesView, Numbers, NumbersView
from concord.compiler.images.values import Codes, Value
from concord.golden.lib import float16
from concord.model.arithmetic.windows import Window
from concord.model.layers.add import Add
from concord.model.layers.average import BlockAverage
from concord.model.layers.concat import Concat
from concord.model.layers.convolution import BlockConv, Conv
from concord.model.layers.dense import Dense
from concord.model.layers.pool import MaxPool
from concord.spec.activation import Activation
from concord.spec.config import Config
from concord.spec.memories import OPERAND_MEMORIES, Mem
from concord.spec.operations import MFUS, Stage

#: Integers up to it are binary16 numbers.
_EXACT = 2048


@dataclass(slots=True)
class Sinks:
    """Where a tensor is to be written.

    Attributes:
        codes:   Maps, or parts of maps.
        numbers: Vector memories, or parts of pixels in them.
        net:     Whether it goes to the host.
        added:   Whether a sum follows in its pass.
    """

    codes: list[CodesView] = field(default_factory=list)
    numbers: list[NumbersView] = field(default_factory=list)
    net: bool = False
    added: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """How a layer reads its source.

    Attributes:
        kernel: Weights of a product, or None.
        map:    Codes that a product reads.
        pools:  Pairs of the codes that a maximum reads, and those that it writes.
        view:   Numbers that a maximum or a sum reads.
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
        sinks:    Where each tensor is to be written, by its name.
        readings: How each layer reads its source, by its name.
        maps:     All maps in VectorRf.
        numbers:  All numbers in vector memories.
    """

    def __init__(self, config: Config, network: Network):
        self.config, self.network = config, network
        self.sinks = {node.name: Sinks() for node in network.nodes}
        self.readings: dict[str, Reading] = {}
        self.maps: list[CodeMap] = []
        self.numbers: list[Numbers] = []
        last = network.last
        if isinstance(last.layer, Concat):
            self.readings[last.name] = Reading(view=self._numbers_of(last.value, None))
        else:
            self.sinks[last.name].net = True
        for node in reversed(network.nodes[1:]):
            if not self.unused(node):
                self._demand(node)
        self._merge()

    def unused(self, node: Node) -> bool:
        """Whether no one reads what a layer makes."""
        sinks = self.sinks[node.name]
        return not (sinks.net or sinks.codes or sinks.numbers or sinks.added)

    def anchored(self, value: Value) -> list[Node]:
        """The sums that follow a tensor in its pass."""
        return [node for node, index in self.network.consumers(value)
                if isinstance(node.layer, Add) and not self.unused(node) and self.readings[node.name].anchor is value
                and index == node.sources.index(value)]

    def adds_nothing(self, node: Node) -> bool:
        """Whether an integer layer need not add T: it is zero, and no one sees the sign of a zero."""
        if node.layer.offset.any():
            return False
        if node.activation is Activation.RELU:
            return True
        adds = self.network.consumers(node.value)
        return len(adds) == 1 and isinstance(adds[0][0].layer, Add) and (
            adds[0][0].activation is Activation.RELU or not any(
                self._minus_zero(other) for other in adds[0][0].sources if other is not node.value))

    def _demand(self, node: Node):
        match node.layer:
            case Concat():
                self._demand_parts(node)
            case Add():
                self.readings[node.name] = self._reading_of_sum(node)
            case MaxPool():
                self.readings[node.name] = self._reading_of_pool(node)
            case _:
                kernel = self.network.kernel(node)
                code_map = self._codes_of(node.sources[0], kernel.codes, kernel.window, kernel.apart)
                self.readings[node.name] = Reading(kernel=kernel, map=code_map)

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
            if view.numbers.value is value and view.numbers.buffer.mem == mem:
                return view
        words = self.config.words_of(value.lanes)
        buffer = Buffer(mem=mem, name=f"{value.name or 'network input'}, numbers", size=value.pixels * words)
        numbers = Numbers(value=value, buffer=buffer, words=words)
        self.numbers.append(numbers)
        view = NumbersView(numbers=numbers)
        self.sinks[value.name].numbers.append(view)
        return view

    def _demand_parts(self, node: Node):
        """Pass the demands of a concatenation on to its parts."""
        config, sinks, first = self.config, self.sinks[node.name], 0
        flat = node.value.pixels == 1
        for source in node.sources:
            channels = slice(first, first + (source.elements if flat else source.shape[0]))
            vector = int(node.value.places[first]) // config.native_dim
            apart = flat and source.pixels > 1
            for view in sinks.codes:
                codes = view.codes.part(channels)
                if apart:
                    codes = codes.of_channels(source.shape[0])
                step = config.vectors_of(source.lanes) if apart else view.step
                self.sinks[source.name].codes.append(
                    CodesView(codes=codes, map=view.map, vector=view.vector + vector, step=step))
            for view in sinks.numbers:
                words = config.vectors_of(source.lanes) * config.vector_words if apart else view.words
                self.sinks[source.name].numbers.append(
                    NumbersView(numbers=view.numbers, word=view.word + vector * config.vector_words, words=words))
            first = channels.stop

    def _reading_of_sum(self, node: Node) -> Reading:
        """One term is computed last, and the sum follows in its pass; the other one waits in a vector memory."""
        anchor, other = self._terms(node)
        if isinstance(self.network.by_name[anchor.name].layer, Concat) or anchor is other:
            self._numbers_of(anchor, None)
            return Reading(view=self._numbers_of(other, OPERAND_MEMORIES[Stage.ADD][0]), anchor=anchor)
        fused = self._fused(node, anchor)
        self.sinks[anchor.name].added = True
        mem = OPERAND_MEMORIES[Stage.ADD][fused or 0]
        return Reading(view=self._numbers_of(other, mem), anchor=anchor, fused=fused)

    def _terms(self, node: Node) -> tuple[Value, Value]:
        """The term of a sum that is computed last, and the other one."""
        order = [self.network.nodes.index(self.network.by_name[source.name]) for source in node.sources]
        last = int(order[1] > order[0])
        return node.sources[last], node.sources[1 - last]

    def _fused(self, node: Node, anchor: Value) -> int | None:
        """The MFU that can add to a tensor in the chain that computes it, or None."""
        if len(self.network.consumers(anchor)) > 1:
            return None
        position = self._position(self.network.by_name[anchor.name])
        mfu = _next(Stage.ADD, position)
        if mfu is None or (node.activation is not Activation.NONE
                           and _next(Stage.ACT, mfu * len(Stage) + Stage.ADD) is None):
            return None
        return mfu

    def _position(self, node: Node) -> int:
        """Position of the last stage of the chain that computes a tensor."""
        match node.layer:
            case Dense() | Conv():
                position = 2 if self.adds_nothing(node) else 3
            case BlockAverage():
                position = 2
            case Add():
                anchor, other = self._terms(node)
                apart = anchor is other or isinstance(self.network.by_name[anchor.name].layer, Concat)
                position = (0 if apart else self._fused(node, anchor) or 0) * len(Stage)
            case None | MaxPool():
                position = -1
            case _:
                position = 0
        if node.activation is not Activation.NONE:
            position = _next(Stage.ACT, position) * len(Stage) + Stage.ACT
        return position

    def _reading_of_pool(self, node: Node) -> Reading:
        """Codes if all consumers take integer codes, which rise with the numbers; otherwise numbers."""
        sinks, source = self.sinks[node.name], node.sources[0]
        monotone = all(self._monotone(node, view.codes) for view in sinks.codes)
        if sinks.net or sinks.numbers or sinks.added or not monotone:
            return Reading(view=self._numbers_of(source, None))
        window, pools = node.layer.window, []
        for view in sinks.codes:
            lowest = 0 if view.codes.unsigned else self.config.activations.lowest
            border = np.full(source.shape[0], lowest, np.float16).view(np.uint16) if any(window.padding) else None
            pools.append((self._codes_of(source, view.codes.with_border(border), window, False), view))
        return Reading(pools=tuple(pools))

    def _monotone(self, node: Node, codes: Codes) -> bool:
        """Whether the codes of the largest number are the largest code, so that codes can be compared."""
        if not codes.integer or self.config.activations.levels > _EXACT:
            return False
        if codes.scale is not None and (codes.scale & 0x8000).any():
            return False
        return node.activation is Activation.NONE or (
            node.activation is Activation.RELU and codes.unsigned and codes.offset is None)

    def _minus_zero(self, value: Value) -> bool:
        """Whether a tensor may hold -0."""
        node = self.network.by_name[value.name]
        match node.layer:
            case BlockConv() if not isinstance(node.layer, BlockAverage):
                return bool((node.layer.bias == float16.SIGN).any())
            case Dense() | Conv():
                return bool((node.layer.offset == float16.SIGN).any())
            case Add():
                return any(self._minus_zero(source) for source in node.sources)
        return True

    def _merge(self):
        """Let numbers that may lie in any memory lie in one that holds the same tensor anyway."""
        for numbers in [numbers for numbers in self.numbers if numbers.buffer.mem is None]:
            views = self.sinks[numbers.value.name].numbers
            other = next((view.numbers for view in views if view.numbers.value is numbers.value
                          and view.numbers.buffer.mem is not None), None)
            if other is not None:
                numbers.buffer = other.buffer
                self.numbers.remove(numbers)
                views[:] = [view for view in views if view.numbers is not numbers]


def _next(stage: Stage, position: int) -> int | None:
    """The MFU of the next stage of a kind behind a position, or None."""
    return next((mfu for mfu in range(MFUS) if mfu * len(Stage) + stage > position), None)
