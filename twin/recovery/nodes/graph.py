"""The nodes of a program as they are made, and what each value of its flow holds; chains become nodes."""

import numpy as np
from concord.spec.isa.instructions import SPECS, Op
from concord.spec.isa.memories import Mem
from concord.spec.isa.operations import Operation
from concord.twin.flow.flow import Flow, FlowStep, Origin, Refs
from concord.twin.lib.script import EXACT_ELEMENTS
from concord.twin.recovery.nodes.computed import ComputedProducts
from concord.twin.recovery.nodes.copies import copied
from concord.twin.recovery.nodes.elements import ZERO, Constants, RealConstants, Unrecognised, is_constant, refs
from concord.twin.recovery.nodes.nodes import ProgramNode
from concord.twin.recovery.nodes.quantizers import Clips, Quantizers


class NodeRegions:
    """The nodes that have been made, region by region.

    Args:
        flow:        Data flow of the program.
        unquantised: Whether its numbers are those in full precision, and its quantisers are off.

    Attributes:
        constants:  The constants.
        nodes:      All nodes by index; None for the two nodes of constants.
        order:      Nodes of the region that is being lowered.
        content:    References of each value of the flow, element by element.
        shared:     Quantised nodes of the region.
        quantisers: Makes the nodes of quantisers.
    """

    def __init__(self, flow: Flow, *, unquantized: bool):
        self.flow, self.firmware = flow, flow.firmware
        self.config = flow.firmware.config
        self.constants = (RealConstants if unquantized else Constants)(flow.firmware)
        self.nodes: list[ProgramNode | None] = [None, None]
        self.order: list[int] = []
        self.content: dict[int, np.ndarray] = {}
        self.shared: dict = {}
        self.quantizers = (Clips if unquantized else Quantizers)(self)

    def leaf(self, node: ProgramNode) -> int:
        """Add a leaf; returns its index."""
        self.nodes.append(node)
        node.out = refs(len(self.nodes) - 1, np.arange(node.positions * node.width))
        return len(self.nodes) - 1

    def node(self, node: ProgramNode, known: np.ndarray | None = None) -> np.ndarray:
        """Add a node of which some elements are constants; returns its `out` as [positions, width].

        Args:
            known: References [positions, width] to constants, -1 where the element is none.
        """
        if known is not None and (known >= 0).all():
            return known
        index = self.leaf(node)
        self.order.append(index)
        if known is not None:
            node.out = np.where(known.reshape(-1) >= 0, known.reshape(-1), node.out)
        return node.out.reshape(node.positions, node.width)

    def look(self, table: Refs, unit: int) -> np.ndarray:
        """References to the elements of items: [..., unit]."""
        found = np.empty((*table.value.shape, unit), np.int64)
        for value in np.unique(table.value).tolist():
            mask = table.value == value
            found[mask] = self.content[value].reshape(-1, unit)[table.item[mask]]
        return found


