"""LSTM with peepholes: the gates see the cell, each element its own.

Source: Gers and Schmidhuber, Recurrent nets that time and count, 2000.
"""

from concord.net.cells.cell import Cell, Operations
from concord.net.cells.lstm import GATES
from concord.spec.numbers.activation import Activation


def _step(ops: Operations, h, c):
    """f and i see the old cell, o sees the new one; the rest is the LSTM's."""

    def gate(name, cell):
        seen = ops.mul(cell, ops.vector(f"peephole_{name}"))
        return ops.output(name, ops.add(seen, ops.preactivation(name, h)))

    f, i = gate("f", c), gate("i", c)
    j = ops.output("j", ops.preactivation("j", h))
    c = ops.add(ops.mul(f, c), ops.mul(i, j))
    o = gate("o", c)
    return ops.mul(o, ops.curve(Activation.TANH, c)), c


PEEPHOLE = Cell(
    name="lstm-peephole",
    title="LSTM with peepholes",
    gates=GATES,
    step=_step,
    states=("hidden", "cell"),
    vectors=("peephole_f", "peephole_i", "peephole_o"),
)
