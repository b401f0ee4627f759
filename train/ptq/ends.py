"""Saturation and offset of least squared error, both ends of the range one after the other."""

import numpy as np
from concord.train.ptq.search import best_saturation, search

#: Number of times that each end is searched.
ROUNDS = 2


def ends(samples: np.ndarray, levels: int, offset: float | None = None) -> tuple[float, float]:
    """Saturation and offset of least squared error. Arguments and result are those of `search.search`.

    The upper end is searched for the lower end that covers all values, then the lower end for this upper end, and so
    on. Where the smallest value is 0, as behind a relu, the offset stays there.
    """
    low, high = float(samples.min()), float(samples.max())
    if offset is not None or low == 0 or low == high:
        return search(samples, levels, low if offset is None else offset)
    values, counts = np.unique(np.asarray(samples, np.float64), return_counts=True)
    for _ in range(ROUNDS):
        high = low + best_saturation(values - low, counts, levels)
        low = high - best_saturation((high - values)[::-1], counts[::-1], levels)
    return high - low, low
