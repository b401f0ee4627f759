"""Integers and scale, or saturation and offset, from the ends of the range alone.

Source: S0.a and S0.b, uniform; S1, symmetric.
"""

import numpy as np

from spec.formats import Format


def uniform(values: np.ndarray, fmt: Format) -> tuple[np.ndarray, float]:
    """The least scale under which nothing clips; arguments and result as in `mmse`."""
    scale = max(float(values.max()) / fmt.highest, float(values.min()) / fmt.lowest) or 1.0
    return np.clip(np.rint(values / scale), fmt.lowest, fmt.highest).astype(np.int16), scale


def full_range(samples: np.ndarray, levels: int) -> tuple[float, float]:
    """From the smallest to the largest value; arguments and result as in `search`."""
    low, high = float(samples.min()), float(samples.max())
    return (high - low) or 1.0, low


def symmetric(values: np.ndarray, fmt: Format) -> tuple[np.ndarray, float]:
    """Integers clip(round(S x)) and the step 1 / S, where S = (2**(bits - 1) - 1) / max|x|, or 1 if all are zero."""
    largest = float(np.abs(values).max())
    step = largest / fmt.highest if largest else 1.0
    return np.clip(np.rint(np.asarray(values, np.float64) / step), -fmt.highest, fmt.highest).astype(np.int16), step
