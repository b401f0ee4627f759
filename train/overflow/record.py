"""Steps of the overflow predictor for each kind of network, and its records for the provenance of a model."""

from dataclasses import dataclass
from enum import StrEnum

from concord.net.layer_overflow import Widths


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerRecord:
    """Changes of one layer.

    Attributes:
        name:       Name of the layer.
        parameters: Smallest and largest factor of the ranges of its rows, since training began.
        inputs:     Factor of the range of its inputs, since training began.
        rounds:     Number of changes, since training began.
        before:     Number of events on the calibration set when the predictor last began.
        after:      Number of events on the calibration set now.
        bits:       Bits of an accumulator that the calibration set needs now.
    """

    name: str
    parameters: tuple[float, float]
    inputs: float
    rounds: int
    before: int
    after: int
    bits: int

    def __str__(self) -> str:
        low, high = self.parameters
        factor = f"{low:.3g}" if low == high else f"{low:.3g} to {high:.3g}"
        return (
            f"{self.name}: parameters x {factor}, inputs x {self.inputs:.3g} in {self.rounds} rounds, "
            f"{self.after} events, {self.bits} bits"
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class OverflowRecord:
    """Changes of all layers of a network.

    Attributes:
        widths: Widths of the machine's storage.
        layers: Records of the layers, in the order of the network.
    """

    widths: Widths
    layers: tuple[LayerRecord, ...]

    @property
    def events(self) -> int:
        """Number of events on the calibration set, of all layers together."""
        return sum(layer.after for layer in self.layers)

    def __str__(self) -> str:
        return f"ranges for sums of {self.widths.sum_bits} bits ({'; '.join(map(str, self.layers))})"


class NetworkKind(StrEnum):
    """Kind of network, by its layers."""

    CNN = "cnn"  #: convolutions
    DNN = "dnn"  #: dense layers
    GCN = "gcn"  #: sums over neighbours in a graph
    RNN = "rnn"  #: plain recurrent layers
    LSTM = "lstm"  #: gated recurrent layers


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
        shrink:    Smallest factor of one round that shrinks.
        rounds:    Most counts of one layer, each time the predictor runs.
        rows:      Whether each row of a matrix has a factor of its own. Otherwise the matrix has one.

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
    rows: bool = True

    def __post_init__(self):
        for name, allowed, fits in (
            ("threshold", "at least 0", self.threshold >= 0),
            ("inputs", "in 0..1", 0 <= self.inputs <= 1),
            ("least", "above 0", self.least > 0),
            ("step", f"at least least = {self.least}", self.step >= self.least),
            ("headroom", "at least 0.5", self.headroom >= 0.5),
            ("shrink", "between 0 and 1", 0 < self.shrink < 1),
            ("rounds", "at least 1", self.rounds >= 1),
        ):
            if not fits:
                raise ValueError(f"{name} = {getattr(self, name)} must be {allowed}")


#: The quantisation steps of a hidden vector are fixed, so only parameters of recurrent layers can follow. Their steps
#: are small, since a recurrence feeds errors back. Sums over neighbours in a graph vary with the number of neighbours:
#: they need more room, most of it from the inputs.
STEPS = {
    NetworkKind.CNN: RangeSteps(),
    NetworkKind.DNN: RangeSteps(),
    NetworkKind.GCN: RangeSteps(inputs=0.75, headroom=2.0),
    NetworkKind.RNN: RangeSteps(inputs=0.0, step=0.1, shrink=0.8),
    NetworkKind.LSTM: RangeSteps(inputs=0.0, step=0.1, shrink=0.8),
}
#: If the quantisation steps of convolutions have grown more than COARSE times, in the geometric mean, the learning rate
#: is multiplied by SLOWER, since the real weights then move further in one training step.
COARSE, SLOWER = 10.0, 0.3
