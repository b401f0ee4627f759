"""What a method of post-training quantisation for weights provides."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from concord.train.ptq.grid import Grid


def any_size(count: int, grid: Grid, where: str = ""):
    """Refuse nothing: the method can quantise any number of weights to any grid."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WeightQuantiser:
    """One method that finds integers and a scale for weights that share a scale.

    Attributes:
        find:  Function of float64[n] weights and a grid that returns int32[n] integers and the scale.
        check: Function of a number of weights, a grid and the beginning of a sentence, which raises ValueError where
            `find` cannot quantise so many weights to that grid. It is called before slow work begins.
    """

    find: Callable[[np.ndarray, Grid], tuple[np.ndarray, float]]
    check: Callable[[int, Grid, str], None] = any_size
