"""Integers of a network of which some quantities are initialised already, and others follow.

Source: paragraph [0144] of the first document; S0.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from concord.net.graph import Graph
from concord.net.ops.recurrent import Recurrence
from concord.net.quantize import codes, tensors
from concord.net.quantize.choices import Choices
from concord.net.quantize.codes import InputCodes
from concord.net.quantize.integers import Integers
from concord.net.quantize.plan import WEIGHTED, Part, Plan
from concord.net.quantize.recipe import ActivationMethod, Recipe
from concord.net.quantize.stages import OF_INPUTS, Quantity


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class LayerSoFar:
    """What training has made of a layer up to a stage.

    Attributes:
        weight:   float32[outputs, columns], weights in real numbers, which its integers stand for where it has some.
        constant: float64[outputs], the bias.
        integers: int32[outputs, columns] and float64[outputs], the integers and their gain; None before they are
            initialised.
        inputs:   Codes of the inputs; None before saturations and offsets are initialised.
    """

    weight: np.ndarray
    constant: np.ndarray
    integers: tuple[np.ndarray, np.ndarray] | None
    inputs: InputCodes | None


class StagedIntegers(Integers):
    """The layers of a network after one more stage.

    A saturation without an offset belongs to the offset 0, and an offset without a saturation to a range that ends at
    the largest input. What enters a layer is computed in real numbers, with the weights that training has made.

    Args:
        plan:    The network, with the weights so far.
        choices: How it is quantised in the end.
        before:  Quantities that earlier stages have initialised.
        new:     Quantities of this stage.
        so_far:  What training has made of each layer, by name; empty before the first stage.

    Attributes:
        choices: How the network is quantised in the end.
    """

    def __init__(self, plan: Plan, choices: Choices, before: frozenset[Quantity], new: frozenset[Quantity],
                 so_far: Mapping[str, LayerSoFar]):
        self.choices, self.before, self.new, self.so_far = choices, before, new, so_far
        super().__init__(plan, replace(choices, recipe=partial(choices.recipe, before | new)), machine=False)

    def take(self, part: Part, x: np.ndarray, made: np.ndarray) -> str:
        lost = super().take(part, x, made)
        found = self.so_far.get(part.name)
        if isinstance(part.op, WEIGHTED) and Quantity.WEIGHTS in self.before:
            weights, gain = found.integers
            self.rows[part.name] = replace(self.rows[part.name], weights=weights, gain=gain, constant=found.constant)
        return lost

    def _codes(self, part: Part, samples: np.ndarray) -> tuple[InputCodes | None, dict[str, float]]:
        _, bits = self.recipe.bits_of(part.name)
        if bits is None:
            return None, {}
        earlier = self.so_far[part.name].inputs if part.name in self.so_far else None
        found = codes.unsigned(samples, bits, self.recipe, padded=part.padded)
        if not self.new & OF_INPUTS:
            found = earlier
        elif not self.new >= OF_INPUTS:
            found = self._one_more(found, earlier, samples)
        return found, found.lost(samples)

    def _one_more(self, found: InputCodes, earlier: InputCodes | None, samples: np.ndarray) -> InputCodes:
        """Codes of which this stage initialises the saturation alone, or the offset alone.

        Args:
            found:   Codes whose saturation and offset are both initialised by this stage.
            earlier: Codes with the other quantity, if an earlier stage has initialised it.
            samples: Real[samples, elements], the inputs.
        """
        method = self.recipe.methods.activations
        if Quantity.SATURATIONS in self.new:
            offset = earlier.offset if earlier else 0.0
            saturation, _ = tensors.activations(samples, found.levels, method, offset, padded=found.padded)
        else:
            offset = found.offset
            saturation = earlier.step * earlier.levels if earlier else tensors.activations(
                samples, found.levels, ActivationMethod.UNIFORM, offset, padded=found.padded)[0]
            saturation = max(saturation, -offset) if found.padded else saturation
        return replace(found, step=float(np.float32(saturation)) / found.levels, offset=float(np.float32(offset)))


def partial(recipe: Recipe, known: frozenset[Quantity]) -> Recipe:
    """The recipe with FP32 instead of what is not initialised."""
    def bits(weights: int | None, inputs: int | None) -> tuple[int | None, int | None]:
        return weights if Quantity.WEIGHTS in known else None, inputs if OF_INPUTS & known else None

    weights, inputs = bits(recipe.weights_bits, recipe.input_bits)
    return replace(recipe, weights_bits=weights, input_bits=inputs,
                   bits={name: bits(*pair) for name, pair in recipe.bits.items()})


def check_staged(graph: Graph):
    """Refuse networks that have no stages.

    Raises:
        ValueError: the network has recurrent layers.
    """
    if graph.has(Recurrence):
        raise ValueError("stages are for layers without gates, whose inputs have saturations and offsets: leave "
                         "--stages out for recurrent networks")


def with_weights(plan: Plan, so_far: Mapping[str, LayerSoFar]) -> Plan:
    """A plan with the weights that training has made."""
    ops = {}
    for part in plan.parts:
        if isinstance(part.op, WEIGHTED) and part.name in so_far:
            found = so_far[part.name]
            ops[part.node] = replace(part.op, weight=found.weight.reshape(part.op.weight.shape).astype(np.float32),
                                     bias=found.constant.astype(np.float32))
    nodes = tuple(replace(node, op=ops.get(node.name, node.op)) for node in plan.graph.nodes)
    return Plan(graph=replace(plan.graph, nodes=nodes),
                parts=tuple(replace(part, op=ops.get(part.node, part.op)) for part in plan.parts))
