"""Products of two computed tensors as calls; those of all heads are one call, whose first axis is the head."""

import numpy as np
from concord.spec.machine.config import Config
from concord.twin.recovery.nodes.elements import ZERO, ZERO_CODE, RealConstants, Unrecognised, is_constant, read_by
from concord.twin.recovery.nodes.nodes import ProgramNode
from concord.twin.recovery.tensors.drafts import RESULTS, SCORES, DraftValue
from concord.twin.recovery.tensors.heads import HeadViews
from concord.twin.recovery.tensors.views import NUMBERS, Maker, reading_order
from concord.twin.recovery.tensors.weights import TooWide, wrapping


class ComputedCalls(Maker):
    """Makes the calls of products of computed tensors.

    Args:
        views:  Makes values of tables.
        config: The machine.
    """

    def __init__(self, views: HeadViews, config: Config):
        super().__init__(views)
        self._config, self._real = config, isinstance(views.constants, RealConstants)

    def emit(self, nodes: list[ProgramNode], tables: list[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
        """References [positions of all nodes, rows] to the results.

        Args:
            nodes:  Strips of heads.
            tables: Of each node, references [positions, columns] to codes, and [rows, columns] to numbers.

        Raises:
            Unrecognised: heads differ in their numbers of positions.
        """
        heads: dict[bytes, list[int]] = {}
        for number, (_, matrix) in enumerate(tables):
            heads.setdefault(matrix.tobytes(), []).append(number)
        order = sorted(heads.values(), key=lambda own: min(_begin(tables[number][0]) for number in own))
        operands = [np.concatenate([tables[number][0] for number in own]) for own in order]
        found = [_different(operand) for operand in operands]
        if len({len(chosen) for chosen, _ in found}) > 1:
            raise Unrecognised("products of computed tensors differ in their numbers of positions")
        left, right = self._aligned([operand[chosen] for operand, (chosen, _) in zip(operands, found, strict=True)],
                                    [tables[own[0]][1] for own in order])
        value = self._views.all(self._call(nodes[0], left, right))
        results: dict[int, np.ndarray] = {}
        for head, own, (_, where) in zip(value, order, found, strict=True):
            cuts = np.cumsum([len(tables[number][0]) for number in own])[:-1]
            results |= zip(own, np.split(head[where], cuts), strict=True)
        return np.concatenate([results[number] for number in range(len(nodes))])

    def _aligned(self, operands: list[np.ndarray], matrices: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Operands [heads, positions, columns] and rows [heads, rows, columns], or with zeros that begin a block.

        Where blocks of heads begin differently, all have columns for these zeros, and for some at their ends.
        """
        if len({(operand.shape[1], matrix.shape[1]) for operand, matrix in zip(operands, matrices, strict=True)}) > 1:
            zero, width = ZERO if self._real else ZERO_CODE, max(matrix.shape[1] for matrix in matrices)
            begins = [matrix.shape[1] - operand.shape[1] for operand, matrix in zip(operands, matrices, strict=True)]
            operands = [np.pad(each, ((0, 0), (begin, width - begin - each.shape[1])), constant_values=zero)
                        for each, begin in zip(operands, begins, strict=True)]
            matrices = [np.pad(each, ((0, 0), (0, width - each.shape[1])), constant_values=ZERO) for each in matrices]
        return np.stack(operands), np.stack(matrices)

    def _call(self, node: ProgramNode, left: np.ndarray, right: np.ndarray) -> DraftValue:
        """The product of [heads, positions, columns] and [heads, rows, columns]."""
        views, address, (made,) = self._views, node.address, node.settings
        if not read_by(left) or not read_by(right):
            raise Unrecognised("a product reads nothing but constants")
        codes, matrix = views.heads(left, address), views.heads(right, address)
        if made is not None:
            if codes.codes != "blocks":
                raise Unrecognised("a product reads codes of different kinds")
            matrix = views.codes(made, matrix, right.shape, address)
        if begin := right.shape[2] - left.shape[2]:
            matrix = views.call("part", [matrix], (*right.shape[:2], left.shape[2]), address, first=begin,
                                last=right.shape[2])
        function, settings = "matmul", {}
        if made is not None:
            function, settings = self._exactly(left.shape[2], codes.limit * matrix.limit)
        shape = (*left.shape[:2], right.shape[1])
        result = views.call(function, [codes, matrix], shape, address, codes=NUMBERS, **settings)
        result.heads = RESULTS if codes.heads == SCORES else SCORES
        return result

    def _exactly(self, columns: int, largest: float) -> tuple[str, dict]:
        """The function that is exact for sums of so many products, and its settings."""
        config, bound = self._config, columns * largest
        try:
            return "matmul", wrapping(config, bound, bound, integer=False)
        except TooWide:
            units = tuple(fmt.e_min - fmt.bits + 1 for fmt in (config.activations, config.weights))
            return "accumulated", {"bits": config.sum_bits, "units": units, "shift": config.alignment,
                                   "scale": config.acc_frac}


def _begin(operand: np.ndarray) -> int:
    """The first element that an operand reads."""
    return int(operand[~is_constant(operand)].min(initial=1 << 62))


def _different(operand: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Positions that differ, in the order of what they read; and for each position the number of its equal."""
    _, first, where = np.unique(operand, axis=0, return_index=True, return_inverse=True)
    chosen = reading_order(operand, np.sort(first))
    number = np.empty(len(operand), np.int64)
    number[chosen] = np.arange(len(chosen))
    return chosen, number[first[where.reshape(-1)]]
