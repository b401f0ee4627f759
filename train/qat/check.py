"""Whether a network can be quantised as a recipe says, before anything slow begins."""

from collections.abc import Sequence

import torch
from concord.net.quantize.block_recipe import BlockRecipe
from concord.net.quantize.grid import Grid
from concord.net.quantize.plan import Unsupported
from concord.net.quantize.recipe import Recipe, Start
from concord.train.qat import operations
from concord.train.qat.graph import Node, nodes, readers
from concord.train.qat.modules import QUANTISED, Kind
from torch import nn


def layers(found: Sequence[Node], recipe: Recipe | BlockRecipe) -> dict[str, Node]:
    """The nodes that get quantisers, by their names.

    Raises:
        Unsupported: the result of a relu6 is read by an operation without a quantiser.
        ValueError:  the recipe gives bits to a layer that is not there.
    """
    _check_ceilings(found, recipe)
    names = {node.name: node for node in found if node.kind in QUANTISED}
    if unknown := set(recipe.bits) - set(names):
        raise ValueError(f"there is no layer {min(unknown)!r} to give bits to; the network has {', '.join(names)}")
    return names


def _check_ceilings(found: Sequence[Node], recipe: Recipe | BlockRecipe):
    """Refuse a relu6 that no integer codes clip."""
    for node in (node for node in found if node.ceiling is not None):
        clip = [reader.kind in QUANTISED and isinstance(recipe, Recipe) and recipe.bits_of(reader.name)[1] is not None
                for reader in readers(found, node.name)]
        if not clip or not all(clip):
            raise Unsupported(f"{node.name!r}: a relu6 is the clip of integer codes, so that only convolutions, "
                              "dense layers and averages with integer inputs may read it, directly or behind maxima; "
                              "use a relu")


def check(network: nn.Module, recipe: Recipe | BlockRecipe, shape: Sequence[int], classes: int | None = None, *,
          machine: bool = True):
    """Refuse networks and recipes that would fail later.

    Args:
        network: Network in FP32, trained or not.
        recipe:  How it is to be quantised.
        shape:   Shape of one input.
        classes: Number of classes of its output, or None for any.
        machine: Whether integers must be operands of a machine.

    Raises:
        Unsupported: an operation of the network cannot be quantised.
        ValueError: the network does not take such inputs, it has another number of classes, a sum has terms of several
            shapes, the recipe names a layer that is not there, or a method cannot do a width.
    """
    found = nodes(network)
    quantized = layers(found, recipe)
    for name, node in quantized.items() if isinstance(recipe, Recipe) else ():  # a BlockRecipe knows its own widths
        _check_bits(name, node, recipe, machine)
    _check_shapes(network, shape, classes)
    with torch.no_grad():
        operations.results(found, torch.zeros(1, *shape))


def _check_bits(name: str, node: Node, recipe: Recipe, machine: bool):
    weights_bits, input_bits = recipe.bits_of(name)
    if weights_bits is not None and node.kind is Kind.LAYER:
        grid = Grid.trained(recipe.weights, weights_bits, recipe.symmetric[0])
        if machine and not 2 <= (width := grid.bits) <= 16:
            raise ValueError(f"layer {name!r}: weights of {weights_bits} bits by {recipe.weights} multiply as integers "
                             f"of {width}, but a machine's operands have 2 to 16: choose another width")
        if recipe.start is Start.PTQ:
            shared = node.module.weight[:recipe.methods.rows or None]
            recipe.methods.weights.load().check(shared.numel(), grid, f"layer {name!r}: ")
    if machine and input_bits is not None and not 2 <= input_bits <= 16:
        raise ValueError(f"layer {name!r}: inputs of {input_bits} bits, but a machine's operands have 2 to 16: choose "
                         "another width")


def _check_shapes(network: nn.Module, shape: Sequence[int], classes: int | None):
    """Refuse inputs that the network does not take; the network is left in its mode."""
    training = network.training
    try:
        with torch.no_grad():
            made = network.eval()(torch.zeros(1, *shape))
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        raise ValueError(f"the network does not take inputs of shape {list(shape)}: {error}") from error
    finally:
        network.train(training)
    if not isinstance(made, torch.Tensor) or made.dim() != 2 or classes not in (None, made.shape[-1]):
        got = list(made.shape[1:]) if isinstance(made, torch.Tensor) else type(made).__name__
        raise ValueError(f"the network answers an input with {got}, but one vector of {classes or 'all'} classes is "
                         "needed")