class Chains:
    """Makes the nodes of chains.

    Args:
        graph: The nodes so far.
    """

    def __init__(self, graph: NodeRegions):
        self._graph, self._flow, self._config = graph, graph.flow, graph.config
        self._constants, self._quantizers = graph.constants, graph.quantizers
        self._computed = ComputedProducts(graph)

    def step(self, step: FlowStep, tables: dict[int, Refs]):
        """Add the nodes of one step.

        Args:
            step:   A chain as it runs once.
            tables: What each of its instructions reads.
        """
        chain, lanes = step.chain, self._config.mfu_lanes
        if chain.builds:
            self._computed.build(step, tables[0])
            return
        if chain.loads:
            raise Unrecognised("the program loads weights from the host")
        if step.span[0] % chain.result_words or step.span[1] % chain.result_words:
            raise Unrecognised("words of one iteration depend on each other")
        positions = (step.span[1] - step.span[0]) // chain.result_words
        value = self._product(step, tables, positions) if chain.product else self._source(step, tables, positions)
        for index, instruction in enumerate(chain.instructions):
            operation = SPECS[instruction.op].operation
            if instruction.op == Op.V_WR:
                self._write(step, index, value)
            elif instruction.op == Op.V_SOFTMAX:
                value = self._softmax(step, index, value)
            elif operation and operation.reduces:
                value = self._reduction(step, index, operation, value)
            elif operation:
                operand = None
                if operation.operand:
                    operand = self._graph.look(tables[index], lanes).reshape(positions, -1)
                    operand = np.repeat(operand[:, :1], value.shape[1], 1) if instruction.held else operand
                value = self._pointwise(step, index, operation, value, operand)

    def _source(self, step, tables, positions) -> np.ndarray:
        """The numbers that the operations of a chain without product see."""
        chain, lanes = step.chain, self._config.mfu_lanes
        table = self._graph.look(tables[0], lanes)  # [positions, pixels, lanes]
        table = np.moveaxis(table, 1, 2).reshape(positions, chain.result_words * lanes, -1)
        if chain.from_entries:
            table = self._quantizers.numbers(table, chain.source, chain.address)
        if not chain.pools:
            return table[..., 0]
        known = np.where((table == table[..., :1]).all(-1) & is_constant(table[..., 0]), table[..., 0], -1)
        return self._graph.node(ProgramNode(op="max_pool", positions=positions, width=table.shape[1], reads=(table,),
                                            address=chain.address + 1, across=chain.registers.iterations_x), known)

    def _product(self, step, tables, positions) -> np.ndarray:
        """The results of a product."""
        chain, config, size = step.chain, self._config, self._config.native_dim
        product, rows = chain.product, chain.registers.rows
        if chain.from_entries:
            table = self._graph.look(tables[0], size)
        else:
            words = self._graph.look(tables[0], config.mfu_lanes)
            table = self._quantizers.codes(words.reshape(positions, -1, size), product, chain.address)
        tiles, width = step.tiles, chain.result_words * config.mfu_lanes
        if any(self._flow.values[value].origin is not Origin.IMAGE for value in np.unique(tiles.value)):
            found = np.full((positions, width), ZERO, np.int64)
            found[:, :rows] = self._computed.product(chain, tiles, table)
            return found
        row_tiles, columns = tiles.item.shape
        inside = np.arange(size * size).reshape(size, size)
        index = tiles.item.astype(np.int64)[:, None, :, None] * size**2 + inside[:, None]
        weights = index.reshape(row_tiles * size, columns * size)[:rows]
        if table.ndim == 4:  # Each row tile reads columns of its own.
            spread = np.full((rows, row_tiles, columns * size), -1, np.int64)
            spread[np.arange(rows), np.arange(rows) // size] = weights
            weights = spread.reshape(rows, -1)
        known = np.full((positions, width), -1, np.int64)
        known[:, rows:] = ZERO
        if is_constant(table).all():
            known[:, :rows] = self._constants.product(chain, table, tiles.item, rows)
        settings = bool(product.integer), chain.registers.out_scale if product.integer else 0
        node = ProgramNode(op="product", positions=positions, width=width, reads=(table.reshape(positions, -1),),
                           settings=settings,
                           address=chain.address + 1, across=chain.registers.iterations_x, weights=weights,
                           start=product.b * config.mfu_lanes + np.arange(rows) if product.bias else None)
        return self._graph.node(node, known)

    def _pointwise(self, step, index, operation, value, operand) -> np.ndarray:
        """One point-wise operation, with results of constants computed."""
        operands = (value,) if operand is None else (value, operand)
        fixed = np.all([is_constant(each) for each in operands], 0)
        known = np.full(value.shape, -1, np.int64)
        if fixed.any():
            known[fixed] = self._constants.computed(operation, *(each[fixed] for each in operands))
        chain = step.chain
        reads = operands[::-1] if operation.swapped else operands
        found = self._graph.node(ProgramNode(op=operation.function, positions=value.shape[0], width=value.shape[1],
                                             reads=reads, address=chain.address + index,
                                             across=chain.registers.iterations_x), known)
        # Lanes with one number, as reductions leave it, have one result.
        copies = np.all([(each[:, 1:] == each[:, :-1]).all(0) for each in operands], 0)
        return found[:, np.maximum.accumulate(np.append(0, np.arange(1, found.shape[1]) * ~copies))]

    def _reduction(self, step, index, operation, value) -> np.ndarray:
        """The largest element, or the sum, of each position in all lanes of its last word; nobody may read others."""
        chain, lanes = step.chain, self._config.mfu_lanes
        rows, common = chain.registers.rows, {"positions": len(value), "address": chain.address + index,
                                              "across": chain.registers.iterations_x}
        if rows > EXACT_ELEMENTS:
            raise Unrecognised(f"software adds at most {EXACT_ELEMENTS} elements exactly")
        only = copied(self._graph.nodes, self._constants, value[:, :rows]) if operation is Operation.V_LARGEST else None
        made = only[:, None] if only is not None else self._graph.node(
            ProgramNode(op=operation.function, width=1, reads=(value[:, :rows],), **common))
        before = self._graph.node(ProgramNode(op="running", width=1, reads=(value[:, :1],), **common))
        return np.where(np.arange(value.shape[1]) < value.shape[1] - lanes, before, made)

    def _softmax(self, step, index, value) -> np.ndarray:
        """The softmax of the elements of each position."""
        rows = step.chain.registers.rows
        known = np.where(np.arange(value.shape[1]) < rows, -1, ZERO) + np.zeros((len(value), 1), np.int64)
        node = ProgramNode(op="softmax", positions=len(value), width=value.shape[1], reads=(value,), settings=(rows,),
                           address=step.chain.address + index, across=step.chain.registers.iterations_x)
        return self._graph.node(node, known)

    def _write(self, step, index, value):
        """The content that a `v_wr` writes."""
        chain, instruction, size = step.chain, step.chain.instructions[index], self._config.native_dim
        written = np.where(np.arange(value.shape[1]) < chain.registers.rows, value, ZERO)
        if instruction.mem == Mem.VECTOR_RF:
            entries = np.full((len(written), chain.entries * size), ZERO, np.int64)
            entries[:, :written.shape[1]] = written
            written = self._quantizers.codes(entries.reshape(len(written), -1, size), instruction,
                                            chain.address + index)
        self._graph.content[step.makes[index]] = written.reshape(-1)
