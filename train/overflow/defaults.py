"""How ranges are enlarged and shrunk, by kind of network.

Source: S3.c.
"""

from dataclasses import dataclass
from enum import StrEnum


class NetworkKind(StrEnum):
    """What a network is made of."""

    CNN = "cnn"  #: convolutions
    DNN = "dnn"  #: dense layers
    GCN = "gcn"  #: sums over neighbours in a graph
    RNN = "rnn"  #: plain recurrent layers
    LSTM = "lstm"  #: gated recurrent layers


@dataclass(frozen=True, kw_only=True, slots=True)
class Steps:
    """How ranges follow the overflow.

    Attributes:
        threshold: Events of a layer on the calibration set that are tolerated.
        inputs:    Share of the factor, as a power, that goes to the inputs where they can carry it: 0 enlarges ranges
            of parameters only, 1 of inputs only.
        step:      Growth that follows from a share of events of 1, where the factor by magnitude was not enough.
        least:     Growth at least.
        headroom:  Bits that stay free before a range counts as too large.
        shrink:    Least factor of one shrinking.
        rounds:    Counts of one layer at most, each time the predictor runs.
        rows:      Each row of a matrix has a factor of its own, else the matrix has one.

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


#: The steps of a hidden vector are fixed, so that only parameters can follow, and in small steps, since a recurrence
#: feeds their error back. Sums over neighbours in a graph vary with their number: more room, most of it of the inputs.
STEPS = {
    NetworkKind.CNN: Steps(),
    NetworkKind.DNN: Steps(),
    NetworkKind.GCN: Steps(inputs=0.75, headroom=2.0),
    NetworkKind.RNN: Steps(inputs=0.0, step=0.1, shrink=0.8),
    NetworkKind.LSTM: Steps(inputs=0.0, step=0.1, shrink=0.8),
}
#: Steps of convolutions that have grown more than so many times, in the geometric mean, are learned by this share of a
#: learning rate: the real weights behind them move further than others do.
COARSE, SLOWER = 10.0, 0.3
