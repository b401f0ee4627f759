"""Weights as integers of a grid: the methods that find them with their scale.

Source: S0.a.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from concord.net.quantize.recipe import WeightTraining
from concord.spec.numbers.formats import Format


@dataclass(frozen=True, slots=True)
class Grid:
    """The integers lowest, lowest + step, .. highest.

    Attributes:
        lowest:  Smallest integer.
        highest: Largest integer.
        step:    Distance of neighbours: 1, or 2 for odd integers.
    """

    lowest: int
    highest: int
    step: int = 1

    @classmethod
    def of(cls, fmt: Format) -> "Grid":
        """The grid of all mantissas of a format."""
        return cls(fmt.lowest, fmt.highest)

    @classmethod
    def odd(cls, bits: int) -> "Grid":
        """The grid of the 2**bits odd integers around zero, which need bits + 1 bits."""
        return cls(1 - (1 << bits), (1 << bits) - 1, 2)

    @classmethod
    def trained(cls, method: WeightTraining, bits: int, symmetric: bool) -> "Grid":
        """The integers that a method of training gives weights.

        Args:
            method:    The method.
            bits:      Bits of a weight.
            symmetric: Whether the lowest integer is left out.
        """
        half = 1 << bits - 1
        return cls.odd(bits) if method.odd else cls(symmetric - half, half - 1)

    @property
    def format(self) -> Format:
        """The format whose mantissas hold the integers."""
        return Format(bits=self.bits, symmetric=self.lowest == -self.highest)

    @property
    def count(self) -> int:
        """Number of integers."""
        return (self.highest - self.lowest) // self.step + 1

    @property
    def bits(self) -> int:
        """Bits of a two's complement number that holds the highest integer."""
        return self.highest.bit_length() + 1

    @property
    def least(self) -> int:
        """Smallest magnitude of the integers."""
        return self.step - 1

    def nearest(self, values: np.ndarray) -> np.ndarray:
        """int32[...]: the nearest integers of the grid; ties go to even multiples of the step."""
        codes = self.step * np.rint((values - self.least) / self.step) + self.least
        return np.clip(codes, self.lowest, self.highest).astype(np.int32)


#: Most rounds of Lloyd's iteration, which ends long before.
ROUNDS = 100
#: Most integers above zero, and most steps of all magnitudes together, of which every one is tried.
FINE, MOST = 1 << 9, 1 << 26
#: Number of scales that are tried where there are more.
TRIED = 257

#: A method that finds integers and a scale for weights that share a scale: from float64[n] weights and a grid to
#: int32[n] integers and the scale.
WeightQuantizer = Callable[[np.ndarray, Grid], tuple[np.ndarray, float]]


def mmse(values: np.ndarray, grid: Grid) -> tuple[np.ndarray, float]:
    """The integers q and the scale a > 0 that minimise ||values - a q||**2.

    For a given scale the best integers are the nearest to values / a, so only those that some a gives can win. As a
    shrinks from infinity, they change one step at a time: |q| of element i leaves j for j + step at
    |value_i| / (j + step / 2). For given integers the error is ||values||**2 - <values, q>**2 / <q, q>, so cumulative
    sums over the sorted steps try all.

    Integers of more than 10 bits are too many for that: `_near_scale` tries some scales only.

    Args:
        values: float64[n], the weights.
        grid:   The integers that they may become.

    Returns:
        int32[n] integers, and the scale. If all values are 0, the scale is 1, or 0 where the grid has no 0.
    """
    if not values.any():
        return np.full(values.shape, grid.least, np.int32), 1.0 - grid.least
    integers = grid.highest // grid.step
    search = _best_scale if integers < FINE and values.size * integers <= MOST else _near_scale
    codes = grid.nearest(values / search(values, grid))
    # The scale that the integers want is the exact minimum for them.
    return codes, float(values @ codes / np.square(codes, dtype=np.float64).sum())


def _best_scale(row: np.ndarray, grid: Grid) -> float:
    """A scale under which a row of weights rounds to the integers of least error."""
    magnitude, most = np.abs(row)[:, None], np.where(row < 0, -grid.lowest, grid.highest)[:, None]
    j = np.arange(grid.least, max(-grid.lowest, grid.highest), grid.step)
    steps = np.broadcast_to(j < most, (row.size, j.size)) & (magnitude > 0)
    thresholds = (magnitude / (j + grid.step / 2))[steps]
    order = np.argsort(-thresholds, kind="stable")
    products = np.broadcast_to(magnitude * grid.step, steps.shape)[steps][order]
    squares = np.broadcast_to(grid.step * (2 * j + grid.step), steps.shape)[steps][order]
    # Above all thresholds every magnitude is the least.
    product = np.cumsum(np.append(grid.least * magnitude.sum(), products))
    square = np.cumsum(np.append(float(grid.least * row.size), squares))
    thresholds = np.append(2 * magnitude.max() / grid.step, thresholds[order])
    last = np.append(thresholds[1:] < thresholds[:-1], True)  # equal thresholds change together
    best = int(np.argmax(np.where(last & (square > 0), product**2 / np.maximum(square, 1), 0)))
    below = thresholds[best + 1] if best + 1 < len(thresholds) else 0.0
    return (thresholds[best] + below) / 2


def _near_scale(values: np.ndarray, grid: Grid) -> float:
    """The scale of least error of TRIED ones, from the smallest that clips nothing down to where clips alone cost more.

    With the scale s that clips nothing, the error is at most E. The largest magnitude m, clipped to m a / s by a scale
    a, costs (m - m a / s)**2 of it, so the best scale lies above s (1 - sqrt(E) / m).
    """
    codes, scale = uniform(values, grid)
    clipped = np.sqrt(np.square(values - scale * codes).sum()) / np.abs(values).max()
    tried = scale * np.linspace(max(1 - clipped, 1 / TRIED), 1, TRIED)
    errors = [np.square(values - one * grid.nearest(values / one)).sum() for one in tried]
    return float(tried[int(np.argmin(errors))])


def uniform(values: np.ndarray, grid: Grid) -> tuple[np.ndarray, float]:
    """The integers under the smallest scale that clips no weight. Arguments and result are those of `mmse`."""
    scale = max(float(values.max()) / grid.highest, float(values.min()) / grid.lowest) or 1.0
    return grid.nearest(values / scale), scale


def kmeans(values: np.ndarray, grid: Grid) -> tuple[np.ndarray, float]:
    """The integers and the scale of least squared error for the centroids of the values.

    There are as many clusters as the grid has integers, and the first centroids are quantiles. Arguments and result are
    those of `mmse`.
    """
    count = min(grid.count, len(np.unique(values)))
    centroids = np.quantile(values, (np.arange(count) + 0.5) / count)
    for _ in range(ROUNDS):
        nearest = _nearest(values, centroids)
        sums, sizes = (np.bincount(nearest, weights, count) for weights in (values, np.ones_like(values)))
        moved = np.sort(np.where(sizes > 0, sums / np.maximum(sizes, 1), centroids))
        if (moved == centroids).all():
            break
        centroids = moved
    return mmse(centroids[_nearest(values, centroids)], grid)


def _nearest(values: np.ndarray, centroids: np.ndarray) -> np.ndarray:
    """Index of the nearest centroid of each value, the lower one of two at the same distance."""
    return np.searchsorted((centroids[1:] + centroids[:-1]) / 2, values)
