"""Long short-term memory: forget, input and output gate, cell input j, and the cell c beside h."""

from concord.net.cells.cell import Cell, Gate, Operations
from concord.spec.numbers.activation import Activation

GATES = (
    Gate(name="f", curve=Activation.SIGMOID, first_bias=1.0),  # remember at first
    Gate(name="i", curve=Activation.SIGMOID),
    Gate(name="o", curve=Activation.SIGMOID),
    Gate(name="j", curve=Activation.TANH),
)


def _step(ops: Operations, h, c):
    """c' = f * c + i * j, h' = o * tanh(c')."""
    f, i, o, j = (ops.output(gate.name, ops.preactivation(gate.name, h)) for gate in GATES)
    c = ops.add(ops.mul(f, c), ops.mul(i, j))
    return ops.mul(o, ops.curve(Activation.TANH, c)), c


LSTM = Cell(
    name="lstm",
    title="LSTM",
    gates=GATES,
    step=_step,
    states=("hidden", "cell"),
    torch_class="LSTM",
    torch_gates=("i", "f", "j", "o"),
)
