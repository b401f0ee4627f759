"""Post-training quantisation: the integers and scales from which quantisation-aware training starts.

Source: S0, weights by MMSE and activations by a search for (m, b); S1, symmetric scales for each gate.
"""

import numpy as np

from spec.formats import Format


def mmse(weights: np.ndarray, fmt: Format) -> tuple[np.ndarray, np.ndarray]:
    """The integers q and the scale a > 0 of each row that minimise ||row - a q||**2, exactly.

    For a given scale the best integers are clip(rint(row / a)), so only those that some a gives can win. As a shrinks
    from infinity, they change one step at a time: |q| of element i leaves j for j + 1 at a = |row_i| / (j + 1/2). For
    given integers the error is ||row||**2 - <row, q>**2 / <q, q>, so cumulative sums over the sorted steps try all.

    Args:
        weights: Real[rows, columns]; one row for each scale.
        fmt:     Its `lowest` and `highest` bound the integers.

    Returns:
        int16[rows, columns] integers, and float64[rows] scales; a row of zeros has scale 1.
    """
    weights = np.asarray(weights, np.float64)
    codes, scales = np.zeros(weights.shape, np.int16), np.ones(len(weights))
    for index, row in enumerate(weights):
        if row.any():
            scales[index] = _best_scale(row, fmt)
            codes[index] = np.clip(np.rint(row / scales[index]), fmt.lowest, fmt.highest)
            # The scale that its integers want is the exact minimum for them.
            scales[index] = row @ codes[index] / np.square(codes[index], dtype=np.float64).sum()
    return codes, scales


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


def quantised(x, saturation: float, offset: float, levels: int):
    """Q(x) = round(clip(x - m, 0, b) * s) / s + m with s = levels / b."""
    s = levels / saturation
    return np.rint(np.clip(x - offset, 0, saturation) * s) / s + offset


def saturation(samples: np.ndarray, levels: int, steps: int = 200) -> tuple[float, float]:
    """The saturation b and offset m of an activation quantiser.

    m is the mean of the samples' minima. b minimises the squared error over a grid of `steps` values up to the largest
    one, and then over a grid as fine again between the best one's neighbours.

    Args:
        samples: Real[samples, elements], what enters the quantiser for a calibration set.
        levels:  Its largest code.

    Returns:
        b > 0 and m.
    """
    samples = np.asarray(samples, np.float64)
    offset = float(samples.min(axis=1).mean())
    values, counts = np.unique(samples, return_counts=True)
    top = float(values[-1] - offset)
    if top <= 0:
        return 1.0, offset

    def best(candidates):
        errors = [(counts * np.square(values - quantised(values, b, offset, levels))).sum() for b in candidates]
        return candidates[int(np.argmin(errors))]

    coarse = best(top * np.arange(1, steps + 1) / steps)
    fine = coarse + top / steps * np.arange(-steps + 1, steps) / steps
    return float(best(fine[fine > 0])), offset


def symmetric(values: np.ndarray, fmt: Format) -> tuple[np.ndarray, float]:
    """Integers clip(round(S x)) and the step 1 / S, where S = (2**(bits - 1) - 1) / max|x|, or 1 if all are zero."""
    largest = float(np.abs(values).max())
    step = largest / fmt.highest if largest else 1.0
    return np.clip(np.rint(np.asarray(values, np.float64) / step), -fmt.highest, fmt.highest).astype(np.int16), step
