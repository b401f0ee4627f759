"""Integers and scale of least squared error, exactly.

Source: S0, post-training quantisation of weights.
"""

import numpy as np

from spec.formats import Format


def mmse(values: np.ndarray, fmt: Format) -> tuple[np.ndarray, float]:
    """The integers q and the scale a > 0 that minimise ||values - a q||**2.

    For a given scale the best integers are clip(rint(values / a)), so only those that some a gives can win. As a
    shrinks from infinity, they change one step at a time: |q| of element i leaves j for j + 1 at |value_i| / (j + 1/2).
    For given integers the error is ||values||**2 - <values, q>**2 / <q, q>, so cumulative sums over the sorted steps
    try all.

    Args:
        values: float64[n].
        fmt:    Its `lowest` and `highest` bound the integers.

    Returns:
        int16[n] integers, and the scale; zeros have scale 1.
    """
    if not values.any():
        return np.zeros(values.shape, np.int16), 1.0
    codes = np.clip(np.rint(values / _best_scale(values, fmt)), fmt.lowest, fmt.highest).astype(np.int16)
    # The scale that the integers want is the exact minimum for them.
    return codes, float(values @ codes / np.square(codes, dtype=np.float64).sum())


def _best_scale(row: np.ndarray, fmt: Format) -> float:
    """A scale under which `row` rounds to its best integers."""
    magnitude, most = np.abs(row)[:, None], np.where(row < 0, -fmt.lowest, fmt.highest)[:, None]
    j = np.arange(-fmt.lowest)
    steps = np.broadcast_to(j < most, (row.size, j.size)) & (magnitude > 0)
    thresholds = (magnitude / (j + 0.5))[steps]
    order = np.argsort(-thresholds, kind="stable")
    product = np.cumsum(np.broadcast_to(magnitude, steps.shape)[steps][order])
    square = np.cumsum(np.broadcast_to(2 * j + 1, steps.shape)[steps][order])
    thresholds = thresholds[order]
    last = np.append(thresholds[1:] < thresholds[:-1], True)  # equal thresholds change together
    best = int(np.argmax(np.where(last, product**2 / square, 0)))
    below = thresholds[best + 1] if best + 1 < len(thresholds) else 0.0
    return (thresholds[best] + below) / 2
