"""Quantisers as operations on whole nodes: each node is quantised once in each way, however often it is read."""

import numpy as np
from concord.golden.mvm.quantizer import quantize_block, quantize_integer
from concord.spec.isa import Instruction
from concord.twin.recovery.elements import ZERO_CODE, Unrecognised, element_of, is_constant, node_of, read_by, refs
from concord.twin.recovery.nodes import Node

QUANTISERS = ("integers", "floats", "blocks")  #: Operations whose results are codes.


def codes_of(node: Node) -> tuple[str, int, float]:
    """What codes of a quantiser are, `integers` or `blocks`, their zero point, and their largest magnitude less it."""
    if node.op == "integers":
        low, high, zero = node.settings
        return "integers", zero, max(zero - low, high - zero)
    if node.op == "floats":
        return node.settings[-1], 0, node.settings[1]
    return "blocks", 0, 2.0 ** node.settings[2][1]


class Quantisers:
    """Makes the nodes of quantisers for a lowering.

    Args:
        lowering: The lowering; its `node` adds a node to the present region, and `_shared` holds those of the region.
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
        fmt = self._format
        if instruction.integer or (fmt.precision and fmt.e_min == fmt.e_max):
            return self._alone(table, bool(instruction.integer), bool(instruction.unsigned), address)
        return self._blocks(table, address)

    def numbers(self, table: np.ndarray, instruction: Instruction, address: int) -> np.ndarray:
        """References to the numbers of codes, in the shape of `table`."""
        integer, unsigned = bool(instruction.integer), bool(instruction.unsigned)
        found, fixed = np.empty_like(table), is_constant(table)
        found[fixed] = self._lowering.constants.numbers(table[fixed], integer=integer, unsigned=unsigned)
        wanted = ("integers", unsigned and self._format.zero > 0) if integer else ("blocks", False)
        for source in read_by(table):
            node = self._lowering.nodes[source]
            if node.op not in ("state", "item", "collected", "final"):
                mode, zero, _ = codes_of(node)
                if (mode, zero > 0) != wanted:
                    raise Unrecognised("codes are read as numbers in another mode than they were written in")
            out = self._once(source, "numbers", (), address)
            mask = ~fixed & (node_of(table) == source)
            found[mask] = out[element_of(table[mask])]
        return found

    def _alone(self, table, integer, unsigned, address):
        """Codes of numbers that are quantised one by one: integers, and floats that share no exponent."""
        fmt, constants = self._format, self._lowering.constants
        low, high = (0, fmt.levels) if unsigned and integer else (fmt.lowest, fmt.highest)
        found, fixed = np.empty_like(table), is_constant(table)
        if fixed.any():
            bits = constants.bits(table[fixed])
            mantissas = (quantize_integer(bits, fmt, unsigned=unsigned) if integer
                         else quantize_block(bits[:, None], fmt)[0][:, 0])
            found[fixed] = constants.codes(mantissas, np.full(mantissas.shape, fmt.e_min))
        op, settings = "integers", (low, high, fmt.zero * unsigned)
        if fmt.precision:
            fraction = fmt.bits - 1 - fmt.e_min
            op, settings = "floats", (low, high, fmt.precision, 0, "integers") if integer else (
                low * 2.0**-fraction, high * 2.0**-fraction, fmt.precision, fraction, "blocks")
        for source in read_by(table):
            out = self._once(source, op, settings, address)
            mask = ~fixed & (node_of(table) == source)
            found[mask] = out[element_of(table[mask])]
        return found

    def _once(self, source: int, op: str, settings: tuple, address: int) -> np.ndarray:
        """`out` of the node that applies an operation to all of another node."""
        key = source, op, settings
        shared = self._lowering._shared
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
        settings = size, fmt.bits, (fmt.e_min, fmt.e_max), fmt.rule.value, fmt.symmetric, fmt.precision
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
        return bool((~known | (zeros & (~within | is_constant(out)))).all())

    def _own(self, table, found, fixed, settings, address):
        """A node of blocks that lie in no other node."""
        places = len(table)
        flat = table.reshape(places, -1)
        node = Node(op="blocks", places=places, width=flat.shape[1], reads=(flat,), settings=settings, address=address)
        zeros = fixed & (self._lowering.constants.values(np.where(fixed, table, 0)) == 0)
        known = np.broadcast_to(np.where(zeros.reshape(places, -1).all(0), ZERO_CODE, -1), flat.shape)
        out = self._lowering.node(node, known)
        return out.reshape(table.shape)
