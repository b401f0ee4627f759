"""Integers and scale, or saturation and offset, from the ends of the range alone.

Source: S0.a and S0.b, uniform.
"""

import numpy as np
from concord.train.ptq.grid import Grid
from concord.train.ptq.weight_quantiser import WeightQuantiser


def uniform(values: np.ndarray, grid: Grid) -> tuple[np.ndarray, float]:
    """The integers under the smallest scale that clips no weight. Arguments and result are those of `mmse.mmse`."""
    scale = max(float(values.max()) / grid.highest, float(values.min()) / grid.lowest) or 1.0
    return grid.nearest(values / scale), scale


def full_range(samples: np.ndarray, levels: int, offset: float | None = None) -> tuple[float, float]:
    """Saturation and offset that cover all values. Arguments and result are those of `search.search`."""
    low, high = float(samples.min()) if offset is None else offset, float(samples.max())
    return high - low if high > low else 1.0, low


UNIFORM = WeightQuantiser(find=uniform)
