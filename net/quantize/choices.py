"""How an imported network is quantised. The command line reads this without PyTorch."""

from dataclasses import dataclass

from concord.net.quantize.block_recipe import BlockFormats, BlockRecipe
from concord.net.quantize.recipe import Gates, Recipe
from concord.spec.numbers.formats import Format


@dataclass(frozen=True, kw_only=True, slots=True)
class Choices:
    """How a network is quantised.

    Attributes:
        recipe: Widths and methods. Recurrent networks take the widths, and `methods` for their dense layers.
        gates:  How the gates of recurrent layers become integers.
        softmax: Most elements of which the machine computes the softmax at the end of a network; 0 for none.
        equalize: Whether channels are equalised before, as far as it helps. Training does not do so.
    """

    recipe: Recipe | BlockRecipe | BlockFormats = Recipe(weights_bits=8, input_bits=8, symmetric=(True, True))
    gates: Gates = Gates()
    softmax: int = 0
    equalize: bool = False

    @property
    def blocks(self) -> bool:
        """Whether the network is in block floating point."""
        return not isinstance(self.recipe, Recipe)

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
            return str(self.recipe)
        weights, inputs = self.formats
        return f"weights of {weights.bits} bits, {self.gates}, x and h of {inputs.bits} bits"
