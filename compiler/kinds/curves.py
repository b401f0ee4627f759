"""Functions of single numbers, and products of images and vectors of their channels: chains that read numbers."""

from dataclasses import replace

import numpy as np
from concord.compiler.emit.chains import OpenChain
from concord.compiler.emit.sources import FromNumbers
from concord.compiler.graph.network import PlannedNetwork
from concord.compiler.graph.nodes import CompiledKind
from concord.compiler.lib import limits
from concord.compiler.plan.demands import Demands, Reading
from concord.compiler.plan.planner import Planner
from concord.spec.isa.memories import OPERAND_MEMORIES
from concord.spec.isa.operations import Operation, Stage, position
from concord.spec.numbers.activation import Activation


class CurveKind(CompiledKind):
    """An activation function of a tensor, in a chain that reads its numbers."""

    def limits(self, layer, config, *, images):
        return [] if images else limits.vector_rows(layer.outputs)

    def made(self, network: PlannedNetwork, layer, sources):
        return replace(sources[0], name=layer.name)

    def demand(self, demands: Demands, node):
        demands.readings[node.name] = Reading(view=demands.numbers_of(node.sources[0]))

    def plan(self, planner: Planner, node):
        chain = OpenChain(source=FromNumbers(view=planner.demands.readings[node.name].view))
        chain.activate(node.activation)
        planner.begin(node, chain)


class LeakyKind(CurveKind):
    """A leaky relu: the chain reads the tensor, multiplies it, and takes the maximum of both."""

    def computed(self, network, node):
        return position(Stage.ADD, 1)

    def demand(self, demands: Demands, node):
        view = demands.numbers_of(node.sources[0], OPERAND_MEMORIES[Stage.ADD][1])
        demands.readings[node.name] = Reading(view=view)

    def plan(self, planner: Planner, node):
        view, channels = planner.demands.readings[node.name].view, node.value.shape[0]
        chain, build, factor = OpenChain(source=FromNumbers(view=view)), planner.build, node.layer.factor
        content = np.array([build.content(node.layer).slope]) if build.real else factor
        planner.operate(chain, Operation.VV_MUL, node, factor.repeat(channels), "slope", content.repeat(channels))
        chain.apply(Operation.VV_MAX, 1, view)
        planner.begin(node, chain)


class ClippedKind(CurveKind):
    """A clipped line in one chain: max(relu(x + shift) * -slope, -ceiling) * -1."""

    def computed(self, network, node):
        return position(Stage.MUL, 1)

    def plan(self, planner: Planner, node):
        chain = OpenChain(source=FromNumbers(view=planner.demands.readings[node.name].view))
        if node.layer.moves:
            self._operate(planner, node, chain, Operation.VV_ADD, 0, "shift")
        chain.activate(Activation.RELU)
        self._operate(planner, node, chain, Operation.VV_MUL, 1, "slope")
        self._operate(planner, node, chain, Operation.VV_MAX, 2, "ceiling")
        self._operate(planner, node, chain, Operation.VV_MUL, 3, "sign")
        planner.begin(node, chain)

    @staticmethod
    def _operate(planner: Planner, node, chain: OpenChain, operation: Operation, index: int, what: str):
        """Go on with an operation whose other operand is one number of the layer, repeated."""
        layer, build = node.layer, planner.build
        contents = build.content(layer).real_operands if build.real else layer.operands
        values, content = (one[[index]].repeat(node.value.shape[0]) for one in (layer.operands, contents))
        planner.operate(chain, operation, node, values, what, content)


class LimitedKind(ClippedKind):
    """Two limits in one chain: max(max(x, lowest) * -1, -highest) * -1."""

    def plan(self, planner: Planner, node):
        chain, layer = OpenChain(source=FromNumbers(view=planner.demands.readings[node.name].view)), node.layer
        if layer.lowest is not None:
            self._operate(planner, node, chain, Operation.VV_MAX, 0, "lowest")
        if layer.highest is not None:
            self._operate(planner, node, chain, Operation.VV_MUL, 1, "turned")
            self._operate(planner, node, chain, Operation.VV_MAX, 2, "highest")
            self._operate(planner, node, chain, Operation.VV_MUL, 3, "sign")
        planner.begin(node, chain)


class GeluKind(CurveKind):
    """GELU in two chains: cube * x**2 for a strip, then x * sigmoid(x * (line + cube * x**2))."""

    def computed(self, network, node):
        return position(Stage.MUL, 1)

    def demand(self, demands: Demands, node):
        for memory in OPERAND_MEMORIES[Stage.MUL][::-1]:
            view = demands.numbers_of(node.sources[0], memory)
        demands.readings[node.name] = Reading(view=view)

    def plan(self, planner: Planner, node):
        x, build = planner.demands.readings[node.name].view, planner.build
        again = planner.demands.numbers_of(node.sources[0], OPERAND_MEMORIES[Stage.MUL][1])
        real = build.content(node.layer)
        factors = node.layer.factors
        contents = np.array([real.line, real.cube]) if build.real else factors
        (line, cube), (real_line, real_cube) = (
            [one.repeat(node.value.shape[0]) for one in np.split(values, 2)] for values in (factors, contents))
        planner.begin_pass(node.value)
        square = OpenChain(source=FromNumbers(view=x))
        square.apply(Operation.VV_MUL, 0, x)
        planner.operate(square, Operation.VV_MUL, node, cube, "cube", real_cube)
        strip = planner.strip(node.value)
        square.write(strip)
        planner.append(node, square)
        chain = OpenChain(source=FromNumbers(view=strip))
        planner.operate(chain, Operation.VV_ADD, node, line, "line", real_line)
        chain.apply(Operation.VV_MUL, 0, x)
        chain.activate(Activation.SIGMOID)
        chain.apply(Operation.VV_MUL, 1, again)
        planner.complete(node, chain)


class GatedKind(CompiledKind):
    """The product of an image and a vector of its channels, in a chain that reads the image pixel by pixel."""

    def made(self, network: PlannedNetwork, layer, sources):
        image, gate = sources
        if not np.array_equal(image.places, gate.places):
            network.problem(layer, "its image and its vector lie in different order: let the parts of a concatenation "
                                   f"in front be multiples of {network.config.native_dim} channels")
        return replace(image, name=layer.name)

    def computed(self, network: PlannedNetwork, node):
        return position(Stage.MUL, 0)

    def demand(self, demands: Demands, node):
        image, gate = node.sources
        demands.numbers_of(gate, OPERAND_MEMORIES[Stage.MUL][0])
        demands.readings[node.name] = Reading(view=demands.numbers_of(image))

    def plan(self, planner: Planner, node):
        gate = planner.demands.numbers_of(node.sources[1], OPERAND_MEMORIES[Stage.MUL][0])
        chain = OpenChain(source=FromNumbers(view=planner.demands.readings[node.name].view))
        chain.apply(Operation.VV_MUL, 0, replace(gate, still=True))
        chain.activate(node.activation)
        planner.begin(node, chain)
