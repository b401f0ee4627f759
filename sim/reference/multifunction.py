"""The stages of a multi-function unit on words with codes, and the taps beside them, in golden arithmetic."""

import numpy as np
from concord.golden.mfu.multifunction import compute
from concord.golden.mfu.reduction import NEUTRAL, running
from concord.spec.isa.operations import TAP_BEFORE, Operation, Stage, operations


def multifunction(value, addend, factor, taps, *, add, act, mul, tap, turn=None):
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
        turn:   Fields of `payloads.turn`, int[words] each, on machines with reductions.

    Returns:
        The values after the multiply stage, and those that the taps carry out, in the shapes of `value` and `taps`.
    """
    added = stage(Stage.ADD, add, value, addend)
    if turn is not None:
        added = _reduced(add, value, added, turn)
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
    for operation in operations(which, more=True):
        if operation.reduces:
            continue
        words = codes == operation.code
        result[words] = compute(operation, value[words], None if operand is None else operand[words])
    return result


def _reduced(codes, value, added, turn):
    """The words after the add stage, with the reductions of those that ask for one."""
    added, lanes = added.copy(), np.arange(value.shape[-1])
    absent = (turn["tail"][:, None] > 0) & (lanes >= turn["tail"][:, None])
    for operation in (each for each in Operation if each.reduces):
        left = None
        for k in np.flatnonzero(turn["valid"]):
            word = np.where(absent[k], NEUTRAL[operation], value[k])[None]
            result, left = running(operation, word, None if turn["first"][k] else left)
            if codes[k] == operation.code:
                added[k] = result[0]
    return added


def turns(rng, count: int, lanes: int, valid=None) -> dict[str, np.ndarray]:
    """Fields of `payloads.turn` for iterations of one to some six words, the first of which begins one.

    Args:
        valid: bool[count], where there is a word; in all of them if left out.
    """
    valid = np.ones(count, bool) if valid is None else valid
    first = rng.random(count) < 0.3
    first[np.flatnonzero(valid)[:1]] = True
    return {"valid": valid, "first": first, "tail": np.where(rng.random(count) < 0.3, rng.integers(0, lanes, count), 0)}
