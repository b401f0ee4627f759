"""Saturation and offset of least squared error.

Source: S0, the search for (m*, b*).
"""

import numpy as np


def quantised(x, saturation: float, offset: float, levels: int):
    """Q(x) = round(clip(x - m, 0, b) * s) / s + m with s = levels / b."""
    s = levels / saturation
    return np.rint(np.clip(x - offset, 0, saturation) * s) / s + offset


def search(samples: np.ndarray, levels: int, offset: float | None = None, steps: int = 200) -> tuple[float, float]:
    """The saturation b and offset m of least squared error.

    b minimises the squared error over a grid of `steps` values up to the largest
    one, and then over a grid as fine again between the best one's neighbours.

    Args:
        samples: Real[samples, elements], what enters the quantiser for a calibration set.
        levels:  Its largest code.
        offset:  m where it is given, else the mean of the samples' minima.
        steps:   Of the grid.

    Returns:
        b > 0 and m.
    """
    samples = np.asarray(samples, np.float64)
    offset = float(samples.min(axis=1).mean()) if offset is None else offset
    values, counts = np.unique(samples, return_counts=True)
    top = float(values[-1] - offset)
    if top <= 0:
        return 1.0, offset

    def best(candidates):
        errors = [(counts * np.square(values - quantised(values, b, offset, levels))).sum() for b in candidates]
        return candidates[int(np.argmin(errors))]

    coarse = best(top * np.arange(1, steps + 1) / steps)
    fine = coarse + top / steps * np.arange(-steps + 1, steps) / steps
    return float(best(fine[fine > 0])), offset
