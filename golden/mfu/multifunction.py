"""A multi-function unit: the stages add, activation and multiply, and the taps beside them."""

import numpy as np
from concord.golden.lib import float16
from concord.golden.mfu.activation import sigmoid, tanh
from concord.spec.mfu import TAP_BEFORE
from concord.spec.operations import Operation, Stage, implemented

#: Function of each operation, of the chain's value and of the second operand if it takes one.
FUNCTIONS = {
    Operation.VV_ADD: float16.add,
    Operation.VV_A_SUB_B: float16.sub,
    Operation.VV_B_SUB_A: lambda value, operand: float16.sub(operand, value),
    Operation.VV_MAX: float16.maximum,
    Operation.V_RELU: float16.relu,
    Operation.V_SIGM: sigmoid,
    Operation.V_TANH: tanh,
    Operation.VV_MUL: float16.mul,
}
_STAGES = {stage: implemented(stage, FUNCTIONS) for stage in Stage}


def compute(operation: Operation, value, operand=None):
    """Compute one point-wise operation, rounded once.

    Args:
        value:   uint16[...], bit patterns of the chain's value.
        operand: uint16[...] in the shape of `value`; ignored if the operation takes no second operand.

    Returns:
        uint16[...] bit patterns in the shape of `value`.
    """
    function = FUNCTIONS[operation]
    return function(value, operand) if operation.operand else function(value)


def multifunction(value, addend, factor, taps, *, add, act, mul, tap):
    """Compute the words that leave a unit. Each stage rounds once, or passes a word unchanged.

    Args:
        value:  uint16[words, lanes], bit patterns of the chain's words.
        addend: uint16[words, lanes], operands of the add stage.
        factor: uint16[words, lanes], operands of the multiply stage.
        taps:   uint16[words, taps, lanes], values that the taps carry into the unit.
        add:    int[words], a code of the add stage for each word.
        act:    int[words], a code of the activation stage for each word.
        mul:    int[words], a code of the multiply stage for each word.
        tap:    int[words, taps], a Tap for each tap of each word.

    Returns:
        The values after the multiply stage, and those that the taps carry out, in the shapes of `value` and `taps`.
    """
    added = stage(Stage.ADD, add, value, addend)
    activated = stage(Stage.ACT, act, added)
    carried = taps.copy()
    for each, word in ((Stage.ADD, value), (Stage.ACT, added), (Stage.MUL, activated)):
        carried = np.where((tap == TAP_BEFORE[each])[..., None], word[:, None], carried)
    return stage(Stage.MUL, mul, activated, factor), carried


def stage(which: Stage, codes, value, operand=None):
    """Compute the words after one stage.

    Args:
        codes:   int[...], code of the stage for each word, broadcast along the first axes of `value`.
        value:   uint16[...], bit patterns.
        operand: uint16[...] in the shape of `value`, None for a stage without operands.

    Returns:
        uint16[...] in the shape of `value`.
    """
    result = value.copy()
    for operation in _STAGES[which]:
        words = codes == operation.code
        result[words] = compute(operation, value[words], None if operand is None else operand[words])
    return result
