"""Pooling unit: the largest value of each window, lane by lane."""

from functools import reduce

import numpy as np
from concord.golden.lib.float16 import maximum


def pool_max(pixels: np.ndarray) -> np.ndarray:
    """The running `vv_max` over the pixels of each window, in order. A single pixel passes as it is, NaN patterns too.

    Args:
        pixels: uint16[..., pixels, lanes], binary16 patterns.

    Returns:
        uint16[..., lanes].
    """
    return reduce(maximum, np.moveaxis(pixels, -2, 0))
