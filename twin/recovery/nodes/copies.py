"""Reductions of copies of one number, by which a program spreads it over the lanes of a word."""

import numpy as np
from concord.twin.recovery.nodes.elements import CODES, Constants, element_of, is_constant, node_of, read_by, refs
from concord.twin.recovery.nodes.nodes import ProgramNode

#: Functions whose results have no minus sign, and those for which this holds if it does for their operands.
_POSITIVE = ("exp", "sigmoid")
_KEEPING = ("add", "multiply", "maximum", "total", "largest", "reciprocal", "rsqrt", "sqrt")


def copied(nodes: list[ProgramNode | None], constants: Constants, table: np.ndarray) -> np.ndarray | None:
    """References [positions] to the only number of each position, which is its largest; None where there are several.

    Args:
        nodes:     All nodes.
        constants: The constants.
        table:     References [positions, elements]; zeros may stand beside a number that has no minus sign.
    """
    only = table.max(1)
    same = table == only[:, None]
    if not (same | constants.is_zero(table)).all() or is_constant(only).any():
        return None
    return only if same.all() or _positive(nodes, constants, only) else None


def _positive(nodes, constants, table: np.ndarray) -> bool:
    """Whether no number of a table can have a minus sign."""
    table = np.unique(table)
    fixed = is_constant(table)
    if (table[fixed] >= refs(CODES, 0)).any() or np.signbit(constants.values(table[fixed])).any():
        return False
    for number in read_by(table):
        node = nodes[number]
        position, element = np.divmod(element_of(table[node_of(table) == number]), node.width)
        if node.op in _POSITIVE:
            continue
        if node.op not in _KEEPING or not all(_positive(nodes, constants, read[position] if read.shape[1] != node.width
                                                        else read[position, element]) for read in node.reads):
            return False
    return True
