"""Loops to bodies: one pass as a template, its states, the items that it takes, and what others read behind it."""

import numpy as np
from concord.spec.isa.memories import Mem
from concord.twin.flow.flow import Refs
from concord.twin.recovery.nodes.chains import Chains
from concord.twin.recovery.nodes.elements import ZERO, is_constant, refs
from concord.twin.recovery.nodes.graph import Graph
from concord.twin.recovery.nodes.loops import LoopSteps, reads
from concord.twin.recovery.nodes.nodes import Body, Carried, Node


class Bodies:
    """Makes the nodes of loops.

    Args:
        graph:  The nodes so far.
        chains: Makes the nodes of chains.
    """

    def __init__(self, graph: Graph, chains: Chains):
        self._graph, self._flow, self._chains = graph, graph.flow, chains

    def body(self, loop: LoopSteps) -> Body:
        """Lower the template of a loop, and what others read of it."""
        body, first = Body(timed=loop.timed), loop.passes[1]
        numbers = range(loop.size)
        tables = {(k, place): reads(self._flow, loop, k, place)
                  for k in numbers for place in self._flow.steps[first + k].reads}
        states = self._states(loop, tables, body)
        body_reads = [{place: self._inside(loop, (k, place), tables[k, place], states, body)
                       for place in self._flow.steps[first + k].reads} for k in numbers]
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
        """The value that a later pass makes in the place of a value."""
        made = self._flow.values[value]
        return self._flow.steps[made.step + passes * loop.size].makes[made.place]

    def _unit(self, value: int) -> int:
        config = self._graph.config
        return config.native_dim if self._flow.values[value].mem == Mem.VECTOR_RF else config.mfu_lanes

    def _states(self, loop, tables, body) -> dict[int, Carried]:
        """What the template reads of the first pass, by the value of the first pass."""
        found: dict[int, Carried] = {}
        for table in tables.values():
            before, initial = table.outer[1], table.outer[0]
            for value in np.unique(before.value[table.state]).tolist():
                unit, count = self._unit(value), self._flow.values[value].count
                if value not in found:
                    leaf = self._graph.leaf(Node(op="state", places=1, width=count * unit,
                                                 address=self._flow.steps[self._flow.values[value].step].chain.address))
                    start = np.full(count * unit, refs(1, 0) if self._codes(value) else ZERO, np.int64)
                    found[value] = Carried(leaf=leaf, initial=start, next=start)
                    body.carried.append(found[value])
                mask = table.state & (before.value == value)
                part = self._unit(value)
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
            unit = self._unit(int(before.value[moving][0]))
            rows = np.stack([self._graph.look(Refs(value=one.value[moving], item=one.item[moving]), unit).reshape(-1)
                             for one in table.outer])
            plain = self._graph.constants.plain(rows)
            fixed = (plain == plain[0]).all(0) & is_constant(rows[0])
            step = self._flow.steps[loop.passes[1] + key[0]]
            leaf = self._graph.leaf(Node(op="item", places=1, width=rows.shape[1], address=step.chain.address + key[1]))
            body.items.append((leaf, rows))
            index = len(self._flow.values) + leaf
            self._graph.nodes[leaf].out = np.where(fixed, rows[0], self._graph.nodes[leaf].out)
            self._graph.content[index] = self._graph.nodes[leaf].out
            value[moving], item[moving] = index, np.arange(moving.sum())
        return Refs(value=value, item=item)

    def _behind(self, loop, body):
        """Nodes for what is read of a loop behind it."""
        inside = {self._flow.steps[first + k].makes[place]: (number, k, place)
                  for number, first in enumerate(loop.passes) for k in range(loop.size)
                  for place in self._flow.steps[first + k].makes}
        used = {value for step in self._flow.steps[loop.last:] for table in step.reads.values()
                for value in np.unique(table.value).tolist() if value in inside}
        sent = {value for value in np.unique(self._flow.outputs.value).tolist() if value in inside}
        for key in sorted({inside[value][1:] for value in used | sent}):
            values = [self._flow.steps[first + key[0]].makes[key[1]] for first in loop.passes]
            content = self._graph.content[values[1]]
            last = not (used | sent) & set(values[:-1])
            count = 1 if last else len(values)
            address = self._flow.steps[loop.passes[0] + key[0]].chain.address
            leaf = self._graph.leaf(Node(op="final" if last else "collected", places=count, width=len(content),
                                         address=address))
            (body.finals if last else body.collected).append((leaf, content))
            fixed = np.tile(np.where(is_constant(content), content, -1), count)
            out = np.where(fixed >= 0, fixed, self._graph.nodes[leaf].out).reshape(count, -1)
            self._graph.nodes[leaf].out = out.reshape(-1)
            for value, row in zip(values[-1:] if last else values, out, strict=True):
                self._graph.content[value] = row
