"""A multi-function unit: add, subtract or maximum; then activation; then multiply; and taps beside them."""

import numpy as np
from concord.golden.lib import float16
from concord.golden.mfu.activation import sigmoid, tanh
from concord.spec.mfu import ActOp, AddOp, Tap

_ADD = {
    AddOp.BYPASS: lambda a, b: a,
    AddOp.ADD: float16.add,
    AddOp.A_SUB_B: float16.sub,
    AddOp.B_SUB_A: lambda a, b: float16.sub(b, a),
    AddOp.MAX: float16.maximum,
}
_ACTIVATION = {ActOp.BYPASS: lambda a: a, ActOp.RELU: float16.relu, ActOp.SIGM: sigmoid, ActOp.TANH: tanh}


def multifunction(value, addend, factor, taps, *, add, act, mul, tap):
    """The words that leave a unit, each stage rounding once; what a stage bypasses keeps its bits.

    Args:
        value:  uint16[words, lanes], bit patterns of the chain's words.
        addend: uint16[words, lanes], operands of the add stage.
        factor: uint16[words, lanes], operands of the multiply stage.
        taps:   uint16[words, taps, lanes], what the taps bring.
        add:    int[words], an AddOp for each word.
        act:    int[words], an ActOp for each word.
        mul:    int[words], 1 to multiply.
        tap:    int[words, taps], a Tap for each tap of each word.

    Returns:
        The values after the multiply stage, and what the taps carry on, in the shapes of `value` and `taps`.
    """
    added = _each(add, _ADD, value, addend)
    activated = _each(act, _ACTIVATION, added)
    places = {Tap.INPUT: value, Tap.ADD: added, Tap.ACTIVATION: activated}
    carried = taps.copy()
    for place, word in places.items():
        carried = np.where((tap == place)[..., None], word[:, None], carried)
    return np.where(mul[:, None] == 1, float16.mul(activated, factor), activated), carried


def _each(codes, operations, *operands):
    """To each word the operation that its code names."""
    result = np.empty_like(operands[0])
    for code, operation in operations.items():
        words = codes == code
        result[words] = operation(*(operand[words] for operand in operands))
    return result
