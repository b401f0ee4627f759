"""Conv: convolutions of one or two dimensions, with groups."""

import numpy as np
from concord.front.lib.builder import Builder
from concord.front.lib.problems import Refused
from concord.front.lib.step import Step, Value
from concord.front.lib.views import Form, View
from concord.front.nodes import windows
from concord.front.nodes.dense import of_outputs
from concord.model.floating.network import Op


def conv(step: Step, build: Builder) -> list[Value]:
    """A convolution."""
    view, weight, bias = step.view(0), step.weights(1, "weight"), step.weights(2, "bias")
    dimensions = weight.ndim - 2
    image = build.image(view)
    groups = step.attributes.get("group", 1)
    channels, rows, columns = image.source.shape
    if groups < 1 or channels % groups or weight.shape[1] != channels // groups or len(weight) % groups:
        raise Refused(f"its weight {list(weight.shape)} in {groups} groups does not fit {channels} channels",
                      "export the network again")
    over = windows.window(step, image, weight.shape[2:], dimensions)
    down, across = windows.places(over, rows, columns)
    weight = weight.reshape(*weight.shape[:2], *over.pop("size"))
    grid = build.grids.get(step.names[1])
    kept, numbers = of_outputs(grid, axis=0) if grid else ({}, {})
    made = build.add(
        step, Op.CONV, [image.source], Form.IMAGE, (len(weight), down, across),
        attributes={**over, "groups": groups, **kept},
        tensors={"weight": weight, "bias": np.zeros(len(weight)) if bias is None else bias, **numbers})
    return [as_file(made, dimensions)]


def as_file(source, dimensions: int) -> View:
    """A whole image as a file of that many dimensions has it."""
    return View(source=source, numbers=source.order[:, :, 0] if dimensions == 1 else source.order)
