"""Reductions over the elements of an iteration: the running largest element and the running sum of its words."""

from typing import NamedTuple

import numpy as np
from concord.golden.lib.float16 import INFINITY, NAN, SIGN, from_integer, is_nan
from concord.spec.isa.operations import Operation
from concord.spec.numbers.reduction import UNIT_BITS

#: The pattern that changes no result, which stands in the lanes beyond Rows.
NEUTRAL = {Operation.V_LARGEST: np.uint16(SIGN | INFINITY), Operation.V_SUM: np.uint16(0)}


class Running(NamedTuple):
    """What the words so far leave for the next word of an iteration, [...] each.

    Attributes:
        value:  int64, the exact sum of the finite elements in units of 2**-24, or the rank of the largest element in
            the order of binary16 numbers.
        nan:    bool, an element was a NaN.
        above:  bool, an element was plus infinity.
        below:  bool, an element was minus infinity.
    """

    value: np.ndarray
    nan: np.ndarray
    above: np.ndarray
    below: np.ndarray


def running(operation: Operation, words, before: Running | None = None):
    """The reduction after each word: of its elements, and of those of the words before it.

    A sum is exact until it is rounded once, to nearest, ties to even, and an exact zero is +0. It is a NaN where an
    element is one, or where both infinities are among them. Of the largest, +0 is larger than -0, and NaN gives NaN.

    Args:
        words:  uint16[..., words, M], binary16 patterns; lanes without elements hold `NEUTRAL`.
        before: What the words before these left, or None at the start of an iteration.

    Returns:
        uint16[..., words, M], the same pattern in all lanes of a word; and what is left for the next word.
    """
    words = np.asarray(words, np.uint16)
    sums = operation is Operation.V_SUM
    value = _units(words).sum(-1) if sums else _rank(words).max(-1)
    start = before or Running(*(np.zeros(value.shape[:-1], np.int64) if k == 0 else np.zeros(value.shape[:-1], bool)
                                for k in range(4)))
    if not sums and before is None:
        start = start._replace(value=np.full(value.shape[:-1], _rank(NEUTRAL[operation])))
    seen = [value, is_nan(words).any(-1), (words == INFINITY).any(-1), (words == SIGN | INFINITY).any(-1)]
    kinds = [np.add if sums else np.maximum, *[np.logical_or] * 3]
    after = Running(*(kind.accumulate(np.concatenate([first[..., None], each], -1), -1)[..., 1:]
                      for kind, first, each in zip(kinds, start, seen, strict=True)))
    result = _rounded(after) if sums else _pattern(after)
    return np.broadcast_to(result[..., None], words.shape), Running(*(each[..., -1] for each in after))


def running_real(operation: Operation, words, before=None):
    """`running` on float64[..., words, M]; what is left is the reduction itself, float64[...]."""
    kind = np.add if operation is Operation.V_SUM else np.maximum
    value = kind.reduce(words, -1)
    if before is not None:
        value = np.concatenate([kind(before[..., None], value[..., :1]), value[..., 1:]], -1)
    value = kind.accumulate(value, -1)
    return np.broadcast_to(value[..., None], words.shape), value[..., -1]


def _units(words):
    """Finite elements in units of 2**-24, int64; others are 0."""
    exponent, fraction = words >> 10 & 31, (words & 0x3FF).astype(np.int64)
    digits = np.where(exponent == 0, fraction, fraction | 0x400) << np.maximum(exponent, 1).astype(np.int64) - 1
    return np.where(exponent == 31, 0, np.where(words >= SIGN, -digits, digits))


def _rounded(sums):
    result = from_integer(sums.value, UNIT_BITS)
    result = np.where(sums.above, np.uint16(INFINITY), np.where(sums.below, np.uint16(SIGN | INFINITY), result))
    return np.where(sums.nan | sums.above & sums.below, np.uint16(NAN), result)


def _rank(words):
    """Ranks of patterns in the order of numbers, int64: -0 lies below +0."""
    words = np.asarray(words, np.int64)
    return np.where(words >= SIGN, ~(words & SIGN - 1), words)


def _pattern(largest):
    value = largest.value
    return np.where(largest.nan, NAN, np.where(value < 0, ~value | SIGN, value)).astype(np.uint16)
