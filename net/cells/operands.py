"""Groups the gates of a cell that multiply the same vector by R, so that they share one product."""

from functools import cache

from concord.net.cells.cell import Cell, Operations


@cache
def operands(cell: Cell) -> tuple[tuple[str, ...], ...]:
    """Names of gates whose R multiplies the same vector, for each such vector in the order of the formula."""
    recorder = _Recorder()
    cell.step(recorder, *(object() for _ in cell.states))
    return tuple(tuple(gates) for _, gates in recorder.found)


class _Recorder(Operations[object]):
    """Runs a formula on symbols, which record the gates that multiply each of them.

    Attributes:
        found: Each vector that R multiplies, and the gates.
    """

    def __init__(self):
        self.found: list[tuple[object, list[str]]] = []

    def preactivation(self, gate, operand):
        return self.recurrent_product(gate, operand)

    def recurrent_product(self, gate, operand):
        gates = next((gates for vector, gates in self.found if vector is operand), None)
        if gates is None:
            gates = []
            self.found.append((operand, gates))
        gates.append(gate)
        return object()

    def input_product(self, gate):
        return object()

    def output(self, gate, value):
        return object()

    def vector(self, name):
        return object()

    def add(self, a, b):
        return object()

    def sub(self, a, b):
        return object()

    def mul(self, a, b):
        return object()

    def curve(self, kind, value):
        return object()
