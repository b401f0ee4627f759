"""Data flow to nodes of elements: copies vanish, constants are folded, quantisers become operations of their own."""

import numpy as np
from concord.spec.isa import SPECS, Op
from concord.spec.memories import Mem
from concord.spec.operations import Operation
from concord.twin.flow.flow import Flow, Origin, Refs, Step
from concord.twin.recovery import host
from concord.twin.recovery.elements import ZERO, Constants, Unrecognised, is_constant, refs
from concord.twin.recovery.loops import LoopSteps, loops, reads
from concord.twin.recovery.nodes import Body, Carried, Lowered, Node
from concord.twin.recovery.quantisers import Quantisers
from concord.twin.recovery.unquantised import Clips, RealConstants

#: Function of the vocabulary of each operation, and whether it takes its operands in reverse.
FUNCTIONS = {
    Operation.VV_ADD: ("add", False), Operation.VV_A_SUB_B: ("subtract", False),
    Operation.VV_B_SUB_A: ("subtract", True), Operation.VV_MAX: ("maximum", False),
    Operation.V_RELU: ("relu", False), Operation.V_SIGM: ("sigmoid", False), Operation.V_TANH: ("tanh", False),
    Operation.VV_MUL: ("multiply", False),
}


def lower(flow: Flow, *, unquantised: bool = False) -> Lowered:
    """The program as nodes.

    Args:
        flow:        Its data flow.
        unquantised: Whether its numbers are those in full precision, and its quantisers are off.

    Raises:
        Unrecognised: the program does something that has no form here.
    """
    return _Lowering(flow, unquantised).run()


