"""The choices of a network in block floating point. The command line reads them without PyTorch."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from concord.spec.formats import Format


@dataclass(frozen=True, kw_only=True, slots=True)
class BlockRecipe:
    """Mantissas and blocks of a network in block floating point.

    Attributes:
        weights_bits:    Bits of a mantissa of the weights, 2 to 8.
        input_bits:      Bits of a mantissa of the inputs of each layer, 2 to 8.
        block:           Number of elements that share an exponent: the native dimension of the machine.
        exponents:       Smallest and largest exponent. By default they are those of the presets with 8-bit operands.
        input_exponents: Smallest and largest exponent of the inputs; None where they are those of the weights.
        bits:            (weights_bits, input_bits) by name of the layers that differ.
    """

    weights_bits: int = 4
    input_bits: int = 4
    block: int = 16
    exponents: tuple[int, int] = (-11, 4)
    input_exponents: tuple[int, int] | None = None
    bits: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    def __post_init__(self):
        for pair in ((self.weights_bits, self.input_bits), *self.bits.values()):
            for value in pair:
                if not 2 <= value <= 8:
                    raise ValueError(f"mantissas of {value} bits: choose 2 to 8")
        if self.block < 1:
            raise ValueError(f"a block of {self.block} elements: a native dimension is 1 or more")
        self.formats("")

    def formats(self, name: str) -> tuple[Format, Format]:
        """Formats of the weights and of the inputs of a layer."""
        bits = self.bits.get(name, (self.weights_bits, self.input_bits))
        ranges = self.exponents, self.input_exponents or self.exponents
        weights, inputs = (Format(bits=width, symmetric=True, e_min=e_min, e_max=e_max)
                           for width, (e_min, e_max) in zip(bits, ranges, strict=True))
        return weights, inputs

    def __str__(self) -> str:
        apart = self.input_exponents not in (None, self.exponents)
        return (
            f"block floating point in blocks of {self.block}, mantissas of {self.weights_bits} bits for weights and "
            f"{self.input_bits} for inputs, exponents {self.exponents[0]}..{self.exponents[1]}"
            + (f" for weights and {self.input_exponents[0]}..{self.input_exponents[1]} for inputs" if apart else "")
            + "".join(f", {name} {w} and {i} bits" for name, (w, i) in self.bits.items())
        )
