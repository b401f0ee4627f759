"""Integers and scale, or saturation and offset, from the ends of the range alone.

Source: S0.a and S0.b, uniform; S1, symmetric.
"""

import numpy as np

from spec.formats import Format
from train.ptq import gates


def uniform(values: np.ndarray, fmt: Format) -> tuple[np.ndarray, float]:
    """The least scale under which nothing clips; arguments and result as in `mmse`."""
    scale = max(float(values.max()) / fmt.highest, float(values.min()) / fmt.lowest) or 1.0
    return np.clip(np.rint(values / scale), fmt.lowest, fmt.highest).astype(np.int16), scale


def full_range(samples: np.ndarray, levels: int) -> tuple[float, float]:
    """From the smallest to the largest value; arguments and result as in `search`."""
    low, high = float(samples.min()), float(samples.max())
    return (high - low) or 1.0, low


def symmetric(values: np.ndarray, fmt: Format) -> tuple[np.ndarray, float]:
    """Integers of the symmetric range of `fmt.bits` bits, int16, and the real value of one step."""
    affine = gates.symmetric(values, fmt.bits)
    return gates.quantise(values, affine).astype(np.int16), affine.step
