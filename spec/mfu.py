"""Controls of a multi-function unit: what each of its stages does to one word."""

from enum import IntEnum


class AddOp(IntEnum):
    """What the add stage does: a is the chain's value, b the operand."""

    BYPASS = 0  #: a, its bits unchanged
    ADD = 1  #: a + b
    A_SUB_B = 2  #: a - b
    B_SUB_A = 3  #: b - a
    MAX = 4  #: max(a, b)


class ActOp(IntEnum):
    """What the activation stage does."""

    BYPASS = 0  #: the value, its bits unchanged
    RELU = 1  #: max(value, +0)
    SIGM = 2  #: 1 / (1 + exp(-value))
    TANH = 3  #: tanh(value)


class Tap(IntEnum):
    """Which word a tap carries on from a unit. The word after the multiply stage is the next unit's input."""

    PASS = 0  #: what the tap brought in
    INPUT = 1  #: the value as it came in
    ADD = 2  #: the value after the add stage
    ACTIVATION = 3  #: the value after the activation stage


ADD_OP_BITS = 3  #: width of an AddOp on wires
ACT_OP_BITS = 2  #: width of an ActOp on wires
TAP_BITS = 2  #: width of a Tap on wires
TAPS = 2  #: taps that run beside the value through every unit
