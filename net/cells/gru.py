"""Gated recurrent units: reset gate r, update gate z, new hidden vector n, in both conventions of the reset gate."""

from concord.net.cells.cell import Cell, Gate, Operations
from concord.spec.numbers.activation import Activation

GATES = (
    Gate(name="r", curve=Activation.SIGMOID),
    Gate(name="z", curve=Activation.SIGMOID),
    Gate(name="n", curve=Activation.TANH),
)


def _after(ops: Operations, h):
    """The reset gate scales R h after the product: n = tanh(W x + b + r * (R h + hidden_bias))."""
    r, z = (ops.output(name, ops.preactivation(name, h)) for name in "rz")
    seen = ops.mul(ops.add(ops.recurrent_product("n", h), ops.vector("hidden_bias")), r)
    n = ops.output("n", ops.add(seen, ops.input_product("n")))
    return (_update(ops, h, z, n),)


def _before(ops: Operations, h):
    """The reset gate scales h before the product: n = tanh(W x + R (r * h) + b)."""
    r, z = (ops.output(name, ops.preactivation(name, h)) for name in "rz")
    n = ops.output("n", ops.preactivation("n", ops.mul(r, h)))
    return (_update(ops, h, z, n),)


def _update(ops: Operations, h, z, n):
    """h' = z * (h - n) + n, which is z * h + (1 - z) * n with one operation less."""
    return ops.add(ops.mul(ops.sub(h, n), z), n)


AFTER = Cell(
    name="gru",
    title="GRU, reset gate after the product",
    gates=GATES,
    step=_after,
    vectors=("hidden_bias",),
    torch_class="GRU",
    torch_gates=("r", "z", "n"),
    torch_biases={"hidden_bias": "n"},
)
BEFORE = Cell(name="gru-reset-before", title="GRU, reset gate before the product", gates=GATES, step=_before)
