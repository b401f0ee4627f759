"""Integer codes of the inputs of a layer: how they are found, what they stand for, and what a layer loses by them."""

from dataclasses import dataclass, replace

import numpy as np
from concord.net.quantize import tensors
from concord.net.quantize.recipe import ActivationMethod, Recipe, Start
from concord.spec.numbers.formats import Format

#: Smallest saturation of unsigned codes that a ceiling has moved.
LEAST = np.float32(1e-3)


@dataclass(frozen=True, kw_only=True, slots=True)
class InputCodes:
    """Codes of inputs x = step * code + offset.

    Attributes:
        bits:       Bits of a code.
        symmetric:  Whether the lowest signed code, or the highest unsigned one, is left out.
        unsigned:   Whether codes are 0..levels instead of lowest..highest.
        step:       Real value of one step of the codes.
        offset:     Real value of code 0; 0 for signed codes.
        positive:   Whether all samples are 0 or above, so that the clip at code 0 is a relu.
        padded:     Whether zeros are put around the inputs. The range then includes 0, and post-training quantisation
            finds codes of which one means 0.
        ceiling:    Largest value of the input, 6 after a relu6, or None.
    """

    bits: int
    symmetric: bool
    unsigned: bool
    step: float
    offset: float = 0.0
    positive: bool = False
    padded: bool = False
    ceiling: float | None = None

    @property
    def format(self) -> Format:
        """The format of a machine's operands that holds the codes.

        Raises:
            ValueError: no machine has operands as wide.
        """
        if not 2 <= self.bits <= 16:
            raise ValueError(f"codes of {self.bits} bits, but operands have 2 to 16")
        return Format(bits=self.bits, symmetric=self.symmetric)

    @property
    def levels(self) -> int:
        """The largest unsigned code."""
        return (1 << self.bits) - 1 - self.symmetric

    @property
    def ends(self) -> tuple[int, int]:
        """Smallest and largest code."""
        half = 1 << self.bits - 1
        return (0, self.levels) if self.unsigned else (self.symmetric - half, half - 1)

    def quantized(self, x: np.ndarray) -> np.ndarray:
        """The real numbers float64[...] that the codes of x stand for."""
        return np.clip(np.rint((x - self.offset) / self.step), *self.ends) * self.step + self.offset

    def clipped(self, x: np.ndarray) -> float:
        """Share of the inputs that lie outside the range."""
        low, high = (code * self.step + self.offset for code in self.ends)
        return float(np.mean((x < low) | (x > high)))

    def lost(self, samples: np.ndarray) -> dict[str, float]:
        """What the codes lose of the inputs of a layer, by the names of the fields of `Loss`."""
        return {"inputs": tensors.decibels(samples, self.quantized(samples)), "clipped": self.clipped(samples)}

    def reaching(self, low: float, high: float) -> "InputCodes":
        """Unsigned codes from one number to another one; a code stands for 0 where zeros are put around the inputs."""
        step = float(np.float32(high - low)) / self.levels
        low = np.rint(low / step) * step if self.padded else low
        return replace(self, step=step, offset=float(np.float32(low)))

    def below(self, ceiling: float) -> "InputCodes":
        """Unsigned codes whose largest one stands for at most `ceiling`."""
        offset = np.float32(self.offset)
        offset = max(offset, np.float32(0)) if self.positive else offset
        offset = min(offset, np.float32(0)) if self.padded else offset
        saturation = min(max(np.float32(self.step * self.levels), LEAST), np.float32(ceiling) - offset)
        saturation = max(saturation, -offset) if self.padded else saturation
        return replace(self, step=float(saturation) / self.levels, offset=float(offset), ceiling=ceiling)


def unsigned(samples: np.ndarray, bits: int, recipe: Recipe, *, padded: bool) -> InputCodes:
    """Unsigned codes whose saturation and offset a recipe finds.

    Args:
        samples: Real[samples, elements], the inputs of the layer for a calibration set.
        bits:    Bits of a code.
        recipe:  How saturation and offset are found. Where training starts from FP32, they are the ends of the range.
        padded:  Whether zeros are put around the inputs.
    """
    symmetric = recipe.symmetric[1]
    levels = (1 << bits) - 1 - symmetric
    positive = bool(samples.min() >= 0)
    method = recipe.methods.activations if recipe.start is Start.PTQ else ActivationMethod.UNIFORM
    fixed = 0.0 if positive and not recipe.activations.learns_offset else None
    saturation, offset = tensors.activations(samples, levels, method, fixed, padded=padded)
    step = float(np.float32(saturation)) / levels
    if padded and step:  # otherwise all zeros of the padding would be wrong by up to half a step, in one direction
        offset = np.rint(offset / step) * step
    return InputCodes(bits=bits, symmetric=symmetric, unsigned=True, step=step, offset=float(np.float32(offset)),
                      positive=positive, padded=padded)


def signed(step: float, bits: int, symmetric: bool) -> InputCodes:
    """Signed codes of this step."""
    return InputCodes(bits=bits, symmetric=symmetric, unsigned=False, step=step)


@dataclass(frozen=True, kw_only=True, slots=True)
class Loss:
    """Signal to quantisation noise in decibels, None for what stays in FP32 and for the ones of an average.

    Attributes:
        weights: Signal to noise of the weights.
        inputs:  Signal to noise of the layer's inputs, on the calibration set.
        clipped: Share of those inputs that lie outside the quantiser's range.
        results: Signal to noise of the layer's results, where it is reconstructed.
    """

    weights: float | None = None
    inputs: float | None = None
    clipped: float | None = None
    results: float | None = None

    def __str__(self) -> str:
        parts = []
        if self.weights is not None:
            parts.append(f"weights {self.weights:.1f} dB")
        if self.inputs is not None:
            parts += [f"inputs {self.inputs:.1f} dB", f"{self.clipped:.1%} clipped"]
        if self.results is not None:
            parts.append(f"results {self.results:.1f} dB")
        return ", ".join(parts)
