"""How a network is quantised before training goes on: what there is to choose. Loads nothing, for the command line."""

from dataclasses import dataclass
from enum import StrEnum


class WeightMethod(StrEnum):
    """How integers and scales are found."""

    MMSE = "mmse"  #: least squared error
    UNIFORM = "uniform"  #: the range, so that nothing clips
    KMEANS = "kmeans"  #: clusters, then the grid


class ActivationMethod(StrEnum):
    """How saturation and offset are found."""

    SEARCH = "search"  #: least squared error
    DIVERGENCE = "divergence"  #: least Kullback-Leibler divergence
    UNIFORM = "uniform"  #: the range, so that nothing clips


@dataclass(frozen=True, kw_only=True, slots=True)
class Methods:
    """How a network is quantised before training goes on.

    Attributes:
        weights:     Integers and scales of weights.
        tensor:      One scale for a whole matrix of weights, else one for each row.
        activations: Saturations and offsets.
    """

    weights: WeightMethod = WeightMethod.MMSE
    tensor: bool = False
    activations: ActivationMethod = ActivationMethod.SEARCH
