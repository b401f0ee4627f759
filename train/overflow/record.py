"""What the overflow predictor did, for a model's provenance."""

from dataclasses import dataclass

from concord.model.layer_overflow import Widths


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerRecord:
    """One layer.

    Attributes:
        name:       Its name.
        parameters: Smallest and largest factor of its rows' ranges, since training began.
        inputs:     Factor of its inputs' range, since training began.
        rounds:     Changes, since training began.
        before:     Events on the calibration set when the predictor last began.
        after:      Events on the calibration set now.
        bits:       Accumulator bits that the calibration set needs now.
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
class Record:
    """What the predictor did to a network.

    Attributes:
        widths: What the machine stores.
        layers: In order.
    """

    widths: Widths
    layers: tuple[LayerRecord, ...]

    @property
    def events(self) -> int:
        """Events on the calibration set, of all layers."""
        return sum(layer.after for layer in self.layers)

    def __str__(self) -> str:
        return f"ranges for sums of {self.widths.sum_bits} bits ({'; '.join(map(str, self.layers))})"
