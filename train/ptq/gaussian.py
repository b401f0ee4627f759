"""Saturation for the positive half of a normal distribution, which a relu leaves.

Source: S0.c, half-wave Gaussian quantisation (Cai et al., 2017).
"""

from functools import cache

import numpy as np

REACH = 8.0  #: Number of standard deviations up to which the distribution is integrated.
NODES = 20_000  #: Number of nodes of the integral, evenly apart.


def gaussian(samples: np.ndarray, levels: int, offset: float | None = None) -> tuple[float, float]:
    """The saturation of least squared error for a half-wave normal distribution that has the samples' mean square.

    Arguments and result are those of `search.search`; the offset is 0 where it is not given.
    """
    offset = 0.0 if offset is None else offset
    positive = np.maximum(np.asarray(samples, np.float64) - offset, 0)
    deviation = float(np.sqrt(2 * np.square(positive).mean()))
    return (deviation * levels * unit_step(levels) if deviation else 1.0), offset


@cache
def unit_step(levels: int) -> float:
    """The step whose multiples 0..levels have the least squared error for relu(N(0, 1)).

    It is searched on a coarse grid, and then on a finer one around the best step.
    """
    x = (np.arange(NODES) + 0.5) / NODES * REACH
    density = np.exp(-x * x / 2)

    def best(steps):
        errors = [(density * np.square(x - step * np.clip(np.rint(x / step), 0, levels))).sum() for step in steps]
        return steps[int(np.argmin(errors))]

    coarse = best(REACH / levels * np.arange(1, 201) / 200)
    return float(best(coarse + REACH / levels / 200 * np.arange(-99, 100) / 100))
