"""The loss of a layer by quantisation, before training."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Loss:
    """Signal to quantisation noise in decibels, None for what stays in FP32 and for the ones of an average.

    Attributes:
        weights: Signal to noise of the weights.
        inputs:  Signal to noise of the layer's inputs, on the calibration set.
        clipped: Share of those inputs that lie outside the quantiser's range.
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
