"""Quantisers as operations on whole nodes: each node is quantised once in each way, however often it is read.

In full precision, they are off.
"""

from collections.abc import Mapping

import numpy as np
from concord.golden.mvm.quantizer import quantize, quantize_block
from concord.spec.isa.instructions import Instruction, Op
from concord.twin.lib.script import quantizer
from concord.twin.recovery.nodes.elements import (
    ZERO,
    ZERO_CODE,
    Unrecognised,
    element_of,
    is_constant,
    node_of,
    read_by,
    refs,
)
from concord.twin.recovery.nodes.nodes import ProgramNode

#: Operations of nodes whose results are codes; `settings` is a `Quantizer`.
QUANTISING = ("integers", "floats", "blocks")


class Quantizers:
    """Makes the nodes of quantisers.

    Args:
        graph: The nodes so far; its `shared` holds the quantised nodes of the region.
    """

    def __init__(self, graph):
        self._graph, self._format = graph, graph.config.activations

    def codes(self, table: np.ndarray, instruction: Instruction, address: int) -> np.ndarray:
        """References to the codes of numbers.

        Args:
            table:       References [positions, entries, N].
            instruction: Product or write, which says the mode.

        Returns:
            References [positions, entries, N].
        """
        made = quantizer(self._format, table.shape[-1], integer=bool(instruction.integer),
                         unsigned=bool(instruction.unsigned))
        return self._blocks(table, made, address) if made.size else self._alone(table, made, address)

    def numbers(self, table: np.ndarray, instruction: Instruction, address: int) -> np.ndarray:
        """References to the numbers of codes, in the shape of `table`."""
        integer, unsigned = bool(instruction.integer), bool(instruction.unsigned)
        wanted = ("integers", unsigned and self._format.zero > 0) if integer else ("blocks", False)
        for node in map(self._graph.nodes.__getitem__, read_by(table)):
            if node.op in QUANTISING and (node.settings.codes, node.settings.zero > 0) != wanted:
                raise Unrecognised("codes are read as numbers in another mode than they were written in")
        known = self._graph.constants.numbers(table[is_constant(table)], integer=integer, unsigned=unsigned)
        return self._each(table, known, "numbers", (), address)

    def _alone(self, table, made, address):
        """Codes of numbers that are quantised one by one: integers, and floats that share no exponent."""
        fmt, constants, known = self._format, self._graph.constants, table[is_constant(table)]
        if known.size:
            mantissas, _ = quantize(constants.bits(known)[:, None], fmt, integer=made.codes == "integers",
                                    unsigned=dict(made.settings)["lowest"] == 0)
            known = constants.codes(mantissas[:, 0], np.full(len(mantissas), fmt.e_min))
        return self._each(table, known, made.function, made, address)

    def _each(self, table, known: np.ndarray, op: str, settings: tuple, address: int) -> np.ndarray:
        """References to the results of an operation on each element of a table; `known` are those of its constants."""
        found, fixed = np.empty_like(table), is_constant(table)
        found[fixed] = known
        for source in read_by(table):
            mask = ~fixed & (node_of(table) == source)
            found[mask] = self._once(source, op, settings, address)[element_of(table[mask])]
        return found

    def _once(self, source: int, op: str, settings: tuple, address: int,
              cleared: np.ndarray | None = None) -> np.ndarray:
        """`out` of the node that applies an operation to all of another node.

        Args:
            cleared: bool[width], elements that the operation sees as zeros.
        """
        key = source, op, settings, b"" if cleared is None else cleared.tobytes()
        shared = self._graph.shared
        if key not in shared:
            node = self._graph.nodes[source]
            table = node.out.reshape(node.positions, node.width)
            if cleared is not None:
                table = np.where(cleared, ZERO, table)
            fixed = is_constant(table)
            known = np.where(fixed, 0, -1) if fixed.any() else None  # Nobody reads these elements.
            shared[key] = self._graph.node(
                ProgramNode(op=op, positions=node.positions, width=node.width, reads=(table,), settings=settings,
                            address=address, across=node.across), known).reshape(-1)
        return shared[key]

    def _blocks(self, table, made, address):
        fixed = is_constant(table)
        found = np.full(table.shape, -1, np.int64)
        whole = fixed.all(-1)
        if whole.any():
            mantissas, exponents = quantize_block(self._graph.constants.bits(table[whole]), self._format)
            found[whole] = self._graph.constants.codes(mantissas, exponents[:, None])
        sources = read_by(table)
        for source in sources:
            mask = (np.where(fixed, source, node_of(table)) == source).all(-1) & ~whole
            cleared = self._cleared(table, fixed, mask, source, made.size)
            if cleared is not None:
                out = self._once(source, "blocks", made, address, cleared)
                found[mask] = np.where(fixed[mask], ZERO_CODE, out[element_of(table[mask]) * ~fixed[mask]])
        if (found < 0).any():
            return self._own(table, fixed, made, address)
        return found

    def _cleared(self, table, fixed, mask, source, size) -> np.ndarray | None:
        """Which elements of a node's positions are zeros in all blocks of `mask`, which are blocks of its positions.

        Returns:
            bool[width], or None where a block is none of its positions', or lacks an element that another one has.
        """
        node = self._graph.nodes[source]
        blocks, known = table[mask], fixed[mask]
        lanes = np.arange(size)
        base = np.where(known, 1 << 62, element_of(blocks) - lanes).min(-1)
        expected = refs(source, base[:, None] + lanes)
        inside = base % node.width if (base >= 0).all() else np.ones(1)
        if (inside % size).any() or not (known | (blocks == expected)).all():
            return None
        columns = inside[:, None] + lanes
        within = columns < node.width
        zeros = known & (self._graph.constants.values(np.where(known, blocks, 0)) == 0)
        if not ((~known & within) | zeros).all():
            return None
        out = node.out[np.minimum(base[:, None] + lanes, node.positions * node.width - 1)]
        used, cleared = np.zeros(node.width, bool), np.zeros(node.width, bool)
        used[columns[~known]] = True
        cleared[columns[zeros & within & ~is_constant(out)]] = True
        return None if (used & cleared).any() else cleared

    def _own(self, table, fixed, made, address):
        """A node of blocks that lie in no other node."""
        positions = len(table)
        flat = table.reshape(positions, -1)
        node = ProgramNode(op="blocks", positions=positions, width=flat.shape[1], reads=(flat,), settings=made,
                           address=address)
        zeros = fixed & (self._graph.constants.values(np.where(fixed, table, 0)) == 0)
        known = np.broadcast_to(np.where(zeros.reshape(positions, -1).all(0), ZERO_CODE, -1), flat.shape)
        out = self._graph.node(node, known)
        return out.reshape(table.shape)


class Clips(Quantizers):
    """Quantisers that are off: numbers stay as they are, or are clipped where that is an activation function."""

    def __init__(self, graph):
        super().__init__(graph)
        self._clips: Mapping[int, tuple[float, float]] = graph.firmware.full_precision.clips

    def codes(self, table: np.ndarray, instruction: Instruction, address: int) -> np.ndarray:
        """References to what a product or a write takes of numbers; see `Quantizers.codes`."""
        address += instruction.op == Op.MV_MUL  # A product's clip belongs to the instruction that multiplies.
        clip = self._clips.get(address)
        if clip is None:
            return table
        constants = self._graph.constants
        known = constants.add(np.clip(constants.values(table[is_constant(table)]), *clip))
        op, settings = ("relu", ()) if clip == (0, np.inf) else ("clip", clip)
        return self._each(table, known, op, settings, address)

    def numbers(self, table: np.ndarray, instruction: Instruction, address: int) -> np.ndarray:
        """The references themselves: entries of VectorRf hold numbers."""
        return table
