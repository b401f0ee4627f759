"""Layers that see all elements of a vector: chains that leave reductions for the chains after them.

The last word of a reduction holds it, and is the held operand of a later chain of the same pass.
"""

from dataclasses import replace

from concord.compiler.emit.chains import OpenChain
from concord.compiler.emit.sources import FromNumbers
from concord.compiler.emit.storage import NumbersView
from concord.compiler.graph.network import PlannedNetwork
from concord.compiler.graph.nodes import PlannedNode
from concord.compiler.kinds.curves import CurveKind
from concord.compiler.lib import limits
from concord.compiler.plan.demands import Demands, Reading
from concord.compiler.plan.planner import Planner
from concord.golden.lib.float16 import to_bits
from concord.spec.isa.memories import OPERAND_MEMORIES
from concord.spec.isa.operations import Operation, Stage, position
from concord.spec.numbers.activation import Activation

_ADDED, _MULTIPLIED = OPERAND_MEMORIES[Stage.ADD], OPERAND_MEMORIES[Stage.MUL]


class ReducingKind(CurveKind):
    """What softmax and normalisations share."""

    def limits(self, layer, config, *, images):
        return super().limits(layer, config, images=images) + limits.reductions(config)

    def made(self, network: PlannedNetwork, layer, sources):
        if sources[0].lanes > sources[0].shape[0]:
            network.problem(layer, "it reduces a vector whose elements follow each other: put a layer with weights "
                                   "between it and a concatenation")
        return super().made(network, layer, sources)


class SoftmaxInsideKind(ReducingKind):
    """The largest element; the exponentials of the differences and the reciprocal of their sum; their product."""

    def computed(self, network: PlannedNetwork, node):
        return position(Stage.MUL, 0)

    def plan(self, planner: Planner, node):
        x = planner.demands.readings[node.name].view
        planner.begin_pass(node.value)
        largest = planner.strip_in(_ADDED[0], node.value)
        chain = OpenChain(source=FromNumbers(view=x))
        chain.apply(Operation.V_LARGEST, 0)
        _end(planner, node, chain, largest)

        powers = planner.strip(node.value, frozenset({_MULTIPLIED[0]}))
        factor = planner.strip_in(_MULTIPLIED[0], node.value)
        chain = exponentials(x, largest)
        chain.write(powers)
        reciprocals(chain, factor)
        planner.append(node, chain)
        chain = OpenChain(source=FromNumbers(view=powers))
        chain.apply(Operation.VV_MUL, 0, replace(factor, held=True))
        planner.complete(node, chain)


class VectorNormKind(ReducingKind):
    """The mean; the differences from it, also times the weights; their mean square; the product with its root."""

    def computed(self, network: PlannedNetwork, node):
        return position(Stage.ADD, 1)

    def demand(self, demands: Demands, node):
        mem = None if node.layer.centred else _MULTIPLIED[1]
        demands.readings[node.name] = Reading(view=demands.numbers_of(node.sources[0], mem))

    def plan(self, planner: Planner, node):
        x, layer = planner.demands.readings[node.name].view, node.layer
        planner.begin_pass(node.value)
        weighted = planner.strip(node.value, frozenset({_MULTIPLIED[1]}))
        chain, d = OpenChain(source=FromNumbers(view=x)), x
        if layer.centred:
            mean, d = (planner.strip_in(mem, node.value) for mem in (_ADDED[0], _MULTIPLIED[1]))
            first = OpenChain(source=FromNumbers(view=x))
            first.apply(Operation.V_SUM, 0)
            self._constant(planner, node, first, Operation.VV_MUL, "mean")
            _end(planner, node, first, mean)
            chain.apply(Operation.VV_ADD, 0, replace(mean, held=True))
            chain.write(d)
        self._numbers(planner, node, chain, Operation.VV_MUL, "weight")
        _end(planner, node, chain, weighted)

        squares = planner.strip(node.value)
        chain = OpenChain(source=FromNumbers(view=d))
        self._constant(planner, node, chain, Operation.VV_MUL, "share")
        chain.apply(Operation.VV_MUL, 1, d)
        _end(planner, node, chain, squares)

        factor = planner.strip_in(_MULTIPLIED[0], node.value)
        chain = OpenChain(source=FromNumbers(view=squares))
        chain.apply(Operation.V_SUM, 0)
        self._constant(planner, node, chain, Operation.VV_ADD, "floor")
        chain.activate(Activation.RSQRT)
        self._constant(planner, node, chain, Operation.VV_MUL, "root")
        _end(planner, node, chain, factor)

        chain = OpenChain(source=FromNumbers(view=weighted))
        chain.apply(Operation.VV_MUL, 0, replace(factor, held=True))
        self._numbers(planner, node, chain, Operation.VV_ADD, "bias")
        planner.complete(node, chain)

    @staticmethod
    def _constant(planner, node, chain, operation, name):
        number = node.layer.numbers[name]
        bits = to_bits([number])
        planner.hold(chain, operation, bits, [planner.build.content(node.layer).numbers[name]]
                     if planner.build.real else bits, f"{node.name}, {name}")

    @staticmethod
    def _numbers(planner, node, chain, operation, name):
        content = planner.build.content(node.layer)
        planner.operate(chain, operation, node, getattr(node.layer, name), name, getattr(content, name))


def exponentials(x: NumbersView, largest: NumbersView) -> OpenChain:
    """The beginning of a chain that computes exp(x - largest)."""
    chain = OpenChain(source=FromNumbers(view=x))
    chain.apply(Operation.VV_A_SUB_B, 0, replace(largest, held=True))
    chain.activate(Activation.EXP)
    return chain


def reciprocals(chain: OpenChain, factor: NumbersView):
    """The end of a chain that writes the reciprocals of the sums of what it has computed."""
    chain.apply(Operation.V_SUM, 1)
    chain.activate(Activation.RECIPROCAL)
    chain.write(factor)


def _end(planner: Planner, node: PlannedNode, chain: OpenChain, target: NumbersView):
    chain.write(target)
    planner.append(node, chain)
