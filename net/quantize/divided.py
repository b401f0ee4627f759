"""Inputs of a layer in parts, neighbouring channels with a saturation and an offset of their own.

The codes of a layer have one step s and one offset m. A part whose range is found to have the step t and the offset n
enters them as u = (s / t) (x - n) + m: R and O of its channels hold that line, and the weights that read them and the
bias its inverse. So the product needs no scale for each part.

Source: paragraph [0113] of the first document.
"""

from dataclasses import replace

import numpy as np
from concord.net.arithmetic.line import Line
from concord.net.graph import Graph, flattens
from concord.net.ops.weighted import NodeLinear
from concord.net.quantize import codes
from concord.net.quantize.codes import InputCodes
from concord.net.quantize.plan import WEIGHTED, Part, Plan, selects
from concord.net.quantize.recipe import Recipe

#: Largest factor between the ranges of two parts.
MOST = 2.0**8


def divides(part: Part, plan: Plan) -> bool:
    """Whether the inputs of a layer may have parts.

    Its weights must be free to take the inverse, and no relu6 may end at the largest code of all channels.
    """
    if not isinstance(part.op, WEIGHTED) or isinstance(part.op, NodeLinear) or part.op.grid is not None:
        return False
    return not any(one.ceiling is not None and part in plan.readers(one.name, selects) for one in plan.parts)


def channels_of(part: Part, graph: Graph) -> int:
    """Number of channels of what a layer reads: those of an image, too, that is flattened before."""
    name = part.tensors[0]
    while (node := graph.node(name)) is not None and flattens(node):
        (name,) = node.sources
    return graph.shapes[name][0]


def divided(x: np.ndarray, channels: int, bits: int, recipe: Recipe, *, padded: bool) -> tuple[Line, InputCodes]:
    """What becomes of each channel ahead of the codes, and the codes of all.

    Args:
        x:        Real[samples, elements, ...], the inputs of the layer for a calibration set.
        channels: Number of channels, each of as many neighbouring elements; parts are neighbouring channels.
        bits:     Bits of a code.
        recipe:   Number of parts, and how saturations and offsets are found. Of fewer channels, each is a part.
        padded:   Whether zeros are put around the inputs. Zero then has the same code in all parts, so that offsets
            differ by as much as saturations alone.
    """
    elements = np.arange(x.shape[1]).reshape(channels, -1)
    parts = [one.ravel() for one in np.array_split(elements, min(recipe.methods.parts, channels))]
    found = [codes.unsigned(x[:, part].reshape(len(x), -1), bits, recipe, padded=padded) for part in parts]
    widest = replace(max(found, key=lambda one: one.step), positive=False)
    scale, offset = np.ones(x.shape[1]), np.zeros(x.shape[1])
    for part, own in zip(parts, found, strict=True):
        scale[part] = min(widest.step / own.step, MOST) if own.step > 0 else 1.0
        offset[part] = 0.0 if padded else widest.offset - scale[part[0]] * own.offset
    line = Line(scale=scale, offset=offset)
    if padded:
        widest = codes.unsigned(line.applied(x).reshape(len(x), -1), bits, recipe, padded=True)
    return line, widest
