"""What a recurrent cell is: its gates, its states, and its formula for one time step, written once.

A formula is written in the operations of `Operations`. Golden arithmetic, real numbers, training and the compiler each
bring their own operations, so that one formula gives the machine's bits, the reference, gradients and chains.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from concord.spec.numbers.activation import Activation

Value = TypeVar("Value")


@dataclass(frozen=True, kw_only=True, slots=True)
class Gate:
    """One gate of a cell: W x, R h and a bias, then an activation function.

    Attributes:
        name:       Unique in its cell.
        curve:      Activation function of the gate.
        first_bias: Bias with which training begins.
    """

    name: str
    curve: Activation
    first_bias: float = 0.0


class Operations(ABC, Generic[Value]):
    """What a cell's formula may do with the values of one time step. A value has one element for each cell."""

    @abstractmethod
    def preactivation(self, gate: str, operand: Value) -> Value:
        """W x + R operand + bias of a gate; block floating point rounds the sum of both products once."""

    @abstractmethod
    def input_product(self, gate: str) -> Value:
        """W x + bias of a gate, for gates that need R h apart."""

    @abstractmethod
    def recurrent_product(self, gate: str, operand: Value) -> Value:
        """R operand of a gate, without a bias, for gates that need it apart."""

    @abstractmethod
    def output(self, gate: str, value: Value) -> Value:
        """The gate's activation function of a value, in fewer bits where the layer quantises the outputs of gates."""

    @abstractmethod
    def vector(self, name: str) -> Value:
        """One of the cell's own vectors of parameters."""

    @abstractmethod
    def add(self, a: Value, b: Value) -> Value:
        """a + b."""

    @abstractmethod
    def sub(self, a: Value, b: Value) -> Value:
        """a - b."""

    @abstractmethod
    def mul(self, a: Value, b: Value) -> Value:
        """a * b, element by element."""

    @abstractmethod
    def larger(self, a: Value, b: Value) -> Value:
        """The larger of a and b, element by element."""

    @abstractmethod
    def constant(self, number: float, *, bound: bool = False) -> Value:
        """A number of binary16 for every cell; a `bound` is one that the float network does not have."""

    @abstractmethod
    def curve(self, kind: Activation, value: Value) -> Value:
        """An activation function that belongs to no gate."""


#: One time step: from operations and the states (the hidden vector h first) to the new states in the same order.
Formula = Callable[..., tuple]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Cell:
    """A recurrent cell.

    Attributes:
        name:         What files and the command line call it.
        title:        What people call it.
        gates:        In the order of every array of weights and biases.
        step:         The formula of one time step.
        states:       Names of what is kept from one time step to the next; the first is the hidden vector h.
        vectors:      Names of parameters with one element for each cell, beside weights and biases.
        bounded:      Whether h lies in -1..1 wherever the first h does; the codes of h then have fixed steps.
        torch_class:  Class of `torch.nn` that computes the same in real numbers, or "" where there is none.
        torch_gates:  The gates in the order of that class's weights.
        torch_biases: For a vector that this class keeps as a gate's second bias, beside R h: the gate.
    """

    name: str
    title: str
    gates: tuple[Gate, ...]
    step: Formula
    states: tuple[str, ...] = ("hidden",)
    vectors: tuple[str, ...] = ()
    bounded: bool = True
    torch_class: str = ""
    torch_gates: tuple[str, ...] = ()
    torch_biases: Mapping[str, str] = field(default_factory=dict)

    def check_gate_bits(self, bits: int):
        """Refuse fewer bits for the outputs of gates where one of them has no bound.

        Raises:
            ValueError: there is such a gate, and `bits` is not 0.
        """
        unbounded = [gate.name for gate in self.gates if gate.curve is Activation.RELU]
        if bits and unbounded:
            raise ValueError(f"the output of gate {unbounded[0]} of {self.title} has no bound, and must keep its bits: "
                             f"use 0 bits for the outputs of gates, not {bits}, or the form symmetric or asymmetric, "
                             "whose bounds are measured")

    def index(self, gate: str) -> int:
        """Where a gate lies in arrays."""
        return [one.name for one in self.gates].index(gate)
