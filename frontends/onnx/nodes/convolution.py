"""Conv: convolutions of one or two dimensions, with groups."""

import numpy as np
from concord.frontends.onnx.lib.builder import Builder, Image, single
from concord.frontends.onnx.lib.problems import Refused
from concord.frontends.onnx.lib.step import Step, Value
from concord.frontends.onnx.lib.views import Form, Source, View, counting
from concord.frontends.onnx.nodes import windows
from concord.frontends.onnx.nodes.dense import of_outputs, of_vectors
from concord.net.arithmetic.windows import Window
from concord.net.ops.weighted import Convolution


def conv(step: Step, build: Builder) -> list[Value]:
    """A convolution."""
    view, weight, bias = step.view(0), step.weights(1, "weight"), step.weights(2, "bias")
    dimensions, groups = weight.ndim - 2, step.attributes.get("group", 1)
    pixel = view.source.form is Form.VECTOR and view.numbers.ndim > 2 and view.numbers[0, 0].size == 1
    image = one_pixel(view) if pixel else build.image(view)
    channels, rows, columns = image.source.shape
    if groups < 1 or channels % groups or weight.shape[1] != channels // groups or len(weight) % groups:
        raise Refused(f"its weight {list(weight.shape)} in {groups} groups does not fit {channels} channels",
                      "export the network again")
    over = windows.window(step, image, weight.shape[2:], dimensions)
    places = windows.places(over, rows, columns)
    weight = weight.reshape(*weight.shape[:2], *over.size)
    bias = np.zeros(len(weight)) if bias is None else bias
    grid = build.grids.get(step.names[1])
    if pixel:
        if places != (1, 1):
            raise Refused(f"it makes an image of {places[0]} x {places[1]} pixels of a vector and zeros around it",
                          "use a window of one pixel without padding after a global average")
        made = of_vectors(step, build, view, _seen(weight, over, groups), bias, grid, axis=0)
        return [made.at(made.numbers.reshape(*made.shape, *[1] * dimensions))]
    op = Convolution(weight=single(weight), bias=single(bias), window=over, groups=groups,
                     grid=of_outputs(grid, weight, axis=0))
    made = build.add(step, op, [image.source], Form.IMAGE, (len(weight), *places))
    return [as_file(made, dimensions)]


def one_pixel(view: View) -> Image:
    """A vector as an image of one pixel, as a global average gives it: [samples, channels, 1, 1]."""
    samples, channels = view.shape[:2]
    return Image(source=counting(view.source.name, Form.IMAGE, samples, (channels, 1, 1)), padding=(0, 0, 0, 0))


def as_file(source: Source, dimensions: int) -> View:
    """A whole image as a file of that many dimensions has it."""
    return View(source=source, numbers=source.order[:, :, 0] if dimensions == 1 else source.order)


def _seen(weight: np.ndarray, over: Window, groups: int) -> np.ndarray:
    """float64[inputs, outputs] of a dense layer: the weights that meet the only pixel, zero for other groups."""
    places = [divmod(over.padding[2 * axis], over.dilation[axis]) for axis in (0, 1)]
    inside = all(rest == 0 and place < size for (place, rest), size in zip(places, weight.shape[2:], strict=True))
    met = weight[:, :, places[0][0], places[1][0]] if inside else np.zeros(weight.shape[:2])
    outputs, each = met.shape
    whole = np.zeros((groups, each, outputs))
    for group, rows in enumerate(np.split(np.arange(outputs), groups)):
        whole[group, :, rows] = met[rows]
    return whole.reshape(groups * each, outputs)
