"""How a network is quantised before training goes on: what there is to choose. Loads nothing, for the command line."""

from dataclasses import dataclass
from enum import StrEnum

from spec.formats import Format


class WeightMethod(StrEnum):
    """How integers and scales are found."""

    MMSE = "mmse"  #: least squared error
    UNIFORM = "uniform"  #: the range, so that nothing clips
    KMEANS = "kmeans"  #: clusters, then the grid


class ActivationMethod(StrEnum):
    """How saturation and offset are found."""

    SEARCH = "search"  #: least squared error
    DIVERGENCE = "divergence"  #: least Kullback-Leibler divergence
    GAUSSIAN = "gaussian"  #: least squared error for half of a normal distribution
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


@dataclass(frozen=True, kw_only=True, slots=True)
class Gates:
    """How the weights of an LSTM's gates become integers, and their outputs.

    Attributes:
        asymmetric: From the smallest weight to the largest, with an integer zero point, else symmetric about 0.
        shared:     One scale for both matrices of a gate, as the source's claim has it, else one for each.
        outputs:    Width of the gates' outputs, 2 to 9; 0 leaves them in binary16.
    """

    asymmetric: bool = False
    shared: bool = False
    outputs: int = 0

    def __post_init__(self):
        if self.outputs and not 2 <= self.outputs <= 9:
            raise ValueError(f"outputs of gates have 2 to 9 bits, or 0 for binary16, not {self.outputs}")

    def travels_as(self, fmt: Format) -> Format:
        """What the machine multiplies where weights are quantised to `fmt`: a zero point costs one bit.

        Raises:
            ValueError: no machine has operands as wide.
        """
        if not self.asymmetric:
            return fmt
        if fmt.bits == 16:
            raise ValueError("asymmetric weights of 16 bits multiply as integers of 17, operands have 16: use 15 bits")
        return Format(bits=fmt.bits + 1, symmetric=True)

    def __str__(self) -> str:
        kind = "asymmetric with an integer zero point" if self.asymmetric else "symmetric"
        outputs = f", outputs of gates of {self.outputs} bits" if self.outputs else ""
        return f"{kind}, one scale for {'each gate' if self.shared else 'each matrix of each gate'}{outputs}"


class InitialState(StrEnum):
    """What h and c of an LSTM are before the first time step."""

    ZERO = "zero"  #: all zero
    UNIFORM = "uniform"  #: random, evenly over -1..1
    NORMAL = "normal"  #: random, normal of standard deviation 0.1
