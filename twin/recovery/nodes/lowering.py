"""Data flow to nodes of elements: copies vanish, constants are folded, quantisers become operations of their own.

Loops become bodies: one pass as a template, its states, the items that it takes, and what others read after it. The
host's side gives elements of a sample in the words that it sends, and results in those that it gets.
"""

import numpy as np
from concord.firmware.firmware import Firmware
from concord.spec.isa.memories import Mem
from concord.twin.flow.flow import Flow, Origin, Refs
from concord.twin.recovery.nodes.elements import ZERO, Unrecognised, is_constant, refs
from concord.twin.recovery.nodes.graph import Chains, NodeRegions
from concord.twin.recovery.nodes.loops import LoopSteps, loops, reads
from concord.twin.recovery.nodes.nodes import Body, Carried, ProgramNode, ProgramNodes


def lower(flow: Flow, *, unquantized: bool = False) -> ProgramNodes:
    """The program as nodes.

    Args:
        flow:        Its data flow.
        unquantised: Whether its numbers are those in full precision, and its quantisers are off.

    Raises:
        Unrecognised: the program does something that has no form here.
    """
    graph = NodeRegions(flow, unquantized=unquantized)
    inputs = _inputs(graph)
    chains = Chains(graph)
    bodies, main, done = Bodies(graph, chains), [], 0
    for loop in loops(flow):
        main.append(_region(graph, chains, range(done, loop.passes[0])))
        main.append(bodies.body(loop))
        done = loop.last
    main.append(_region(graph, chains, range(done, len(flow.steps))))
    content = graph.look(flow.outputs, graph.config.mfu_lanes).reshape(-1)
    return ProgramNodes(constants=graph.constants, nodes=graph.nodes, inputs=inputs, main=main,
                        outputs=outputs_of(graph.firmware, content))


def _inputs(graph: NodeRegions) -> list[int]:
    """Nodes of the inputs; what the host sends, and what memories hold before the program starts, is known then."""
    inputs = [graph.leaf(node) for node in input_nodes(graph.firmware)]
    for index, value in enumerate(graph.flow.values):
        if value.origin is Origin.INPUT:
            graph.content[index] = input_content(graph.firmware, inputs, value.count)
        elif value.origin is Origin.IMAGE and value.mem != Mem.MATRIX_RF:
            graph.content[index] = graph.constants.image(value.mem)
    return inputs


def _region(graph: NodeRegions, chains: Chains, steps: range) -> list[int]:
    """The nodes of steps that follow each other."""
    graph.order = []
    for index in steps:
        chains.step(graph.flow.steps[index], graph.flow.steps[index].reads)
    return graph.order


