"""Integers of a network whose layers start from those of a quantised model.

Source: claims 8 and 10 of the first document, paragraphs [0127] and [0145]: trained weights, offsets and saturations
initialise the layers of another network.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from concord.net.graph import INPUT
from concord.net.layers.rows import IntegerRows
from concord.net.model import Model
from concord.net.quantize.choices import Choices
from concord.net.quantize.integers import Integers, Rows
from concord.net.quantize.plan import WEIGHTED, Part, Plan
from concord.net.quantize.recipe import Recipe, Start
from concord.net.quantize.weights import Grid


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Begun:
    """A model from which the layers of a network start.

    Attributes:
        model: The model.
        whole: Whether the network is the model's own, so that every layer starts from it.
    """

    model: Model
    whole: bool

    @property
    def layers(self) -> Mapping[str, IntegerRows]:
        """The layers with integers of weights and of inputs, by name.

        Raises:
            ValueError: the model has none, or its layers do not hold the real numbers of their integers.
        """
        found = {layer.name: layer for layer in self.model.layers if isinstance(layer, IntegerRows)}
        others = [layer.name for layer in self.model.layers if layer.multiplications and layer.name not in found]
        if not found or self.whole and others:
            raise ValueError(f"{self.model.name}: layers with gates and layers in block floating point cannot be "
                             f"trained on from a model{f', and {others[0]} is one' if others else ''}; train them from "
                             "the file of the network")
        if missing := [name for name, layer in found.items() if not {"gain", "constant", "input"} <= set(layer.real)]:
            raise ValueError(f"{self.model.name}: layer {missing[0]!r} does not hold the real numbers of its scales, "
                             "which training needs; quantise the network again")
        return found

    def check(self, recipe: object):
        """Refuse choices that contradict the numbers of the model.

        Raises:
            ValueError: the choices are for block floating point, or initialise quantisers in another way.
        """
        if not isinstance(recipe, Recipe):
            raise ValueError(f"{self.model.name}: integers start from a model: leave out --arithmetic bfp")
        if recipe.stages or recipe.start is not Start.PTQ or recipe.normalise or recipe.weights.odd:
            raise ValueError(f"{self.model.name}: it decides where quantisers start: leave out --stages, --start, "
                             "--batch-norm and methods of --weights for odd integers")

    def recipe(self, recipe: Recipe) -> Recipe:
        """The recipe with the widths of the model in its layers, and weights that start as integers."""
        bits = {name: (layer.weights_format.bits, layer.input_format.bits) for name, layer in self.layers.items()}
        return replace(recipe, unrounded=False, bits=bits if self.whole else recipe.bits)


class StartedIntegers(Integers):
    """The layers of a network, of which those start from a model that have a name and a shape of its layers.

    Args:
        plan:    The network.
        choices: How the other layers are quantised.
        begun:   The model.

    Attributes:
        started: Names of the layers that start from the model.
    """

    def __init__(self, plan: Plan, choices: Choices, begun: Begun):
        begun.check(choices.recipe)
        super().__init__(plan, replace(choices, recipe=begun.recipe(choices.recipe)))
        self.given, self.model, self.whole = begun.layers, begun.model, begun.whole
        self.started: list[str] = []

    def take(self, part: Part, x: np.ndarray, made: np.ndarray) -> str:
        lost, layer, rows = super().take(part, x, made), self.given.get(part.name), self.rows.get(part.name)
        shape = part.op.weight.shape if isinstance(part.op, WEIGHTED) else None
        if layer is None or rows is None or layer.weights.shape != (shape or layer.weights.shape) or (
                layer.weights.size != rows.weights.size):
            return lost
        self.rows[part.name] = self._of_model(rows, layer, part)
        self.started.append(part.name)
        return f"from {self.model.name}"

    def _of_model(self, rows: Rows, layer: IntegerRows, part: Part) -> Rows:
        """The rows of a layer of the model, in its own widths."""
        (step, offset), fmt = layer.real["input"], layer.input_format
        inputs = replace(
            rows.inputs, bits=fmt.bits, symmetric=fmt.symmetric, unsigned=layer.unsigned, step=float(step),
            offset=float(offset), positive=rows.inputs.positive and offset >= 0)
        op, own = part.op, "line" in layer.real and part.line is None and (self.whole or INPUT not in part.sources)
        if own:  # the parts of its inputs, which the weights of the network know nothing of
            op = op.of_scaled(layer.line.inverse.scale, layer.line.inverse.offset)
        return replace(
            rows, weights=layer.weights.reshape(rows.weights.shape).astype(np.int32),
            gain=layer.real["gain"].astype(np.float64), constant=layer.real["constant"].astype(np.float64),
            grid=Grid.of(layer.weights_format) if isinstance(part.op, WEIGHTED) else rows.grid, inputs=inputs,
            narrow=layer.line if own else None, line=layer.line if own else part.line, op=op, divided=own)

    def check_equal(self, layers: tuple):
        """Refuse a network whose layers are not those of the model, where it is the model's own.

        Raises:
            ValueError: a layer differs, whose steps training cannot hold.
        """
        for layer in layers if self.whole else ():
            own = self.given.get(layer.name)
            for name in ("weights", "scale", "offset", "start", "quant_scale", "quant_offset", "p") if own else ():
                if not np.array_equal(getattr(layer, name), getattr(own, name)):
                    raise ValueError(f"{self.model.name}: {name} of layer {layer.name!r} cannot be trained as it is, "
                                     "since the step of its codes is no float32 number; train from the file of the "
                                     "network")

    @property
    def words(self) -> str:
        """Which layers start from the model, in a sentence."""
        others = [name for name in self.rows if name not in self.started]
        return f"{len(self.started)} layers start from {self.model.name}" + (
            f" ({', '.join(self.started)}), {', '.join(others)} from the network" if others else "")
