"""Saturation that keeps the distribution of activations.

Source: S0.b, minimisation of the Kullback-Leibler divergence.
"""

import numpy as np

BINS = 2048  #: Number of bins of the histogram between the offset and the largest value.


def divergence(samples: np.ndarray, levels: int, offset: float | None = None) -> tuple[float, float]:
    """The saturation whose quantised histogram diverges least from the histogram that it clips.

    The histogram has 2,048 bins above the offset. Every saturation of a whole number of bins is tried. In p the values
    above the saturation count in its last bin. In q the values of each code are spread evenly over the filled bins that
    have the code. The saturation with the least sum of p log(p / q) wins, and of several the smallest.

    Arguments and result are those of `search.search`.
    """
    samples = np.asarray(samples, np.float64)
    offset = float(samples.min(axis=1).mean()) if offset is None else offset
    top = float(samples.max()) - offset
    if top <= 0:
        return 1.0, offset
    counts = np.histogram(np.clip(samples - offset, 0, top), BINS, (0, top))[0].astype(np.float64)
    first = min(levels + 1, BINS)
    diverges = [diverging(counts, bins, levels) for bins in range(first, BINS + 1)]
    return top * (first + int(np.argmin(diverges))) / BINS, offset


def diverging(counts: np.ndarray, bins: int, levels: int) -> float:
    """The divergence where the saturation lies behind the first `bins` bins."""
    kept = counts[:bins]
    p = kept.copy()
    p[-1] += counts[bins:].sum()
    middles = (np.arange(bins) + 0.5) / bins
    codes = np.rint(middles * levels).astype(np.int64)
    filled = kept > 0
    sums, sizes = np.bincount(codes, kept, levels + 1), np.bincount(codes, filled, levels + 1)
    q = np.where(filled, sums[codes] / np.maximum(sizes[codes], 1), 0.0)
    if not kept.any() or (p[-1] > 0 and not filled[-1]):
        return np.inf  # nothing of q lies where p has the clipped values
    p, q = p[filled] / p.sum(), q[filled] / q.sum()
    return float((p * np.log(p / q)).sum())
