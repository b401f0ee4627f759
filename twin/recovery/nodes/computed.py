"""Products of two computed tensors, of which one becomes tiles: parts that share nothing, such as heads, as nodes."""

from collections.abc import Iterator

import numpy as np
from concord.spec.isa.chain import Chain
from concord.twin.flow.flow import FlowStep, Refs
from concord.twin.flow.flow_of import built
from concord.twin.lib.script import quantizer
from concord.twin.recovery.nodes.elements import ZERO, RealConstants, Unrecognised
from concord.twin.recovery.nodes.nodes import ProgramNode


class ComputedProducts:
    """Makes the nodes of products whose tiles the program makes of vectors.

    Args:
        graph: The nodes so far.
    """

    def __init__(self, graph):
        self._graph, self._config = graph, graph.config

    def build(self, step: FlowStep, table: Refs):
        """The content of tiles that are made of vectors: numbers, which products quantise row by row."""
        chain, (made,) = step.chain, step.makes.values()
        if chain.target.integer:
            raise Unrecognised("the program makes tiles of integers while it runs")
        numbers = np.append(self._graph.look(table, self._config.mfu_lanes), ZERO)
        self._graph.content[made] = numbers[built(self._config, chain)].reshape(-1)

    def product(self, chain: Chain, tiles: Refs, operand: np.ndarray) -> np.ndarray:
        """The results [positions, rows] of a product.

        Args:
            chain:   Its chain.
            tiles:   Its tiles [row tiles, columns].
            operand: References [positions, columns, N] to codes, or [positions, row tiles, columns, N].
        """
        matrix, size = self._matrix(tiles, chain.registers.rows), self._config.native_dim
        found = np.full((len(operand), len(matrix)), ZERO, np.int64)
        apart = operand.ndim == 4  # Each row tile reads columns of its own.
        for first in range(0, len(matrix), size if apart else len(matrix)):
            rows = slice(first, first + size if apart else None)
            own = operand[:, first // size] if apart else operand
            for inside, columns in parts(~self._graph.constants.is_zero(matrix[rows])):
                found[:, first + inside] = self._part(chain, own.reshape(len(own), -1), matrix[rows][inside], columns)
        return found

    def _matrix(self, tiles: Refs, rows: int) -> np.ndarray:
        """References [rows, columns * N] to the numbers of tiles."""
        if not self._graph.content.keys() >= set(np.unique(tiles.value).tolist()):
            raise Unrecognised("the program multiplies by tiles of vectors of another pass of a loop, or beside stored "
                               "tiles")
        found, size = self._graph.look(tiles, self._config.native_dim**2), self._config.native_dim
        found = found.reshape(*tiles.value.shape, size, size).transpose(0, 2, 1, 3)
        return found.reshape(-1, tiles.value.shape[1] * size)[:rows]

    def _part(self, chain: Chain, operand: np.ndarray, matrix: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """The results of rows that read some columns, which begin with a block or lie in one."""
        size, (first, last) = self._config.native_dim, (columns[0], columns[-1] + 1)
        begin = first if first // size == (last - 1) // size else first // size * size
        made = None if isinstance(self._graph.constants, RealConstants) else quantizer(
            self._config.weights, size, integer=False)
        return self._graph.node(ProgramNode(
            op="matmul", positions=len(operand), width=len(matrix), settings=(made,),
            reads=(operand[:, first:last], matrix[:, begin:last]), address=chain.address + 1,
            across=chain.registers.iterations_x))


def parts(used: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Rows and columns of a matrix that belong together, by which of its elements, bool[rows, columns], are no zeros.

    No row of one part reads a column of another one. Parts come in the order of their first rows.
    """
    left = used.any(1)
    while left.any():
        rows = np.arange(len(used)) == left.argmax()
        columns = used[rows].any(0)
        while (more := used[:, columns].any(1)).sum() > rows.sum():
            rows, columns = more, used[more].any(0)
        yield np.flatnonzero(rows), np.flatnonzero(columns)
        left &= ~rows
