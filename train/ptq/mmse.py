"""Integers and scale of least squared error, exactly.

Source: S0, post-training quantisation of weights.
"""

import numpy as np
from concord.train.ptq.grid import Grid
from concord.train.ptq.weight_quantiser import WeightQuantiser

#: Most steps, of all magnitudes together, that are searched: 10 bits for a row of 100,000 weights.
MOST = 1 << 26


def mmse(values: np.ndarray, grid: Grid) -> tuple[np.ndarray, float]:
    """The integers q and the scale a > 0 that minimise ||values - a q||**2.

    For a given scale the best integers are the nearest to values / a, so only those that some a gives can win. As a
    shrinks from infinity, they change one step at a time: |q| of element i leaves j for j + step at
    |value_i| / (j + step / 2). For given integers the error is ||values||**2 - <values, q>**2 / <q, q>, so cumulative
    sums over the sorted steps try all.

    Args:
        values: float64[n], the weights.
        grid:   The integers that they may become.

    Returns:
        int32[n] integers, and the scale. If all values are 0, the scale is 1, or 0 where the grid has no 0.

    Raises:
        ValueError: the grid is too fine to be searched.
    """
    searchable(values.size, grid)
    if not values.any():
        return np.full(values.shape, grid.least, np.int32), 1.0 - grid.least
    codes = grid.nearest(values / _best_scale(values, grid))
    # The scale that the integers want is the exact minimum for them.
    return codes, float(values @ codes / np.square(codes, dtype=np.float64).sum())


def searchable(count: int, grid: Grid, where: str = ""):
    """Refuse more weights that share a scale than `mmse` can search.

    Args:
        count: Number of weights that share a scale.
        grid:  Their integers.
        where: Beginning of the sentence, which names the layer.

    Raises:
        ValueError: the search would take too long.
    """
    if count * (grid.highest // grid.step) > MOST:
        raise ValueError(f"{where}mmse cannot search {grid.count:,} integers for {count:,} weights that share a scale: "
                         "use fewer bits, a scale for each row, or uniform")


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


MMSE = WeightQuantiser(find=mmse, check=searchable)