class Bodies:
    """Makes the nodes of loops.

    Args:
        graph:  The nodes so far.
        chains: Makes the nodes of chains.
    """

    def __init__(self, graph: NodeRegions, chains: Chains):
        self._graph, self._flow, self._chains = graph, graph.flow, chains

    def body(self, loop: LoopSteps) -> Body:
        """Lower the template of a loop, and what others read of it."""
        body, first = Body(timed=loop.timed), loop.passes[1]
        numbers = range(loop.size)
        tables = {(k, index): reads(self._flow, loop, k, index)
                  for k in numbers for index in self._flow.steps[first + k].reads}
        states = self._states(loop, tables, body)
        body_reads = [{index: self._inside(loop, (k, index), tables[k, index], states, body)
                       for index in self._flow.steps[first + k].reads} for k in numbers]
        kept, self._graph.order = self._graph.shared, []
        self._graph.shared = {}
        for k in numbers:
            self._chains.step(self._flow.steps[first + k], body_reads[k])
        body.nodes, self._graph.shared = self._graph.order, kept
        for value, carried in states.items():
            carried.next = self._graph.content[self._moved(value, loop, 1)]
        self._behind(loop, body)
        return body

    def _moved(self, value: int, loop: LoopSteps, passes: int) -> int:
        """The value that a later pass makes instead of a value."""
        made = self._flow.values[value]
        return self._flow.steps[made.step + passes * loop.size].makes[made.index]

    def _unit(self, value: int) -> int:
        config = self._graph.config
        return config.native_dim if self._flow.values[value].mem == Mem.VECTOR_RF else config.mfu_lanes

    def _part(self, loop, key, value: int) -> int:
        """Elements of an item of a value as an instruction reads it: the pooling unit takes entries word by word."""
        number, index = key
        chain = self._flow.steps[loop.passes[1] + number].chain
        words = index == 0 and chain.from_entries and not chain.product
        return self._graph.config.mfu_lanes if words else self._unit(value)

    def _states(self, loop, tables, body) -> dict[int, Carried]:
        """What the template reads of the first pass, by the value of the first pass."""
        found: dict[int, Carried] = {}
        for key, table in tables.items():
            before, initial = table.outer[1], table.outer[0]
            for value in np.unique(before.value[table.state]).tolist():
                unit, count = self._unit(value), self._flow.values[value].count
                if value not in found:
                    leaf = self._graph.leaf(ProgramNode(op="state", positions=1, width=count * unit,
                                                        address=self._flow.steps[self._flow.values[value].step].chain.address))
                    start = np.full(count * unit, refs(1, 0) if self._codes(value) else ZERO, np.int64)
                    found[value] = Carried(leaf=leaf, initial=start, next=start)
                    body.carried.append(found[value])
                mask = table.state & (before.value == value)
                part = self._part(loop, key, value)
                items = before.item[mask]
                at = found[value].initial.reshape(-1, part)
                at[items] = self._graph.look(Refs(value=initial.value[mask], item=initial.item[mask]), part)
        for value, carried in found.items():
            # Lanes beyond Rows are zero in every pass, but the first one may read other numbers that are stored there.
            zeros = self._cut(value) & self._graph.constants.is_zero(carried.initial)
            node = self._graph.nodes[carried.leaf]
            node.out = np.where(zeros, carried.initial, node.out)
            self._graph.content[len(self._flow.values) + carried.leaf] = node.out
        return found

    def _codes(self, value: int) -> bool:
        return self._flow.values[value].mem == Mem.VECTOR_RF

    def _cut(self, value: int) -> np.ndarray:
        """bool[elements], which elements of a value lie beyond Rows."""
        made = self._flow.values[value]
        chain, unit = self._flow.steps[made.step].chain, self._unit(value)
        rows = chain.registers.rows
        width = (chain.entries if self._codes(value) else chain.result_words) * unit
        return np.arange(made.count * unit) % width >= rows

    def _inside(self, loop, key, table, states, body) -> Refs:
        """The references of the template, where states and items of sequences are nodes of their own."""
        before = table.outer[1]
        value, item = before.value.copy(), before.item.copy()
        for each, carried in states.items():
            value[table.state & (before.value == each)] = len(self._flow.values) + carried.leaf
        moving = table.moving
        if moving.any():
            unit = self._part(loop, key, int(before.value[moving][0]))
            rows = np.stack([self._graph.look(Refs(value=one.value[moving], item=one.item[moving]), unit).reshape(-1)
                             for one in table.outer])
            plain = self._graph.constants.plain(rows)
            fixed = (plain == plain[0]).all(0) & is_constant(rows[0])
            step = self._flow.steps[loop.passes[1] + key[0]]
            leaf = self._graph.leaf(ProgramNode(op="item", positions=1, width=rows.shape[1],
                                                address=step.chain.address + key[1]))
            body.items.append((leaf, rows))
            index = len(self._flow.values) + leaf
            self._graph.nodes[leaf].out = np.where(fixed, rows[0], self._graph.nodes[leaf].out)
            self._graph.content[index] = self._graph.nodes[leaf].out
            value[moving], item[moving] = index, np.arange(moving.sum())
        return Refs(value=value, item=item)

    def _behind(self, loop, body):
        """Nodes for what is read of a loop after it."""
        inside = {self._flow.steps[first + k].makes[index]: (number, k, index)
                  for number, first in enumerate(loop.passes) for k in range(loop.size)
                  for index in self._flow.steps[first + k].makes}
        used = {value for step in self._flow.steps[loop.last:] for table in step.reads.values()
                for value in np.unique(table.value).tolist() if value in inside}
        sent = {value for value in np.unique(self._flow.outputs.value).tolist() if value in inside}
        for key in sorted({inside[value][1:] for value in used | sent}):
            values = [self._flow.steps[first + key[0]].makes[key[1]] for first in loop.passes]
            content = self._graph.content[values[1]]
            last = not (used | sent) & set(values[:-1])
            count = 1 if last else len(values)
            address = self._flow.steps[loop.passes[0] + key[0]].chain.address
            op = "final" if last else "collected"
            leaf = self._graph.leaf(ProgramNode(op=op, positions=count, width=len(content), address=address))
            (body.finals if last else body.collected).append((leaf, content))
            fixed = np.tile(np.where(is_constant(content), content, -1), count)
            out = np.where(fixed >= 0, fixed, self._graph.nodes[leaf].out).reshape(count, -1)
            self._graph.nodes[leaf].out = out.reshape(-1)
            for value, row in zip(values[-1:] if last else values, out, strict=True):
                self._graph.content[value] = row


