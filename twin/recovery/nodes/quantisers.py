"""Quantisers as operations on whole nodes: each node is quantised once in each way, however often it is read."""

import numpy as np
from concord.golden.mvm.quantizer import quantize_block, quantize_integer
from concord.spec.isa import Instruction
from concord.twin.recovery.nodes.elements import (
    ZERO_CODE,
    Unrecognised,
    element_of,
    is_constant,
    node_of,
    read_by,
    refs,
)
from concord.twin.recovery.nodes.nodes import Node


class Quantisers:
    """Makes the nodes of quantisers for a lowering.

    Args:
        lowering: The lowering; its `node` adds a node to the present region, and `shared` holds those of the region.
    """

    def __init__(self, lowering):
        self._lowering, self._format = lowering, lowering.config.activations

    def codes(self, table: np.ndarray, instruction: Instruction, address: int) -> np.ndarray:
        """References to the codes of numbers.

        Args:
            table:       References [places, entries, N].
            instruction: Product or write, which says the mode.

        Returns:
            References [places, entries, N].
        """
        if instruction.integer:
            return self._integers(table, bool(instruction.unsigned), address)
        return self._blocks(table, address)

    def numbers(self, table: np.ndarray, instruction: Instruction, address: int) -> np.ndarray:
        """References to the numbers of codes, in the shape of `table`."""
        integer, unsigned = bool(instruction.integer), bool(instruction.unsigned)
        found, fixed = np.empty_like(table), is_constant(table)
        found[fixed] = self._lowering.constants.numbers(table[fixed], integer=integer, unsigned=unsigned)
        wanted = ("integers", unsigned) if integer else ("blocks", False)
        for source in read_by(table):
            node = self._lowering.nodes[source]
            if node.op not in ("state", "item", "collected", "final") and (node.op, self._zero(node) > 0) != wanted:
                raise Unrecognised("codes are read as numbers in another mode than they were written in")
            out = self._once(source, "numbers", (), address)
            mask = ~fixed & (node_of(table) == source)
            found[mask] = out[element_of(table[mask])]
        return found

    def _zero(self, node: Node) -> int:
        return node.settings[2] if node.op == "integers" else 0

    def _integers(self, table, unsigned, address):
        fmt = self._format
        low, high = (0, fmt.levels) if unsigned else (fmt.lowest, fmt.highest)
        found, fixed = np.empty_like(table), is_constant(table)
        if fixed.any():
            mantissas = quantize_integer(self._lowering.constants.bits(table[fixed]), fmt, unsigned=unsigned)
            found[fixed] = self._lowering.constants.codes(mantissas, np.full(mantissas.shape, fmt.e_min))
        for source in read_by(table):
            out = self._once(source, "integers", (low, high, fmt.zero * unsigned), address)
            mask = ~fixed & (node_of(table) == source)
            found[mask] = out[element_of(table[mask])]
        return found

    def _once(self, source: int, op: str, settings: tuple, address: int) -> np.ndarray:
        """`out` of the node that applies an operation to all of another node."""
        key = source, op, settings
        shared = self._lowering.shared
        if key not in shared:
            node = self._lowering.nodes[source]
            table = node.out.reshape(node.places, node.width)
            fixed = is_constant(table)
            known = np.where(fixed, 0, -1) if fixed.any() else None  # Nobody reads these elements.
            shared[key] = self._lowering.node(
                Node(op=op, places=node.places, width=node.width, reads=(table,), settings=settings, address=address,
                     across=node.across), known).reshape(-1)
        return shared[key]

    def _blocks(self, table, address):
        places, entries, size = table.shape
        fmt = self._format
        settings = size, fmt.bits, (fmt.e_min, fmt.e_max), fmt.rule.value, fmt.symmetric
        fixed = is_constant(table)
        found = np.full(table.shape, -1, np.int64)
        whole = fixed.all(-1)
        if whole.any():
            mantissas, exponents = quantize_block(self._lowering.constants.bits(table[whole]), fmt)
            found[whole] = self._lowering.constants.codes(mantissas, np.broadcast_to(exponents[:, None],
                                                                                     mantissas.shape))
        sources = read_by(table)
        for source in sources:
            mask = (np.where(fixed, source, node_of(table)) == source).all(-1) & ~whole
            if self._aligned(table, fixed, mask, source, size):
                out = self._once(source, "blocks", settings, address)
                found[mask] = np.where(fixed[mask], ZERO_CODE, out[element_of(table[mask]) * ~fixed[mask]])
        if (found < 0).any():
            return self._own(table, found, fixed, settings, address)
        return found

    def _aligned(self, table, fixed, mask, source, size) -> bool:
        """Whether each block of `mask` is a block of the places of one node, and has all of it that is no zero."""
        node = self._lowering.nodes[source]
        blocks, known = table[mask], fixed[mask]
        lanes = np.arange(size)
        base = np.where(known, 1 << 62, element_of(blocks) - lanes).min(-1)
        expected = refs(source, base[:, None] + lanes)
        inside = base % node.width if (base >= 0).all() else np.ones(1)
        if (inside % size).any() or not (known | (blocks == expected)).all():
            return False
        within = inside[:, None] + lanes < node.width
        out = node.out[np.minimum(base[:, None] + lanes, node.places * node.width - 1)]
        zeros = known & (self._lowering.constants.values(np.where(known, blocks, 0)) == 0)
        return bool(((~known & within) | (zeros & (~within | is_constant(out)))).all())

    def _own(self, table, found, fixed, settings, address):
        """A node of blocks that lie in no other node."""
        places = len(table)
        flat = table.reshape(places, -1)
        node = Node(op="blocks", places=places, width=flat.shape[1], reads=(flat,), settings=settings, address=address)
        zeros = fixed & (self._lowering.constants.values(np.where(fixed, table, 0)) == 0)
        known = np.broadcast_to(np.where(zeros.reshape(places, -1).all(0), ZERO_CODE, -1), flat.shape)
        out = self._lowering.node(node, known)
        return out.reshape(table.shape)
