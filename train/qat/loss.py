"""What quantisation costs a layer before training."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Loss:
    """Signal to quantisation noise in decibels, None for what stays in FP32.

    Attributes:
        weights: Of the weights.
        inputs:  Of what enters, on the calibration set.
        clipped: Share of that which lies outside the quantiser's range.
    """

    weights: float | None = None
    inputs: float | None = None
    clipped: float | None = None

    def __str__(self) -> str:
        parts = []
        if self.weights is not None:
            parts.append(f"weights {self.weights:.1f} dB")
        if self.inputs is not None:
            parts += [f"inputs {self.inputs:.1f} dB", f"{self.clipped:.1%} clipped"]
        return ", ".join(parts)
