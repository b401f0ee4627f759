"""Steps of the overflow predictor for each kind of network, and its records for the provenance of a model."""

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from concord.net.layer_overflow import Widths


class Adjusted(StrEnum):
    """What changes where sums overflow."""

    RANGES = "ranges"  #: ranges of weights and inputs grow, so that the same numbers stand in fewer steps
    DATA = "data"  #: the largest weights of each range are replaced by smaller ones, in the same steps


@dataclass(frozen=True, kw_only=True, slots=True)
class ProductRecord:
    """Changes of one product.

    Attributes:
        name:       Name of the product: of its layer, and of the matrix where a layer has several.
        parameters: Smallest and largest factor of the ranges of its weights, since training began; where data were
            replaced, the largest weights of each range, as shares of the range.
        inputs:     Factor of the range of its inputs, since training began.
        rounds:     Number of changes, since training began.
        before:     Number of events on the calibration set when the predictor last began.
        after:      Number of events on the calibration set now.
        bits:       Bits of an accumulator that the calibration set needs now.
        excess:     Largest number of bits that the storage lacked when the predictor last began.
        by:         What was changed.
    """

    name: str
    parameters: tuple[float, float]
    inputs: float
    rounds: int
    before: int
    after: int
    bits: int
    excess: int = 0
    by: Adjusted = Adjusted.RANGES

    def __str__(self) -> str:
        low, high = self.parameters
        factor = f"{low:.3g}" if low == high else f"{low:.3g} to {high:.3g}"
        changed = f"parameters x {factor}" if self.by is Adjusted.RANGES else f"parameters clipped to {factor}"
        return (
            f"{self.name}: {changed}, inputs x {self.inputs:.3g} in {self.rounds} rounds, "
            f"{self.after} events, {self.bits} bits"
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class OverflowRecord:
    """Changes of all products of a network.

    Attributes:
        widths:   Widths of the machine's storage.
        products: Records of the products, in the order of the network.
    """

    widths: "Widths"
    products: tuple[ProductRecord, ...]

    @property
    def events(self) -> int:
        """Number of events on the calibration set, of all products together."""
        return sum(product.after for product in self.products)

    @property
    def figures(self) -> dict[str, dict[str, float]]:
        """What a log keeps of each product, by its name, see `figures` of `EpochRecord`."""
        return {product.name: {"events": product.before, "excess": product.excess, "left": product.after,
                               "bits": product.bits, "weights": product.parameters[1], "inputs": product.inputs}
                for product in self.products}

    def __str__(self) -> str:
        return f"ranges for sums of {self.widths.sum_bits} bits ({'; '.join(map(str, self.products))})"


class NetworkKind(StrEnum):
    """Kind of network, by its layers."""

    CNN = "cnn"  #: convolutions
    DNN = "dnn"  #: dense layers
    GCN = "gcn"  #: sums over neighbours in a graph
    RNN = "rnn"  #: plain recurrent layers
    LSTM = "lstm"  #: recurrent layers with a cell state, with peepholes or without
    GRU = "gru"  #: gated recurrent layers without a cell state


@dataclass(frozen=True, kw_only=True, slots=True)
class RangeSteps:
    """How far ranges of a layer grow and shrink, and how often.

    Attributes:
        threshold: Number of events of a layer on the calibration set that are tolerated.
        inputs:    Share of the factor, as a power, that goes to the inputs if they can carry it: 0 enlarges only ranges
            of parameters, 1 only those of inputs.
        step:      Growth for a share of events of 1, after a round whose factor by magnitude was not enough.
        least:     Smallest growth of one round.
        headroom:  Number of bits that must stay free before a range counts as too large.
        shrink:    Smallest factor of one round that shrinks; 1 for no shrinking.
        rounds:    Most counts of one product, each time the predictor runs.
        by:        What changes where sums overflow. With data, nothing shrinks ranges.
        every:     Number of training steps between two runs of the predictor; 0 for one run after each epoch alone.
        weights_factor: a1, the growth of the ranges of weights in each round with an overflow; None to derive it.
        inputs_factor:  a2, the growth of the range of inputs in each such round; None to derive it.

    Raises:
        ValueError: a sentence that names the attribute.
    """

    threshold: int = 0
    inputs: float = 0.5
    step: float = 0.25
    least: float = 0.02
    headroom: float = 1.0
    shrink: float = 0.5
    rounds: int = 40
    by: Adjusted = Adjusted.RANGES
    every: int = 0
    weights_factor: float | None = None
    inputs_factor: float | None = None

    def __post_init__(self):
        for name, allowed, fits in (
            ("threshold", "at least 0", self.threshold >= 0),
            ("inputs", "in 0..1", 0 <= self.inputs <= 1),
            ("least", "above 0", self.least > 0),
            ("step", f"at least least = {self.least}", self.step >= self.least),
            ("headroom", "at least 0.5", self.headroom >= 0.5),
            ("shrink", "above 0 and at most 1", 0 < self.shrink <= 1),
            ("every", "at least 0", self.every >= 0),
            ("weights_factor", "at least 1", self.weights_factor is None or self.weights_factor >= 1),
            ("inputs_factor", "at least 1", self.inputs_factor is None or self.inputs_factor >= 1),
            ("inputs_factor", "above 1 where weights_factor is 1", (self.weights_factor, self.inputs_factor) != (1, 1)),
            ("rounds", "at least 1", self.rounds >= 1),
        ):
            if not fits:
                raise ValueError(f"{name} = {getattr(self, name)} must be {allowed}")


#: The steps of recurrent layers are small, since a recurrence feeds errors back. `nox -s bench_overflow -- --share`
#: measures the shares of the inputs; docs/quantisation.md has the accuracies.
STEPS = {
    NetworkKind.CNN: RangeSteps(),
    NetworkKind.DNN: RangeSteps(),
    NetworkKind.GCN: RangeSteps(inputs=0.75, headroom=2.0),
    NetworkKind.RNN: RangeSteps(inputs=0.75, step=0.1, shrink=0.8),
    NetworkKind.LSTM: RangeSteps(inputs=0.75, step=0.1, shrink=0.8),
    NetworkKind.GRU: RangeSteps(inputs=0.75, step=0.1, shrink=0.8),
}
#: Where the quantisation steps of such a network have grown more than this, in the geometric mean, the learning rate is
#: multiplied by the second number, since the weights then move by more steps in one step of training.
SLOWER = {NetworkKind.CNN: (10.0, 0.3), NetworkKind.GCN: (3.0, 0.1)}
