"""What consumers need of each tensor: its codes in VectorRf, its numbers in a vector memory, or its way to the host.

Demands are collected from the last layer to the first one, so that a layer knows all of them when it is compiled.
"""

from collections.abc import Collection
from dataclasses import dataclass, field

from concord.compiler.emit.storage import Buffer, CodeMap, CodesView, NumbersView, TensorNumbers
from concord.compiler.graph.kernels import Kernel
from concord.compiler.graph.network import PlannedNetwork
from concord.compiler.graph.nodes import PlannedNode, TensorCodes, Value
from concord.net.arithmetic.windows import Window
from concord.net.layers.joins import Add, Concat
from concord.net.model import INPUT
from concord.spec.isa.memories import Mem
from concord.spec.machine.config import Config


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
        far:    The operand of a sum in Dram, which each strip of its pass brings; None where `view` has it.
        anchor: The term of a sum that is computed last; the sum follows in the same pass, unless it is a concatenation.
        fused:  The MFU that adds the other term, in the chain of the anchor; None where the sum has its own chain.
    """

    kernel: Kernel | None = None
    map: CodeMap | None = None
    pools: tuple[tuple[CodeMap, CodesView], ...] = ()
    view: NumbersView | None = None
    far: NumbersView | None = None
    anchor: Value | None = None
    fused: int | None = None


class Demands:
    """The demands of all layers of a network.

    Args:
        config:  Configuration of the machine.
        network: The network.
        most_tiles: Most tiles of a product, see `tiling.parts`.
        far:     Names of tensors that lie in Dram as numbers; each reader brings them near before it reads them.

    Attributes:
        sinks:    Where each tensor is to be written, by its name.
        readings: How each layer reads its source, by its name.
        maps:     All maps in VectorRf.
        numbers:  All numbers in vector memories, and in Dram.
        brought:  The numbers in Dram from which the codes of maps are made, which only their reader needs.
        whole_vectors: Whether the input must come in whole native vectors, since a product reads it from NetQ.
    """

    def __init__(self, config: Config, network: PlannedNetwork, most_tiles: int | None = None,
                 far: Collection[str] = ()):
        self.config, self.network, self.most_tiles, self.far = config, network, most_tiles, far
        self.sinks = {node.name: Sinks() for node in network.nodes}
        self.readings: dict[str, Reading] = {}
        self.maps: list[CodeMap] = []
        self.numbers: list[TensorNumbers] = []
        self.brought: dict[CodeMap, NumbersView] = {}
        self.whole_vectors = False
        for node in network.results:
            if isinstance(node.layer, Concat):
                self.readings[node.name] = Reading(view=self.numbers_of(node.value))
            else:
                self.sinks[node.name].net, self.sinks[node.name].followed = not network.every, network.every
                if node.name in self.far:
                    self.numbers_of(node.value, Mem.DRAM)
        for node in reversed(network.nodes):
            if node.layer is not None and not self.unused(node):
                node.kind.demand(self, node)
        self._merge()

    def unused(self, node: PlannedNode) -> bool:
        """Whether no one reads what a layer makes."""
        sinks = self.sinks[node.name]
        return not (sinks.net or sinks.codes or sinks.numbers or sinks.followed)

    def anchored(self, value: Value) -> list[PlannedNode]:
        """The sums that follow a tensor in its pass."""
        return [node for node, index in self.network.consumers(value)
                if isinstance(node.layer, Add) and not self.unused(node) and self.readings[node.name].anchor is value
                and index == node.sources.index(value)]

    def from_net(self, value: Value) -> bool:
        """Whether a product or a recurrent layer can read a vector from NetQ, where it can be read only once."""
        network = self.network
        alone = len(network.entering) == 1 == len(network.consumers(value)) and value.name == INPUT
        direct = alone and (not network.before or value.lanes % self.config.native_dim == 0)
        self.whole_vectors |= direct
        return direct

    def codes_of(self, value: Value, codes: TensorCodes, window: Window, apart: bool) -> CodeMap:
        """A map of a tensor's codes; one that another layer needs serves too if its codes are alike."""
        if value.name in self.far:
            return self._brought(value, codes, window, apart)
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

    def _brought(self, value: Value, codes: TensorCodes, window: Window, apart: bool) -> CodeMap:
        """A map for one reader of a tensor that lies in Dram."""
        one = CodeMap.of(self.config, value, codes)
        one.read_by(window, apart)
        self.maps.append(one)
        self.brought[one] = self.numbers_of(value, Mem.DRAM)
        return one

    def numbers_of(self, value: Value, mem: Mem | None = None) -> NumbersView:
        """The numbers of a tensor in a memory, or in any one."""
        for view in self.sinks[value.name].numbers:
            if view.numbers.value is value and view.buffer.mem == mem:
                return view
        view = NumbersView(numbers=self.new_numbers(value, mem))
        self.sinks[value.name].numbers.append(view)
        return view

    def new_numbers(self, value: Value, mem: Mem | None) -> TensorNumbers:
        """Numbers of a tensor of which there may be others, in a memory or in any one."""
        words = self.config.words_of(value.lanes)
        buffer = Buffer(mem=mem, name=f"{value.name or 'network input'}, numbers", size=value.pixels * words)
        self.numbers.append(TensorNumbers(value=value, buffer=buffer, words=words))
        return self.numbers[-1]

    def leaves_pass(self, node: PlannedNode) -> bool:
        """Whether the tensor of a loop over time steps is written, sent or added to another one after the loop."""
        sinks = self.sinks[node.name]
        return bool(sinks.codes or sinks.numbers or sinks.net or self.anchored(node.value))

    def _merge(self):
        """Let numbers that may lie in any memory lie in one that holds the same tensor anyway."""
        for numbers in [numbers for numbers in self.numbers if numbers.buffer.mem is None]:
            views = self.sinks[numbers.value.name].numbers
            other = next((view.numbers for view in views if view.numbers.value is numbers.value
                          and view.numbers.words == numbers.words and view.buffer.mem not in (None, Mem.DRAM)), None)
            if other is not None:
                other.buffer.align = max(other.buffer.align, numbers.buffer.align)
                numbers.buffer = other.buffer
                self.numbers.remove(numbers)
                views[:] = [view for view in views if view.numbers is not numbers]
