"""Clusters of weights, projected to the grid of integers that training and the machine have.

Source: S0.a and S0.c, k-means with its centroids projected to the grid.
"""

import numpy as np
from concord.train.ptq.grid import Grid
from concord.train.ptq.mmse import mmse, searchable
from concord.train.ptq.weight_quantiser import WeightQuantiser

ROUNDS = 100  #: Most rounds of Lloyd's iteration, which ends long before.


def kmeans(values: np.ndarray, grid: Grid) -> tuple[np.ndarray, float]:
    """The integers and the scale of least squared error for the centroids of the values.

    There are as many clusters as the grid has integers, and the first centroids are quantiles. Arguments and result are
    those of `mmse.mmse`.
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


KMEANS = WeightQuantiser(find=kmeans, check=searchable)
