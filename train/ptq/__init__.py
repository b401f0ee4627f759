"""Post-training quantisation: the integers, scales, saturations and offsets from which training goes on.

Source: S0.a and S0.b; S1, symmetric scales for each gate.
"""

from collections.abc import Callable

import numpy as np
from concord.spec.formats import Format
from concord.train.lib.methods import ActivationMethod, WeightMethod
from concord.train.ptq.divergence import divergence
from concord.train.ptq.gaussian import gaussian
from concord.train.ptq.grid import Grid
from concord.train.ptq.kmeans import kmeans
from concord.train.ptq.minmax import full_range, symmetric, uniform
from concord.train.ptq.mmse import mmse
from concord.train.ptq.search import quantised, search

__all__ = ["activations", "decibels", "quantised", "symmetric", "weights"]


_WEIGHTS: dict[str, Callable] = {"mmse": mmse, "uniform": uniform, "kmeans": kmeans}
_ACTIVATIONS: dict[str, Callable] = {
    "search": search, "divergence": divergence, "uniform": full_range, "gaussian": gaussian}


def weights(
    rows: np.ndarray, fmt: Format | Grid, method: WeightMethod = WeightMethod.MMSE, parts: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Integers q and scales a > 0 with rows = a q as nearly as a method finds.

    Args:
        rows:  Real[rows, columns].
        fmt:   The integers.
        parts: int[rows]: rows of one number share a scale. Each row has its own if None; zeros give one for the
            tensor.

    Returns:
        int32[rows, columns] and float64[rows]; zeros have scale 1, or 0 where 0 is no integer of the grid.

    Raises:
        ValueError: the method cannot search so many integers.
    """
    rows = np.asarray(rows, np.float64)
    grid = fmt if isinstance(fmt, Grid) else Grid.of(fmt)
    parts = np.arange(len(rows)) if parts is None else np.asarray(parts)
    codes, scales = np.zeros(rows.shape, np.int32), np.ones(len(rows))
    for part in np.unique(parts):
        mine = parts == part
        found, scale = _WEIGHTS[WeightMethod(method)](rows[mine].ravel(), grid)
        codes[mine], scales[mine] = found.reshape(-1, rows.shape[1]), scale
    return codes, scales


def activations(
    samples: np.ndarray, levels: int, method: ActivationMethod = ActivationMethod.SEARCH, offset: float | None = None
) -> tuple[float, float]:
    """Saturation b > 0 and offset m of Q(x) = round(clip(x - m, 0, b) * s) / s + m, s = levels / b.

    Args:
        samples: Real[samples, elements], what enters the quantiser for a calibration set.
        levels:  Its largest code.
        offset:  m where it is given, else the method finds it.
    """
    return _ACTIVATIONS[ActivationMethod(method)](samples, levels, offset)


def decibels(values: np.ndarray, made: np.ndarray) -> float:
    """Signal to quantisation noise; infinite where nothing was lost."""
    noise = float(np.square(np.asarray(values, np.float64) - made).sum())
    return float(10 * np.log10(float(np.square(values, dtype=np.float64).sum()) / noise)) if noise else np.inf
