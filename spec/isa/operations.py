"""The point-wise operations of a multi-function unit (MFU), the one table that all rooms read; and its taps.

A new operation is one row here, its two functions in `golden.mfu.multifunction`, its gates in the unit of its stage
(`hw.mfu.adder`, `hw.mfu.activation` or `hw.mfu.multiplier`), and a function of its name in `twin.vocabulary` and
`twin.source.onnx_functions`. Reductions, which see all words of an iteration, have their functions in
`golden.mfu.reduction` and their gates in `hw.mfu.reducer`. Instructions, assembler, checker, decoder, wire widths,
random programs and pages follow from the row. Each room checks its column with `implemented`;
`tests/spec/test_operations.py` checks all of them.
"""

from collections.abc import Mapping
from enum import Enum, IntEnum
from typing import TypeVar

from concord.spec.numbers.activation import Activation

MFUS = 2  #: Number of multi-function units, which are in series.
TAPS = 2  #: number of taps that run beside the value through every unit
BYPASS = 0  #: Code by which a stage passes the value unchanged.
Function = TypeVar("Function")


class Stage(IntEnum):
    """Stage of a multi-function unit; a word runs through the stages in this order."""

    ADD = 0
    ACT = 1
    MUL = 2


class Tap(IntEnum):
    """The word that a tap carries out of a unit. The word after the multiply stage is the INPUT of the next unit."""

    PASS = 0  #: the word that the tap carried into the unit
    INPUT = 1  #: the value that enters the unit
    ADD = 2  #: the value after the add stage
    ACTIVATION = 3  #: the value after the activation stage


#: The tap that carries the value before each stage.
TAP_BEFORE = {Stage.ADD: Tap.INPUT, Stage.ACT: Tap.ADD, Stage.MUL: Tap.ACTIVATION}
TAP_BITS = max(Tap).bit_length()  #: number of bits of a Tap on wires


class Operation(Enum):
    """A point-wise operation; its instructions are called by its name and the number of the MFU, as in `vv_add0`.

    Attributes:
        stage:    Stage that computes it.
        code:     Code that selects the operation in its stage, on wires. It differs from BYPASS and within the stage.
        operand:  Whether the operation takes a second operand, from the memory of its stage.
        opcodes:  Opcode of the operation in each MFU.
        function: Name of what it computes, in the vocabularies of twins and in networks.
        meaning:  New value of the chain, as the instruction page describes it.
        swapped:  Whether the function takes the operand first, and then the value.
        more:     Whether only machines with `more_functions` have the operation.
        reduces:  Whether it is a reduction: every lane of a word becomes the largest element, or the sum of the
                  elements, of this word and of those before it in its iteration; lanes beyond Rows do not count.
    """

    VV_ADD = Stage.ADD, 1, True, (4, 12), "add", "value + operand"
    VV_A_SUB_B = Stage.ADD, 2, True, (5, 13), "subtract", "value - operand"
    VV_B_SUB_A = Stage.ADD, 3, True, (6, 14), "subtract", "operand - value", True
    VV_MAX = Stage.ADD, 4, True, (7, 15), "maximum", "the larger of value and operand"
    V_RELU = Stage.ACT, 1, False, (8, 16), "relu", "max(value, 0)"
    V_SIGM = Stage.ACT, 2, False, (9, 17), "sigmoid", "logistic sigmoid of value"
    V_TANH = Stage.ACT, 3, False, (10, 18), "tanh", "hyperbolic tangent of value"
    VV_MUL = Stage.MUL, 1, True, (11, 19), "multiply", "value * operand"
    V_EXP = Stage.ACT, 4, False, (30, 34), "exp", "exponential of value", False, True
    V_RECIP = Stage.ACT, 5, False, (31, 35), "reciprocal", "1 / value", False, True
    V_RSQRT = Stage.ACT, 6, False, (32, 36), "rsqrt", "1 / square root of value", False, True
    V_SQRT = Stage.ACT, 7, False, (33, 37), "sqrt", "square root of value", False, True
    V_LARGEST = (Stage.ADD, 5, False, (38, 40), "largest", "in all lanes, the largest element up to this word's last",
                 False, True, True)
    V_SUM = (Stage.ADD, 6, False, (39, 41), "total", "in all lanes, the sum of all elements up to this word's last",
             False, True, True)

    def __init__(self, stage: Stage, code: int, operand: bool, opcodes: tuple[int, ...], function: str, meaning: str,
                 swapped: bool = False, more: bool = False, reduces: bool = False):
        self.stage, self.code, self.operand, self.opcodes = stage, code, operand, opcodes
        self.function, self.meaning, self.swapped, self.more = function, meaning, swapped, more
        self.reduces = reduces


def position(stage: Stage, mfu: int) -> int:
    """Position of a stage of one MFU among all stages, in the order in which words pass through them."""
    return mfu * len(Stage) + stage


def next_mfu(stage: Stage, behind: int) -> int | None:
    """The MFU of the next stage of a kind after a position, or None where there is none; -1 is before the first."""
    return next((mfu for mfu in range(MFUS) if position(stage, mfu) > behind), None)


def operations(stage: Stage, *, more: bool = False) -> tuple[Operation, ...]:
    """The operations of a stage, in the order of the table; with those of `more_functions` only if there are `more`."""
    return tuple(operation for operation in Operation if operation.stage is stage and operation.more <= more)


def codes(stage: Stage, *, more: bool = False) -> tuple[int, ...]:
    """All codes of a stage: BYPASS and the codes of its `operations`."""
    return BYPASS, *(operation.code for operation in operations(stage, more=more))


def code_bits(stage: Stage, *, more: bool = False) -> int:
    """Number of bits of a stage's code on wires."""
    return max(codes(stage, more=more)).bit_length()


def implemented(functions: Mapping[Operation, Function], *stages: Stage) -> dict[Operation, Function]:
    """The function of each operation of some stages, or of all of them, in the order of the table, but reductions.

    Args:
        functions: The functions that one room has, by operation.

    Raises:
        ValueError: an operation of these stages has no function.
    """
    wanted = [operation for operation in Operation if operation.stage in (stages or Stage) and not operation.reduces]
    missing = [operation for operation in wanted if operation not in functions]
    if missing:
        names = ", ".join(operation.name.lower() for operation in missing)
        raise ValueError(f"the {missing[0].stage.name} stage has no function for {names}: write it")
    return {operation: functions[operation] for operation in wanted}


_NAMED = {operation.function: operation for operation in operations(Stage.ACT, more=True)}
#: The operation of each activation function of networks, except the identity.
ACTIVATIONS = {kind: _NAMED[kind] for kind in Activation if kind is not Activation.NONE}


def activations(*, more: bool = False) -> list[Activation]:
    """The activation functions of a machine; with those of `more_functions` only if there are `more`."""
    return [Activation.NONE, *(kind for kind, operation in ACTIVATIONS.items() if operation.more <= more)]
