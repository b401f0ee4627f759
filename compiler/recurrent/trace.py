"""A cell's formula as a list of values: what a time step computes, before it becomes chains.

Each arithmetic has a tracer, which runs the formula once and writes down its products and point-wise operations.
"""

from dataclasses import dataclass
from enum import StrEnum

from concord.model.cells.cell import Cell, Operations
from concord.spec.activation import Activation


class PointWise(StrEnum):
    """Point-wise operations of two values."""

    ADD = "add"
    SUB = "sub"
    MUL = "mul"


class Part(StrEnum):
    """What a product multiplies."""

    BOTH = "both"  #: x by W and the operand by R, in one sum
    INPUT = "input"  #: x by W
    RECURRENT = "recurrent"  #: the operand by R


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Stored:
    """A vector that lies in memory before the time step: a state, or parameters.

    Attributes:
        name:  What it is.
        gate:  The gate that it belongs to; None where all gates share it.
        state: Whether a time step writes it.
    """

    name: str
    gate: str | None = None
    state: bool = False


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Product:
    """A gate of a matrix-vector product, rounded to binary16.

    Attributes:
        gate:    The gate.
        part:    What is multiplied.
        operand: What R multiplies; None where only x is multiplied.
    """

    gate: str
    part: Part
    operand: "Value | None"


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Operation:
    """A point-wise operation.

    Attributes:
        kind:     An operation of two values, or an activation function of one.
        operands: The values.
    """

    kind: PointWise | Activation
    operands: tuple["Value", ...]


Value = Stored | Product | Operation


def operands(value: Value) -> tuple[Value, ...]:
    """The values that a value is computed of."""
    if isinstance(value, Operation):
        return value.operands
    return (value.operand,) if isinstance(value, Product) and value.operand is not None else ()


class Tracer(Operations[Value]):
    """Writes down a formula.

    Args:
        cell:      The cell.
        gate_bits: Width of the outputs of gates; 0 leaves them as they are.

    Attributes:
        cell:     The cell.
        computed: Products and operations in the order of the formula, without those that nothing needs.
        results:  The new value of each state, by its name, without states that nothing needs.
    """

    def __init__(self, cell: Cell, gate_bits: int = 0):
        self.cell, self._bits = cell, gate_bits
        self.computed: list[Product | Operation] = []
        self._stored: dict[tuple[str, str | None], Stored] = {}
        states = [self.stored(name, state=True) for name in cell.states]
        self.results: dict[str, Value] = dict(zip(cell.states, cell.step(self, *states), strict=True))
        self.finish()

    def finish(self):
        """Add what the arithmetic keeps beside the cell's states, and forget what nothing needs."""
        self.prune()

    def prune(self):
        """Forget what neither the hidden vector nor a state that is read needs."""
        needed, left = {}, [self.results[self.cell.states[0]]]
        while left:
            value = left.pop()
            if value not in needed:
                needed[value] = None
                left += operands(value)
                left += [self.results[value.name]] if isinstance(value, Stored) and value.state else []
        self.computed = [value for value in self.computed if value in needed]
        self.results = {name: value for name, value in self.results.items() if value in needed}

    def stored(self, name: str, gate: str | None = None, *, state: bool = False) -> Stored:
        """The one value of this name."""
        return self._stored.setdefault((name, gate), Stored(name=name, gate=gate, state=state))

    def output(self, gate, value):
        of = self.cell.gates[self.cell.index(gate)]
        y = self.curve(of.curve, value)
        if not self._bits:
            return y
        centre = self.stored(f"centre {of.centre(self._bits)}")
        return self.sub(self.add(y, centre), centre)

    def vector(self, name):
        return self.stored(name)

    def add(self, a, b):
        return self._compute(Operation(kind=PointWise.ADD, operands=(a, b)))

    def sub(self, a, b):
        return self._compute(Operation(kind=PointWise.SUB, operands=(a, b)))

    def mul(self, a, b):
        return self._compute(Operation(kind=PointWise.MUL, operands=(a, b)))

    def curve(self, kind, value):
        return self._compute(Operation(kind=kind, operands=(value,)))

    def _product(self, gate: str, part: Part, operand: Value | None = None):
        return self._compute(Product(gate=gate, part=part, operand=operand))

    def _compute(self, value):
        self.computed.append(value)
        return value


class IntegerTracer(Tracer):
    """Integers: u = W x * scale + bias of all gates is stored before; the codes of h are a state of their own."""

    #: Name of the state that holds h in steps of its code.
    CODES = "hidden codes"

    def finish(self):
        self.results = {self.CODES: self._codes(self.results[self.cell.states[0]]), **self.results}
        super().finish()

    def preactivation(self, gate, operand):
        return self.add(self.recurrent_product(gate, operand), self.input_product(gate))

    def input_product(self, gate):
        return self.stored("u", gate)

    def recurrent_product(self, gate, operand):
        old = operand is self.stored(self.cell.states[0])
        codes = self.stored(self.CODES, state=True) if old else self._codes(operand)
        return self.mul(self._product(gate, Part.RECURRENT, codes), self.stored("recurrent scale", gate))

    def _codes(self, value):
        return self.mul(value, self.stored("hidden scale"))


class BlockTracer(Tracer):
    """Block floating point: a bias follows the sum of W x and R h."""

    def preactivation(self, gate, operand):
        return self.add(self._product(gate, Part.BOTH, operand), self.stored("bias", gate))

    def input_product(self, gate):
        return self.add(self._product(gate, Part.INPUT), self.stored("bias", gate))

    def recurrent_product(self, gate, operand):
        return self._product(gate, Part.RECURRENT, operand)
