"""How an imported network is quantised, in integers or in blocks. The command line reads this without PyTorch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import ClassVar

from concord.net.quantize.recipe import Gates, Recipe
from concord.net.quantize.results import ENDING, IN_BINARY16, Results
from concord.spec.numbers.formats import Format

#: Most bits of weights and of inputs with which layers are reconstructed where nothing says otherwise.
FEW = 4


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
        weights_element: (exponent, fraction) bits of weights whose elements have exponents of their own, instead of
            weights_bits; None for mantissas without. See `Format.floating`.
        input_element:   The same of the inputs.
        results:         Bits of the results of products that are quantised by themselves.
    """

    weights_bits: int = 4
    input_bits: int = 4
    block: int = 16
    exponents: tuple[int, int] = (-11, 4)
    input_exponents: tuple[int, int] | None = None
    bits: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    weights_element: tuple[int, int] | None = None
    input_element: tuple[int, int] | None = None
    results: Results = IN_BINARY16

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
        elements = (None, None) if name in self.bits else (self.weights_element, self.input_element)
        ranges = self.exponents, self.input_exponents or self.exponents
        weights, inputs = (_format(*choice) for choice in zip(bits, elements, ranges, strict=True))
        return weights, inputs

    def __str__(self) -> str:
        weights, inputs = self.formats("")
        entering = inputs.element if weights.precision or inputs.precision else inputs.bits
        apart = self.input_exponents not in (None, self.exponents)
        return (
            f"block floating point in blocks of {self.block}, mantissas of {weights.element} for weights and "
            f"{entering} for inputs, exponents {self.exponents[0]}..{self.exponents[1]}"
            + (f" for weights and {self.input_exponents[0]}..{self.input_exponents[1]} for inputs" if apart else "")
            + "".join(f", {name} {w} and {i} bits" for name, (w, i) in self.bits.items()) + self.results.words
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class BlockFormats:
    """The formats of a machine for every layer of a network, instead of a `BlockRecipe`.

    Attributes:
        weights: Format of the weights.
        inputs:  Format of the inputs.
        block:   Number of elements that share an exponent: the native dimension of the machine.
        results: Bits of the results of products, which are those of the inputs, or none.
    """

    weights: Format
    inputs: Format
    block: int
    results: Results = IN_BINARY16
    bits: ClassVar[Mapping[str, tuple[int, int]]] = MappingProxyType({})

    def formats(self, name: str) -> tuple[Format, Format]:
        """Formats of the weights and of the inputs of a layer."""
        return self.weights, self.inputs

    def __str__(self) -> str:
        return (f"block floating point in blocks of {self.block}, mantissas of {self.weights.bits} bits for weights "
                f"and {self.inputs.bits} for x and h{self.results.words}")


def _format(bits: int, element: tuple[int, int] | None, ends: tuple[int, int]) -> Format:
    """The format of mantissas, or of elements with exponents of their own."""
    e_min, e_max = ends
    if element is None:
        return Format(bits=bits, symmetric=True, e_min=e_min, e_max=e_max)
    return Format.floating(*element, e_min=e_min, e_max=e_max)


def _mantissa(bits: int | None) -> int:
    """Bits of a mantissa for a width of integers, which may be 1, or None for no quantiser."""
    return max(2, min(bits or 8, 8))


@dataclass(frozen=True, kw_only=True, slots=True)
class Choices:
    """How a network is quantised.

    Attributes:
        recipe: Widths and methods. Recurrent networks take the widths, and `methods` for their dense layers.
        gates:  How the gates of recurrent layers become integers.
        softmax: Most elements of which the machine computes the softmax at the end of a network; 0 for none.
        equalize: Whether channels are equalised before, as far as it helps. Training does not do so.
        machine: Formats of the machine that is named, for products of two computed tensors in networks of integers;
            None where only widths are given.
        reconstruct: Whether ranges, integers and biases of each layer are found by its results; None where the
            widths decide, see `by_itself`. Training does not do so.
    """

    recipe: Recipe | BlockRecipe | BlockFormats = Recipe(weights_bits=8, input_bits=8, symmetric=(True, True))
    gates: Gates = Gates()
    softmax: int = 0
    equalize: bool = False
    reconstruct: bool | None = None
    machine: BlockFormats | None = None

    def with_results(self, names: Sequence[str]) -> "Choices":
        """The choices with the bits of quantised results, by the names of the parts that these are."""
        recipe = self.recipe
        if isinstance(recipe, BlockFormats):
            return self
        bits = {name: (recipe.weights_bits, recipe.results.of(name.removesuffix(ENDING))) for name in names}
        return replace(self, recipe=replace(recipe, bits={**bits, **recipe.bits})) if bits else self

    def by_itself(self, sequence: bool) -> "Choices":
        """The choices of quantisation without training, where nothing says whether layers are reconstructed.

        Integers of 4 bits or fewer of networks without sequences are, with equalised channels.
        """
        if self.reconstruct is not None or self.blocks or sequence:
            return self
        few = all(bits is not None and bits <= FEW for bits in (self.recipe.weights_bits, self.recipe.input_bits))
        return replace(self, reconstruct=few, equalize=self.equalize or few)

    @property
    def blocks(self) -> bool:
        """Whether the network is in block floating point."""
        return not isinstance(self.recipe, Recipe)

    @property
    def products(self) -> BlockFormats:
        """Formats of products of two computed tensors, in a network of integers: blocks of the same widths."""
        recipe = self.recipe
        return self.machine or BlockFormats(
            weights=_format(_mantissa(recipe.weights_bits), None, (-11, 4)),
            inputs=_format(_mantissa(recipe.input_bits), None, (-11, 4)), block=16)

    @property
    def formats(self) -> tuple[Format, Format]:
        """Formats of the weights and of the inputs of recurrent layers."""
        recipe = self.recipe
        if self.blocks:
            return recipe.formats("")
        return (Format(bits=recipe.weights_bits, symmetric=True),
                Format(bits=recipe.input_bits, symmetric=recipe.symmetric[1]))

    def words(self, sequence: bool) -> str:
        """The choices for networks of sequences, or for other ones, in words."""
        if not sequence or self.blocks:
            return f"{self.recipe}{self.gates.words}"
        weights, inputs = self.formats
        of_gates = (f"weights of {weights.bits} bits, {self.gates}, x and h of {inputs.bits} bits"
                    f"{self.recipe.results.words}")
        plain = Recipe(weights_bits=weights.bits, input_bits=inputs.bits, symmetric=self.recipe.symmetric,
                       methods=self.recipe.methods, results=self.recipe.results)
        return of_gates if self.recipe == plain else f"{of_gates}; layers without gates: {self.recipe}"