def input_nodes(firmware: Firmware) -> list[ProgramNode]:
    """A node for the input, or one for each direction in which the host reads a sequence.

    Images have their elements by row, column and channel, sequences by time step.
    """
    if firmware.recurrent:
        positions = 1 if firmware.steps is None else firmware.steps
        return [ProgramNode(op="input", positions=positions, width=firmware.inputs) for _ in firmware.directions]
    if firmware.image:
        channels, rows, columns = firmware.image
        return [ProgramNode(op="input", positions=rows * columns, width=channels)]
    return [ProgramNode(op="input", positions=1, width=firmware.inputs)]


def input_content(firmware: Firmware, nodes: list[int], words: int) -> np.ndarray:
    """References to the elements of the words that the host sends, element by element.

    Args:
        nodes: The nodes of `input_nodes`.
        words: Number of words that the program takes.
    """
    config, layout = firmware.config, firmware.input_layout
    wanted = words * config.mfu_lanes
    if layout:
        order = layout.order().reshape(-1)
        content = np.where(order < 0, ZERO, refs(nodes[0], _by_pixel(layout)[order]))
    else:
        lanes = (firmware.input_words or config.vectors_of(firmware.inputs) * config.vector_words) * config.mfu_lanes
        steps = (firmware.steps or -(-wanted // (lanes * len(nodes)))) if firmware.recurrent else 1
        content = np.full((steps, len(nodes), lanes), ZERO, np.int64)
        elements = np.arange(firmware.inputs) + np.arange(steps)[:, None] * firmware.inputs
        for direction, node in enumerate(nodes):
            content[:, direction, :firmware.inputs] = refs(node, elements)
        content = content.reshape(-1)
    if len(content) < wanted:
        raise Unrecognised("the program takes more words than the host sends for one input")
    return content[:wanted]


def _by_pixel(layout) -> np.ndarray:
    """Index by row, column and channel of each element by channel, row and column."""
    shape = layout.channels, layout.rows, layout.columns
    channel, row, column = np.indices(shape)
    return ((row * layout.columns + column) * layout.channels + channel).reshape(-1)


def outputs_of(firmware: Firmware, content: np.ndarray) -> np.ndarray:
    """References to the results, from those to all elements that the host gets."""
    layout = firmware.output_layout
    if layout:
        order, result = layout.order().reshape(-1), np.zeros(layout.size, np.int64)
        result[order[order >= 0]] = content[:len(order)][order >= 0]
        return result
    return content[:firmware.outputs]
