"""Integers and scale, or saturation and offset, from the ends of the range alone.

Source: S0.a and S0.b, uniform; S1, symmetric.
"""

import numpy as np
from concord.spec.formats import Format
from concord.train.ptq import gates
from concord.train.ptq.grid import Grid


def uniform(values: np.ndarray, grid: Grid) -> tuple[np.ndarray, float]:
    """The least scale under which nothing clips; arguments and result as in `mmse`."""
    scale = max(float(values.max()) / grid.highest, float(values.min()) / grid.lowest) or 1.0
    return grid.nearest(values / scale), scale


def full_range(samples: np.ndarray, levels: int, offset: float | None = None) -> tuple[float, float]:
    """From the smallest to the largest value; arguments and result as in `search`."""
    low, high = float(samples.min()) if offset is None else offset, float(samples.max())
    return high - low if high > low else 1.0, low


def symmetric(values: np.ndarray, fmt: Format) -> tuple[np.ndarray, float]:
    """Integers of the symmetric range of `fmt.bits` bits, int16, and the real value of one step."""
    affine = gates.symmetric(values, fmt.bits)
    return gates.quantise(values, affine).astype(np.int16), affine.step
