"""Saturation and offset of least squared error.

Source: S0, the search for (m*, b*).
"""

import numpy as np

#: Number of ends of codes that are looked up at once.
TOGETHER = 1 << 20


def quantised(x, saturation: float, offset: float, levels: int):
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
    samples = np.asarray(samples, np.float64)
    offset = float(samples.min(axis=1).mean()) if offset is None else offset
    values, counts = np.unique(samples, return_counts=True)
    return best_saturation(values - offset, counts, levels, steps), offset


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
        return float((self.counts * np.square(self.values - quantised(self.values, b, 0.0, self.levels))).sum())
