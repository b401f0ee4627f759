"""Records of the overflow predictor, for the provenance of a model."""

from dataclasses import dataclass

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
class Record:
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
