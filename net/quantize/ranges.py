"""Methods that find saturation and offset of activations.

Source: S0, the search for (m*, b*); S0.b, uniform, and minimisation of the Kullback-Leibler divergence; S0.c,
half-wave Gaussian quantisation (Cai et al., 2017).
"""

from functools import cache

import numpy as np

#: Number of times that `ends` searches each end of the range.
ROUNDS = 2
#: Number of bins of the histogram of `divergence` between the offset and the largest value.
BINS = 2048
#: Number of standard deviations up to which `gaussian` integrates the distribution, and of nodes, evenly apart.
REACH, NODES = 8.0, 20_000
#: Number of ends of codes that are looked up at once.
TOGETHER = 1 << 20


def quantized(x, saturation: float, offset: float, levels: int):
    """Q(x) = round(clip(x - m, 0, b) * s) / s + m with s = levels / b."""
    s = levels / saturation
    return np.rint(np.clip(x - offset, 0, saturation) * s) / s + offset


def search(samples: np.ndarray, levels: int, offset: float | None = None, steps: int = 200) -> tuple[float, float]:
    """The saturation b and offset m of least squared error.

    b minimises the squared error on a grid of `steps` values up to the largest one, and then on a finer grid of as many
    steps between the neighbours of the best one.

    Args:
        samples: Real[samples, elements], the quantiser's inputs for a calibration set.
        levels:  Largest code of the quantiser.
        offset:  m, or None for the mean of the samples' minima.
        steps:   Number of steps of each grid.

    Returns:
        b > 0 and m.
    """
    samples = np.asarray(samples)
    offset = float(samples.min(axis=1).mean(dtype=np.float64)) if offset is None else offset
    values, counts = np.unique(samples, return_counts=True)
    return best_saturation(values.astype(np.float64) - offset, counts, levels, steps), offset


def best_saturation(values: np.ndarray, counts: np.ndarray, levels: int, steps: int = 200) -> float:
    """The saturation b > 0 of least squared error.

    Args:
        values: float64[n], the distinct values less the offset, sorted.
        counts: int[n], how often each value occurs.
        levels: Largest code of the quantiser.
        steps:  Number of steps of each grid.
    """
    top = float(values[-1])
    if top <= 0:
        return 1.0
    errors = _Errors(values, counts, levels)

    def best(candidates):
        return candidates[int(np.argmin(errors(candidates)))]

    coarse = best(top * np.arange(1, steps + 1) / steps)
    fine = coarse + top / steps * np.arange(-steps + 1, steps) / steps
    return float(best(fine[fine > 0]))


class _Errors:
    """Squared errors for saturations, as sums over the values of each code: differences of cumulative sums at its ends.

    Args:
        values: float64[n], the distinct values less the offset, sorted.
        counts: int[n], how often each value occurs.
        levels: Largest code of the quantiser.
    """

    def __init__(self, values, counts, levels: int):
        self.values, self.counts, self.levels = values, counts, levels
        self.upto = [np.concatenate([[0.0], np.cumsum(part)])
                     for part in (counts, counts * values, counts * np.square(values))]

    def __call__(self, candidates: np.ndarray) -> np.ndarray:
        if self.levels >= len(self.values):  # as many codes as values
            return np.array([self._each(b) for b in candidates])
        parts = np.array_split(candidates, -(-len(candidates) * self.levels // TOGETHER))
        return np.concatenate([self._by_codes(part[:, None] / self.levels) for part in parts if len(part)])

    def _by_codes(self, step: np.ndarray) -> np.ndarray:
        # A value half way between two codes is as far from either.
        ends = np.searchsorted(self.values, (np.arange(self.levels) + 0.5) * step)
        ends = np.pad(ends, ((0, 0), (1, 1)), constant_values=((0, 0), (0, len(self.values))))
        number, total, squares = (np.diff(part[ends]) for part in self.upto)
        real = np.arange(self.levels + 1) * step
        return (squares - 2 * real * total + np.square(real) * number).sum(axis=1)

    def _each(self, b: float) -> float:
        return float((self.counts * np.square(self.values - quantized(self.values, b, 0.0, self.levels))).sum())


def ends(samples: np.ndarray, levels: int, offset: float | None = None) -> tuple[float, float]:
    """Saturation and offset of least squared error. Arguments and result are those of `search`.

    The upper end is searched for the lower end that covers all values, then the lower end for this upper end, and so
    on. Where the smallest value is 0, as behind a relu, the offset stays there.
    """
    low, high = float(samples.min()), float(samples.max())
    if offset is not None or low == 0 or low == high:
        return search(samples, levels, low if offset is None else offset)
    values, counts = np.unique(samples, return_counts=True)
    values = values.astype(np.float64)
    for _ in range(ROUNDS):
        high = low + best_saturation(values - low, counts, levels)
        low = high - best_saturation((high - values)[::-1], counts[::-1], levels)
    return high - low, low


def full_range(samples: np.ndarray, levels: int, offset: float | None = None) -> tuple[float, float]:
    """Saturation and offset that cover all values. Arguments and result are those of `search`."""
    low, high = float(samples.min()) if offset is None else offset, float(samples.max())
    return high - low if high > low else 1.0, low


def divergence(samples: np.ndarray, levels: int, offset: float | None = None) -> tuple[float, float]:
    """The saturation whose quantised histogram diverges least from the histogram that it clips.

    The histogram has 2,048 bins above the offset. Every saturation of a whole number of bins is tried. In p the values
    above the saturation count in its last bin. In q the values of each code are spread evenly over the filled bins that
    have the code. The saturation with the least sum of p log(p / q) wins, and of several the smallest.

    Arguments and result are those of `search`.
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


def gaussian(samples: np.ndarray, levels: int, offset: float | None = None) -> tuple[float, float]:
    """The saturation of least squared error for a half-wave normal distribution that has the samples' mean square.

    Arguments and result are those of `search`; the offset is 0 where it is not given.
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
