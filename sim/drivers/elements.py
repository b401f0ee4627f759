"""Mantissas as the wires carry them: integers, or the codes of elements that have exponents of their own."""

import numpy as np
from concord.golden.mvm.elements import decode, encode
from concord.spec.numbers.formats import Format


def stored(mantissas: np.ndarray, fmt: Format) -> np.ndarray:
    """What a port takes for mantissas."""
    return encode(mantissas, fmt) if fmt.precision else mantissas


def loaded(values: np.ndarray, fmt: Format) -> np.ndarray:
    """The mantissas that a port shows."""
    return decode(values, fmt) if fmt.precision else values