class _Lowering:
    """Walks through the steps; `_content` holds the references of each value, element by element."""

    def __init__(self, flow: Flow, unquantised: bool):
        self.flow, self.firmware = flow, flow.firmware
        self.config = flow.firmware.config
        self.constants = (RealConstants if unquantised else Constants)(flow.firmware)
        self.nodes: list[Node | None] = [None, None]
        self.order: list[int] = []  # Nodes of the region that is being lowered.
        self._content: dict[int, np.ndarray] = {}
        self._shared: dict = {}  # Folded and quantised nodes of the region.
        self.quantisers = (Clips if unquantised else Quantisers)(self)

    def run(self) -> Lowered:
        inputs = [self.leaf(node) for node in host.input_nodes(self.firmware)]
        for index, value in enumerate(self.flow.values):
            if value.origin is Origin.INPUT:
                self._content[index] = host.input_content(self.firmware, inputs, value.count)
            elif value.origin is Origin.IMAGE and value.mem != Mem.MATRIX_RF:
                self._content[index] = self.constants.image(value.mem)
        main, done = [], 0
        for loop in loops(self.flow):
            main += self._region(range(done, loop.passes[0]))
            main.append(self._loop(loop))
            done = loop.last
        main += self._region(range(done, len(self.flow.steps)))
        content = self.look(self.flow.outputs, self.config.mfu_lanes).reshape(-1)
        return Lowered(constants=self.constants, nodes=self.nodes, inputs=inputs, main=main,
                       outputs=host.outputs(self.firmware, content))

    def leaf(self, node: Node) -> int:
        """Add a leaf; returns its index."""
        self.nodes.append(node)
        node.out = refs(len(self.nodes) - 1, np.arange(node.places * node.width))
        return len(self.nodes) - 1

    def node(self, node: Node, known: np.ndarray | None = None) -> np.ndarray:
        """Add a node of which some elements are constants; returns its `out` as [places, width].

        Args:
            known: References [places, width] to constants, -1 where the element is none.
        """
        if known is not None and (known >= 0).all():
            return known
        index = self.leaf(node)
        self.order.append(index)
        if known is not None:
            node.out = np.where(known.reshape(-1) >= 0, known.reshape(-1), node.out)
        return node.out.reshape(node.places, node.width)

    def look(self, table: Refs, unit: int) -> np.ndarray:
        """References to the elements of items: [..., unit]."""
        found = np.empty((*table.value.shape, unit), np.int64)
        for value in np.unique(table.value).tolist():
            mask = table.value == value
            found[mask] = self._content[value].reshape(-1, unit)[table.item[mask]]
        return found

    def _region(self, steps: range) -> list[int]:
        self.order = []
        for index in steps:
            self._step(self.flow.steps[index], self.flow.steps[index].reads)
        return self.order

    def _loop(self, loop: LoopSteps) -> Body:
        """Lower the template of a loop, and what others read of it."""
        body, first = Body(timed=loop.timed), loop.passes[1]
        numbers = range(loop.size)
        tables = {(k, place): reads(self.flow, loop, k, place)
                  for k in numbers for place in self.flow.steps[first + k].reads}
        states = self._states(loop, tables, body)
        body_reads = [{place: self._inside(loop, (k, place), tables[k, place], states, body)
                       for place in self.flow.steps[first + k].reads} for k in numbers]
        kept, self.order = self._shared, []
        self._shared = {}
        for k in numbers:
            self._step(self.flow.steps[first + k], body_reads[k])
        body.nodes, self._shared = self.order, kept
        for value, carried in states.items():
            carried.next = self._content[self._moved(value, loop, 1)]
        self._behind(loop, body)
        return body

    def _moved(self, value: int, loop: LoopSteps, passes: int) -> int:
        """The value that a later pass makes in the place of a value."""
        made = self.flow.values[value]
        return self.flow.steps[made.step + passes * loop.size].makes[made.place]

    def _unit(self, value: int) -> int:
        return self.config.native_dim if self.flow.values[value].mem == Mem.VECTOR_RF else self.config.mfu_lanes

    def _states(self, loop, tables, body) -> dict[int, Carried]:
        """What the template reads of the first pass, by the value of the first pass."""
        found: dict[int, Carried] = {}
        for table in tables.values():
            before, initial = table.outer[1], table.outer[0]
            for value in np.unique(before.value[table.state]).tolist():
                unit, count = self._unit(value), self.flow.values[value].count
                if value not in found:
                    leaf = self.leaf(Node(op="state", places=1, width=count * unit,
                                          address=self.flow.steps[self.flow.values[value].step].chain.address))
                    start = np.full(count * unit, refs(1, 0) if self._codes(value) else ZERO, np.int64)
                    found[value] = Carried(leaf=leaf, initial=start, next=start)
                    body.carried.append(found[value])
                mask = table.state & (before.value == value)
                part = self._unit(value)
                items = before.item[mask]
                at = found[value].initial.reshape(-1, part)
                at[items] = self.look(Refs(value=initial.value[mask], item=initial.item[mask]), part)
        for value, carried in found.items():
            # Lanes beyond Rows are zero in every pass.
            written = self._cut(value)
            zeros = written & is_constant(carried.initial)
            node = self.nodes[carried.leaf]
            node.out = np.where(zeros, carried.initial, node.out)
            self._content[len(self.flow.values) + carried.leaf] = node.out
        return found

    def _codes(self, value: int) -> bool:
        return self.flow.values[value].mem == Mem.VECTOR_RF

    def _cut(self, value: int) -> np.ndarray:
        """bool[elements], which elements of a value lie beyond Rows."""
        made = self.flow.values[value]
        chain, unit = self.flow.steps[made.step].chain, self._unit(value)
        rows = chain.registers.rows
        width = (chain.entries if self._codes(value) else chain.result_words) * unit
        return np.arange(made.count * unit) % width >= rows

    def _inside(self, loop, key, table, states, body) -> Refs:
        """The references of the template, where states and items of sequences are nodes of their own."""
        before = table.outer[1]
        value, item = before.value.copy(), before.item.copy()
        for each, carried in states.items():
            value[table.state & (before.value == each)] = len(self.flow.values) + carried.leaf
        moving = table.moving
        if moving.any():
            unit = self._unit(int(before.value[moving][0]))
            rows = np.stack([self.look(Refs(value=one.value[moving], item=one.item[moving]), unit).reshape(-1)
                             for one in table.outer])
            fixed = (rows == rows[0]).all(0) & is_constant(rows[0])
            step = self.flow.steps[loop.passes[1] + key[0]]
            leaf = self.leaf(Node(op="item", places=1, width=rows.shape[1], address=step.chain.address + key[1]))
            body.items.append((leaf, rows))
            index = len(self.flow.values) + leaf
            self.nodes[leaf].out = np.where(fixed, rows[0], self.nodes[leaf].out)
            self._content[index] = self.nodes[leaf].out
            value[moving], item[moving] = index, np.arange(moving.sum())
        return Refs(value=value, item=item)

    def _behind(self, loop, body):
        """Nodes for what is read of a loop behind it."""
        inside = {self.flow.steps[first + k].makes[place]: (number, k, place)
                  for number, first in enumerate(loop.passes) for k in range(loop.size)
                  for place in self.flow.steps[first + k].makes}
        used = {value for step in self.flow.steps[loop.last:] for table in step.reads.values()
                for value in np.unique(table.value).tolist() if value in inside}
        sent = {value for value in np.unique(self.flow.outputs.value).tolist() if value in inside}
        for key in sorted({inside[value][1:] for value in used | sent}):
            values = [self.flow.steps[first + key[0]].makes[key[1]] for first in loop.passes]
            content = self._content[values[1]]
            last = not (used | sent) & set(values[:-1])
            count = 1 if last else len(values)
            address = self.flow.steps[loop.passes[0] + key[0]].chain.address
            leaf = self.leaf(Node(op="final" if last else "collected", places=count, width=len(content),
                                  address=address))
            (body.finals if last else body.collected).append((leaf, content))
            fixed = np.tile(np.where(is_constant(content), content, -1), count)
            out = np.where(fixed >= 0, fixed, self.nodes[leaf].out).reshape(count, -1)
            self.nodes[leaf].out = out.reshape(-1)
            for value, row in zip(values[-1:] if last else values, out, strict=True):
                self._content[value] = row

    def _step(self, step: Step, tables):
        """Add the nodes of one step."""
        chain, lanes = step.chain, self.config.mfu_lanes
        if chain.loads:
            raise Unrecognised("the program loads weights from the host")
        if step.span[0] % chain.result_words or step.span[1] % chain.result_words:
            raise Unrecognised("words of one iteration depend on each other")
        places = (step.span[1] - step.span[0]) // chain.result_words
        value = self._product(step, tables, places) if chain.product else self._source(step, tables, places)
        for place, instruction in enumerate(chain.instructions):
            operation = SPECS[instruction.op].operation
            if instruction.op == Op.V_WR:
                self._write(step, place, value)
            elif instruction.op == Op.V_SOFTMAX:
                value = self._softmax(step, place, value)
            elif operation:
                operand = None
                if operation.operand:
                    operand = self.look(tables[place], lanes).reshape(places, -1)
                value = self._pointwise(step, place, operation, value, operand)

    def _source(self, step, tables, places) -> np.ndarray:
        """The numbers that the operations of a chain without product see."""
        chain, lanes = step.chain, self.config.mfu_lanes
        table = self.look(tables[0], lanes)  # [positions, pixels, lanes]
        table = np.moveaxis(table, 1, 2).reshape(places, chain.result_words * lanes, -1)
        if chain.source.mem == Mem.VECTOR_RF:
            table = self.quantisers.numbers(table, chain.source, chain.address)
        if table.shape[-1] == 1:
            return table[..., 0]
        known = np.where((table == table[..., :1]).all(-1) & is_constant(table[..., 0]), table[..., 0], -1)
        return self.node(Node(op="max_pool", places=places, width=table.shape[1], reads=(table,),
                              address=chain.address + 1, across=chain.registers.iterations_x), known)

    def _product(self, step, tables, places) -> np.ndarray:
        """The results of a product."""
        chain, config, size = step.chain, self.config, self.config.native_dim
        product, rows = chain.product, chain.registers.rows
        if chain.source.mem == Mem.VECTOR_RF:
            table = self.look(tables[0], size)
        else:
            words = self.look(tables[0], config.mfu_lanes)
            table = self.quantisers.codes(words.reshape(places, -1, size), product, chain.address)
        tiles = step.tiles
        if any(self.flow.values[value].origin is not Origin.IMAGE for value in np.unique(tiles.value)):
            raise Unrecognised("the program loads weights from the host")
        row_tiles, columns = tiles.item.shape
        inside = np.arange(size * size).reshape(size, size)
        index = tiles.item.astype(np.int64)[:, None, :, None] * size**2 + inside[:, None]
        weights = index.reshape(row_tiles * size, columns * size)[:rows]
        if table.ndim == 4:  # Each row tile reads columns of its own.
            spread = np.full((rows, row_tiles, columns * size), -1, np.int64)
            spread[np.arange(rows), np.arange(rows) // size] = weights
            weights = spread.reshape(rows, -1)
        width = chain.result_words * config.mfu_lanes
        known = np.full((places, width), -1, np.int64)
        known[:, rows:] = ZERO
        if is_constant(table).all():
            known[:, :rows] = self.constants.product(chain, table, tiles.item, rows)
        settings = bool(product.integer), chain.registers.out_scale if product.integer else 0
        node = Node(op="product", places=places, width=width, reads=(table.reshape(places, -1),), settings=settings,
                    address=chain.address + 1, across=chain.registers.iterations_x, weights=weights,
                    start=product.b * config.mfu_lanes + np.arange(rows) if product.bias else None)
        return self.node(node, known)

    def _pointwise(self, step, place, operation, value, operand) -> np.ndarray:
        """One point-wise operation, with results of constants computed."""
        operands = (value,) if operand is None else (value, operand)
        fixed = np.all([is_constant(each) for each in operands], 0)
        known = np.full(value.shape, -1, np.int64)
        if fixed.any():
            known[fixed] = self.constants.computed(operation, *(each[fixed] for each in operands))
        function, turned = FUNCTIONS[operation]
        chain = step.chain
        return self.node(Node(op=function, places=value.shape[0], width=value.shape[1],
                              reads=operands[::-1] if turned else operands, address=chain.address + place,
                              across=chain.registers.iterations_x), known)

    def _softmax(self, step, place, value) -> np.ndarray:
        """The softmax of the elements of each place."""
        rows = step.chain.registers.rows
        known = np.where(np.arange(value.shape[1]) < rows, -1, ZERO) + np.zeros((len(value), 1), np.int64)
        return self.node(Node(op="softmax", places=len(value), width=value.shape[1], reads=(value,), settings=(rows,),
                              address=step.chain.address + place, across=step.chain.registers.iterations_x), known)

    def _write(self, step, place, value):
        """The content that a `v_wr` writes."""
        chain, instruction, size = step.chain, step.chain.instructions[place], self.config.native_dim
        written = np.where(np.arange(value.shape[1]) < chain.registers.rows, value, ZERO)
        if instruction.mem == Mem.VECTOR_RF:
            entries = np.full((len(written), chain.entries * size), ZERO, np.int64)
            entries[:, :written.shape[1]] = written
            written = self.quantisers.codes(entries.reshape(len(written), -1, size), instruction,
                                            chain.address + place)
        self._content[step.makes[place]] = written.reshape(-1)
