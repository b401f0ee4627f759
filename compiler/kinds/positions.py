"""Constants of the positions of a transformer: offsets of the pixels of an image, and pixels ahead of all others."""

from dataclasses import dataclass, replace

from concord.compiler.emit.chains import OpenChain
from concord.compiler.emit.sources import FromNumbers, Region
from concord.compiler.emit.storage import Buffer, NumbersView, TensorNumbers
from concord.compiler.graph.network import PlannedNetwork
from concord.compiler.graph.nodes import PlannedNode
from concord.compiler.kinds.curves import CurveKind
from concord.compiler.lib import tiling
from concord.compiler.lib.program import ProgramBuilder
from concord.compiler.lib.tiling import RowPart
from concord.compiler.plan.planner import Planner
from concord.spec.isa.memories import OPERAND_MEMORIES, Mem
from concord.spec.isa.operations import Operation, Stage, position
from concord.spec.machine.config import Config


class OffsetsKind(CurveKind):
    """Offsets of the pixels of an image, in a chain that reads its numbers."""

    def computed(self, network: PlannedNetwork, node):
        return position(Stage.ADD, 0)

    def made(self, network: PlannedNetwork, layer, sources):
        if sources[0].lanes > sources[0].shape[0]:
            network.problem(layer, "it adds offsets to a tensor whose channels do not follow each other: put a layer "
                                   "with weights between it and a concatenation")
        return super().made(network, layer, sources)

    def plan(self, planner: Planner, node):
        offsets = _constants(planner, node, OPERAND_MEMORIES[Stage.ADD][0], "offset", "offsets")
        chain = OpenChain(source=FromNumbers(view=planner.demands.readings[node.name].view))
        chain.apply(Operation.VV_ADD, 0, offsets)
        planner.begin(node, chain)


@dataclass(frozen=True, kw_only=True, slots=True)
class FromColumn(FromNumbers):
    """The source of numbers whose first pixel belongs to a column of an image of one row.

    Attributes:
        first: This column.
    """

    first: int

    def read(self, config, region, part):
        return FromNumbers.read(self, config, replace(region, column=region.column - self.first), part)


@dataclass(kw_only=True, slots=True, eq=False)
class SomeColumns(OpenChain):
    """A chain for some columns of an image of one row.

    Attributes:
        columns: These columns.
    """

    columns: range

    def emit(self, config: Config, program: ProgramBuilder, region: Region, part: RowPart):
        own = replace(region, column=self.columns.start, columns=len(self.columns))
        OpenChain.emit(self, config, program, own, part)


class ConstantKind(CurveKind):
    """Constant positions ahead of those of an image: two chains write both to a strip, of which others go on."""

    def made(self, network: PlannedNetwork, layer, sources):
        if sources[0].lanes > sources[0].shape[0]:
            network.problem(layer, "it reads a tensor whose channels do not follow each other: put a layer with "
                                   "weights between it and a concatenation")
        return network.new(layer)

    def plan(self, planner: Planner, node):
        count, total = node.layer.tokens.shape[1], node.value.pixels
        constant = _constants(planner, node, Mem.INITIAL_VRF, "tokens", "constant positions")
        planner.begin_pass(node.value)
        strip = planner.strip(node.value)
        for view, columns in ((constant, range(count)),
                              (planner.demands.readings[node.name].view, range(count, total))):
            chain = SomeColumns(source=FromColumn(view=view, first=columns.start), columns=columns)
            chain.write(strip)
            planner.append(node, chain)
        planner.complete(node, OpenChain(source=FromNumbers(view=strip)))


def _constants(planner: Planner, node: PlannedNode, mem: Mem, field: str, what: str) -> NumbersView:
    """Constants of a layer [channels, ...] in a memory, pixel by pixel as its result lies."""
    config, words = planner.build.config, planner.build.config.words_of(node.value.lanes)
    each = [tiling.padded(one.reshape(len(one), -1).T, words * config.mfu_lanes, 1).reshape(-1)
            for one in (getattr(node.layer, field), getattr(planner.build.content(node.layer), field))]
    slot, name = planner.constant(mem, *each, f"{node.name}, {what}"), f"{node.name}, {what}"
    return NumbersView(numbers=TensorNumbers(value=node.value, words=words, buffer=Buffer(
        mem=slot.mem, address=slot.address, size=slot.words, name=name, kept=True)))
