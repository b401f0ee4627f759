"""A cell's formula as a list of the values that a time step computes, before it becomes chains.

Each arithmetic has a tracer, which runs the formula once and records its products and point-wise operations.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from concord.net.cells.cell import Cell, Operations
from concord.net.cells.output_codes import NO_CODES, OutputCodes
from concord.spec.numbers.activation import Activation

#: First words of the names of stored numbers.
CENTRE, BOUND = "centre", "bound"


class TracedPointWise(StrEnum):
    """Point-wise operations of two values."""

    ADD = "add"
    SUB = "sub"
    MUL = "mul"
    LARGER = "larger"


class ProductPart(StrEnum):
    """The matrices and vectors that a product multiplies."""

    BOTH = "both"  #: W times x plus R times the operand
    INPUT = "input"  #: W times x
    RECURRENT = "recurrent"  #: R times the operand


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class StoredVector:
    """A vector that lies in memory before the time step: a state, or parameters.

    Attributes:
        name:  Name of the state or of the parameters.
        gate:  Gate that it belongs to; None if all gates share it.
        state: Whether it is a state, which a time step writes.
    """

    name: str
    gate: str | None = None
    state: bool = False


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class GateProduct:
    """The part of a matrix-vector product that belongs to one gate, rounded to binary16.

    Attributes:
        gate:    Name of the gate.
        part:    Matrices and vectors that are multiplied.
        operand: Vector that R multiplies; None if only x is multiplied.
    """

    gate: str
    part: ProductPart
    operand: "Value | None"


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class TracedOperation:
    """A point-wise operation.

    Attributes:
        kind:     Operation of two values, or activation function of one value.
        operands: Values that the operation reads.
    """

    kind: TracedPointWise | Activation
    operands: tuple["Value", ...]


Value = StoredVector | GateProduct | TracedOperation


def operands(value: Value) -> tuple[Value, ...]:
    """The values from which a value is computed."""
    if isinstance(value, TracedOperation):
        return value.operands
    return (value.operand,) if isinstance(value, GateProduct) and value.operand is not None else ()


class Tracer(Operations[Value]):
    """Records the formula of a cell.

    Args:
        cell:      The cell.
        codes: Codes of the outputs of gates by the gates' names; a gate without keeps its output.

    Attributes:
        cell:     The cell.
        computed: Products and operations in the order of the formula, without unused ones.
        results:  New value of each state by its name, without unused states.
    """

    def __init__(self, cell: Cell, codes: Mapping[str, OutputCodes] = NO_CODES):
        self.cell, self._codes_of = cell, codes
        self.computed: list[GateProduct | TracedOperation] = []
        self._stored: dict[tuple[str, str | None], StoredVector] = {}
        states = [self.stored(name, state=True) for name in cell.states]
        self.results: dict[str, Value] = dict(zip(cell.states, cell.step(self, *states), strict=True))
        self.finish()

    def finish(self):
        """Add states that the arithmetic has beside those of the cell, and remove unused values."""
        self.prune()

    def prune(self):
        """Remove values that neither the hidden vector nor a state that is read depends on."""
        needed, left = {}, [self.results[self.cell.states[0]]]
        while left:
            value = left.pop()
            if value not in needed:
                needed[value] = None
                left += operands(value)
                left += [self.results[value.name]] if isinstance(value, StoredVector) and value.state else []
        self.computed = [value for value in self.computed if value in needed]
        self.results = {name: value for name, value in self.results.items() if value in needed}

    def stored(self, name: str, gate: str | None = None, *, state: bool = False) -> StoredVector:
        """The stored vector with this name; the same object at every call."""
        return self._stored.setdefault((name, gate), StoredVector(name=name, gate=gate, state=state))

    def output(self, gate, value):
        y = self.curve(self.cell.gates[self.cell.index(gate)].curve, value)
        return self._codes_of[gate].rounded(self, y) if gate in self._codes_of else y

    def vector(self, name):
        return self.stored(name)

    def add(self, a, b):
        return self._compute(TracedOperation(kind=TracedPointWise.ADD, operands=(a, b)))

    def sub(self, a, b):
        return self._compute(TracedOperation(kind=TracedPointWise.SUB, operands=(a, b)))

    def mul(self, a, b):
        return self._compute(TracedOperation(kind=TracedPointWise.MUL, operands=(a, b)))

    def larger(self, a, b):
        return self._compute(TracedOperation(kind=TracedPointWise.LARGER, operands=(a, b)))

    def constant(self, number, *, bound=False):
        return self.stored(f"{BOUND if bound else CENTRE} {number}")

    def curve(self, kind, value):
        return self._compute(TracedOperation(kind=kind, operands=(value,)))

    def _product(self, gate: str, part: ProductPart, operand: Value | None = None):
        return self._compute(GateProduct(gate=gate, part=part, operand=operand))

    def _compute(self, value):
        self.computed.append(value)
        return value


class IntegerTracer(Tracer):
    """Integers: u = W x * scale + bias of all gates is computed beforehand; the codes of h are a state of their own."""

    #: Name of the state that holds h in units of the step of its codes.
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
        return self.mul(self._product(gate, ProductPart.RECURRENT, codes), self.stored("recurrent scale", gate))

    def _codes(self, value):
        return self.mul(value, self.stored("hidden scale"))


class BlockTracer(Tracer):
    """Block floating point: the bias is added to the sum of W x and R h."""

    def preactivation(self, gate, operand):
        return self.add(self._product(gate, ProductPart.BOTH, operand), self.stored("bias", gate))

    def input_product(self, gate):
        return self.add(self._product(gate, ProductPart.INPUT), self.stored("bias", gate))

    def recurrent_product(self, gate, operand):
        return self._product(gate, ProductPart.RECURRENT, operand)
