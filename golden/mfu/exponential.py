"""Terms of a softmax: exp of how far an element lies below the largest one, as an integer."""

from functools import cache

import numpy as np
from concord.spec.numbers.softmax import DISTANCE_BITS, LOW_BITS, fractions, wholes


def exponential(distance):
    """e of `spec.numbers.softmax`: about exp(-distance / 2**16), in units of which `TERM_BITS` bits hold exp(0).

    Args:
        distance: int64[...], at least 0.

    Returns:
        int64[...]; it falls, or stays, where the distance rises.
    """
    rows, whole = _tables()[1], distance >> DISTANCE_BITS
    near = whole < len(rows)
    factor, shift = np.moveaxis(rows[np.where(near, whole, 0)], -1, 0)
    return np.where(near, fraction(distance & (1 << DISTANCE_BITS) - 1) * factor >> shift, 0)


def fraction(t):
    """B of `spec.numbers.softmax`, int64[...], from the fraction t of a distance, int64[...]."""
    base, slope = np.moveaxis(_tables()[0][t >> LOW_BITS], -1, 0)
    return base - (slope * (t & (1 << LOW_BITS) - 1) >> LOW_BITS)


@cache
def _tables():
    return np.array(fractions(), np.int64), np.array(wholes(), np.int64)
