"""Saturation and offset of least squared error, both searched for.

Inputs whose samples differ much in their minima, such as features of speech, clip under the offset of `search`.
"""

import numpy as np
from concord.train.ptq.search import Errors, least, search

#: Number of offsets on each grid, and of steps of the saturation's grids for each of them.
OFFSETS, STEPS = 16, 50


def joint(samples: np.ndarray, levels: int, offset: float | None = None) -> tuple[float, float]:
    """Saturation and offset of least squared error. Arguments and result are those of `search.search`.

    Offsets lie on a grid from the smallest value to the median, and then on a finer one between the neighbours of the
    best. The error is never larger than that of `search`.
    """
    samples = np.asarray(samples, np.float64)
    usual = search(samples, levels, offset)
    lowest = float(samples.min())
    if offset is not None or usual[1] == lowest:  # nothing clips below, as behind a relu
        return usual
    values, counts = np.unique(samples, return_counts=True)

    def at(m: float) -> tuple[float, float, float]:
        return *least(Errors(values - m, counts, levels), float(values[-1]) - m, STEPS), m

    highest = min(max(float(np.median(samples)), usual[1]), float(values[-2]))
    width = (highest - lowest) / OFFSETS
    coarse = min(map(at, lowest + width * np.arange(OFFSETS + 1)))
    fine = coarse[2] + width * np.arange(-OFFSETS + 1, OFFSETS, 2) / OFFSETS
    known = float(Errors(values - usual[1], counts, levels)(np.array([usual[0]]))[0]), *usual
    _, saturation, m = min(known, coarse, *map(at, fine[fine < values[-1]]))
    return saturation, float(m)
