"""Plain recurrent networks: h' = tanh(W x + R h + b), or relu instead of tanh."""

from concord.net.cells.cell import Cell, Gate, Operations
from concord.spec.numbers.activation import Activation


def _step(ops: Operations, h):
    """The one gate is the new hidden vector."""
    return (ops.output("h", ops.preactivation("h", h)),)


def _cell(name: str, curve: Activation, *, bounded: bool) -> Cell:
    return Cell(
        name=name,
        title=f"RNN, {curve}",
        gates=(Gate(name="h", curve=curve),),
        step=_step,
        bounded=bounded,
        torch_class="RNN",
        torch_gates=("h",),
    )


TANH = _cell("rnn", Activation.TANH, bounded=True)
RELU = _cell("rnn-relu", Activation.RELU, bounded=False)
