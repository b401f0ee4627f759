"""Recurrent layers, and the images of their hidden vectors: the layers of loops over time steps."""

from concord.compiler.cells.arithmetics import RECURRENT
from concord.compiler.emit.chains import OpenChain
from concord.compiler.emit.sources import FromNumbers, FromSlot
from concord.compiler.emit.storage import Buffer, NumbersView, TensorNumbers
from concord.compiler.emit.time_loops import TimeLoop
from concord.compiler.graph.entering import SequenceEntry
from concord.compiler.graph.network import PlannedNetwork
from concord.compiler.graph.nodes import CompiledKind, PlannedNode
from concord.compiler.graph.wiring import Wires
from concord.compiler.lib.program import NET, Slot
from concord.compiler.plan.demands import Demands, Reading
from concord.compiler.plan.planner import Planner
from concord.net.arithmetic.windows import TimeAxis


class LoopKind(CompiledKind):
    """A layer of a loop over time steps, the first recurrent layer of which plans all of it.

    Attributes:
        at_end: Whether it gives the vector of the last time step, after the images of all steps.
    """

    at_end = False

    def time(self, network: PlannedNetwork, node):
        first = network.node(network.loop(node).layers[0].name)
        return network.nodes.index(first), self.at_end, network.nodes.index(node)

    def plan(self, planner, node):
        pass


class HiddenImageKind(LoopKind):
    """The hidden vectors of all time steps as an image."""

    def follow(self, wires: Wires, layer, sources):
        wires.images[layer.name] = wires.all_steps(layer, sources[0])

    def demand(self, demands: Demands, node):
        """A loop that begins with the last time step writes numbers, of which a later chain makes codes."""
        demands.sinks[node.sources[0].name].followed = True
        if demands.network.loop(node).layers[0].reverse:
            demands.readings[node.name] = Reading(view=NumbersView(numbers=demands.new_numbers(node.value, None)))


class RecurrentKind(LoopKind):
    """A recurrent layer with any cell."""

    at_end = True

    def follow(self, wires: Wires, layer, sources):
        wires.follow_recurrent(layer, sources[0])

    def limits(self, layer, config, *, images):
        return RECURRENT[type(layer)].problems(layer, config)

    def objections(self, network: PlannedNetwork, layer, source):
        """The first recurrent layer of a loop reads time steps that hold the lanes of several pixels."""
        loop = network.loops[layer.name]
        if not loop.entry or layer is not loop.layers[0]:
            return []
        entry = SequenceEntry(config=network.config, entry=loop.entry, value=source)
        return entry.problems(layer) or RECURRENT[type(layer)].problems(entry.spread(layer), network.config)

    def demand(self, demands: Demands, node):
        """A loop over time steps reads numbers; in the loop, a layer reads the hidden vector of the one before it.

        The host sends time steps in order, so a loop that begins with the first one needs no copy of them.
        """
        network, source = demands.network, node.sources[0]
        sent = network.maker(source).layer is None
        if source.in_words:
            demands.sinks[source.name].followed = True
            entering = sent and not demands.from_net(source)
            demands.whole_vectors |= not network.before
            demands.readings[node.name] = Reading(view=demands.numbers_of(source, source.read) if entering else None)
        elif not network.begins_loop(node):
            demands.sinks[source.name].followed = True
        else:
            direct = sent and len(network.consumers(source)) == 1 and _in_order(network, node)
            demands.readings[node.name] = Reading(view=None if direct else demands.numbers_of(source))

    def plan(self, planner: Planner, node):
        if planner.demands.network.begins_loop(node):
            (_plan_inputs if node.value.in_words else _plan_image)(planner, node)


def _in_order(network: PlannedNetwork, node: PlannedNode) -> bool:
    """Whether a loop reads the pixels of its source from the first one to the last one."""
    loop, source = network.loop(node), node.sources[0]
    by_row = source.shape[1] == 1 or loop.entry.time is TimeAxis.ROWS
    return by_row and not node.layer.reverse


def _plan_image(planner: Planner, first: PlannedNode):
    """Plan a loop over the time steps of an image, what follows it in each step, and what follows the last step."""
    network, readings = planner.demands.network, planner.demands.readings
    loop = network.loop(first)
    made = TimeLoop.over_image(
        planner.build, len(planner.passes), first.value, loop, first.sources[0], readings[first.name].view)
    planner.passes.append(made)
    images = [network.node(layer.name) for layer in loop.images]
    whole = {node: readings[node.name].view for node in images if node.name in readings}
    for node in images:
        chain = OpenChain(source=FromSlot(slot=made.hidden[node.sources[0].name]))
        if node in whole:
            chain.write(whole[node])
            planner.append(node, chain)
        else:
            planner.complete(node, chain)
    for node, view in whole.items():
        planner.begin(node, OpenChain(source=FromNumbers(view=view)))
    for node in [network.node(layer.name) for layer in loop.layers]:
        if planner.demands.leaves_pass(node):
            planner.begin(node, OpenChain(source=FromSlot(slot=made.hidden[node.name])))


def _plan_inputs(planner: Planner, first: PlannedNode):
    """Plan a loop over the time steps that the host sends, and what follows the last step."""
    demands, network, config = planner.demands, planner.demands.network, planner.build.config
    loop = network.loop(first)
    entering = {node.name: next(map(planner.keep, demands.sinks[node.name].numbers), NET) for node in network.entering}
    rows = loop.layers[0].inputs
    rows = config.vectors_of(rows) * config.native_dim if demands.whole_vectors else rows
    made = TimeLoop.over_inputs(
        planner.build, len(planner.passes), first.value, loop, entering, rows=rows, every=network.every)
    planner.passes.append(made)
    if network.every:
        planner.note_sent(loop.layers[-1].name)
    for layer in loop.layers:
        _follow_hidden(planner, network.node(layer.name), made.hidden[layer.name])


def _follow_hidden(planner: Planner, node: PlannedNode, hidden: Slot):
    """Plan what follows the last time step of a recurrent layer: readers take its hidden vector where it lies."""
    sinks = planner.demands.sinks[node.name]
    here = Buffer(mem=hidden.mem, name=f"{node.name}, hidden", size=hidden.words, address=hidden.address, kept=True)
    view = NumbersView(numbers=TensorNumbers(value=node.value, buffer=here, words=hidden.words))
    for one in list(sinks.numbers):
        if one.numbers.value is node.value and one.buffer.mem in (None, hidden.mem):
            one.numbers.buffer = here
            sinks.numbers.remove(one)
    for one in (*sinks.numbers, *sinks.codes):
        planner.keep(one)
    if planner.demands.leaves_pass(node):
        planner.begin(node, OpenChain(source=FromNumbers(view=view)))
