"""How a network is quantised to block floating point: what there is to choose. Loads nothing, for the command line."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from concord.spec.formats import Format


@dataclass(frozen=True, kw_only=True, slots=True)
class BlockRecipe:
    """Mantissas and blocks of a network.

    Attributes:
        weights_bits: Of a mantissa, 2 to 8.
        input_bits:   Of a mantissa of what enters each layer, 2 to 8.
        block:        Elements that share an exponent: a native vector.
        exponents:    The smallest and the largest; those of the presets with 8-bit operands by default.
        bits:         (weights_bits, input_bits) of layers by name, where they differ.
    """

    weights_bits: int = 4
    input_bits: int = 4
    block: int = 16
    exponents: tuple[int, int] = (-11, 4)
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
        """Of a layer's weights and of its inputs."""
        e_min, e_max = self.exponents
        weights, inputs = (Format(bits=bits, symmetric=True, e_min=e_min, e_max=e_max)
                           for bits in self.bits.get(name, (self.weights_bits, self.input_bits)))
        return weights, inputs

    def __str__(self) -> str:
        return (
            f"block floating point in blocks of {self.block}, mantissas of {self.weights_bits} bits for weights and "
            f"{self.input_bits} for inputs, exponents {self.exponents[0]}..{self.exponents[1]}"
            + "".join(f", {name} {w} and {i} bits" for name, (w, i) in self.bits.items())
        )
