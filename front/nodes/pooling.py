"""MaxPool, AveragePool, and means over all pixels."""

import numpy as np
from concord.front.lib.builder import Builder
from concord.front.lib.problems import Refused
from concord.front.lib.step import Step, Unknown, Value, misplaced
from concord.front.lib.views import Form, Source, View
from concord.front.nodes import windows
from concord.front.nodes.convolution import as_file
from concord.model.floating.network import Op

#: Operations whose results are never below zero.
NOT_NEGATIVE = frozenset({Op.RELU, Op.SIGMOID, Op.HARD_SIGMOID})


def max_pool(step: Step, build: Builder) -> list[Value]:
    """The largest value of each window."""
    image = build.image(step.view(0))
    if any(image.padding) and _maker(build, image.source) not in NOT_NEGATIVE:
        raise Refused("zeros around its input, put there by a Pad, would be larger than negative values",
                      "put a Relu before the Pad, or use the attribute pads")
    return [_pool(step, build, Op.MAX_POOL, {}),
            Unknown(reason="it reads where MaxPool found the largest values, which the machine does not keep")]


def average_pool(step: Step, build: Builder) -> list[Value]:
    """The mean of each window."""
    around, inside = build.image(step.view(0)).padding, step.attributes.get("pads", [0])
    counted = bool(step.attributes.get("count_include_pad", 0))
    if any(around) and any(inside) and not counted:
        raise Refused("some zeros around its image count in its means and others do not", "use one kind of padding")
    return [_pool(step, build, Op.AVERAGE_POOL, {"count_padding": counted or any(around)})]


def _pool(step: Step, build: Builder, op: Op, attributes: dict) -> View:
    image = build.image(step.view(0))
    size = tuple(step.attributes["kernel_shape"])
    over = windows.window(step, image, size, len(size))
    channels, rows, columns = image.source.shape
    over = _reaching(step, over, rows, columns, attributes.get("count_padding", False))
    counts = windows.places(over, rows, columns)
    made = build.add(step, op, [image.source], Form.IMAGE, (channels, *counts), attributes=over | attributes)
    return as_file(made, len(size))


def _reaching(step: Step, over: dict, rows: int, columns: int, counted: bool) -> dict:
    """The window with as much more padding at the end as its last places need where the attribute ceil_mode is set."""
    if not step.attributes.get("ceil_mode", 0):
        return over
    padding = list(over["padding"])
    for axis, (count, along) in enumerate(zip(windows.places(over, rows, columns, ceiling=True), (rows, columns),
                                              strict=True)):
        span = (over["size"][axis] - 1) * over["dilation"][axis] + 1
        more = (count - 1) * over["stride"][axis] + span - along - padding[2 * axis] - padding[2 * axis + 1]
        if more > 0 and counted:
            raise Refused("its last window reaches over the end of the image (ceil_mode), where no zeros count, but it "
                          "counts those of the padding", "export it without ceil_mode")
        padding[2 * axis + 1] += max(0, more)
    return over | {"padding": tuple(padding)}


def global_average(step: Step, build: Builder) -> list[Value]:
    """The mean of all pixels of each channel."""
    view = step.view(0)
    image = build.image(view)
    if any(image.padding):
        raise Refused("zeros of a Pad would count in its means", "use AveragePool")
    made = build.add(step, Op.GLOBAL_AVERAGE, [image.source], Form.VECTOR, image.source.shape[:1])
    return [View(source=made, numbers=made.order.reshape(*view.shape[:2], *[1] * (len(view.shape) - 2)))]


def reduce_mean(step: Step, build: Builder) -> list[Value]:
    """A mean over all pixels, whichever axes they are."""
    view, axes = step.view(0), step.integers("axes", 1)
    if view.source.form is Form.OPEN:
        build.image(view)
    if view.source.form is not Form.IMAGE:
        raise Refused(f"it computes means over something else than pixels of an image (axes {list(axes or ())})",
                      "compute means over all pixels, or use the last time step of a sequence")
    over = sorted(axis % view.numbers.ndim for axis in axes) if axes else list(range(view.numbers.ndim))
    kept = [axis for axis in range(view.numbers.ndim) if axis not in over]
    numbers = view.places.transpose(*kept, *over)
    shape = numbers.shape[:len(kept)]
    each = np.sort(numbers.reshape(int(np.prod(shape)), -1), axis=1)
    source = view.source
    pixels = source.shape[1] * source.shape[2]
    channel = each[:, 0] // pixels
    if each.shape[1] != pixels or (each != channel[:, None] * pixels + np.arange(pixels)).any():
        raise misplaced(f"its mean (axes {list(axes or ())}) is not one over all pixels of each channel",
                        "compute means over all rows and columns")
    made = build.add(step, Op.GLOBAL_AVERAGE, [source], Form.VECTOR, source.shape[:1])
    whole = tuple(1 if axis in over else size for axis, size in enumerate(view.shape))
    keep = step.attributes.get("keepdims", 1)
    return [View(source=made, numbers=channel.astype(np.int32).reshape(whole if keep else shape))]


def _maker(build: Builder, source: Source) -> Op | None:
    """The operation that gives a result; maxima count as what they are maxima of."""
    node = build.maker(source)
    while node is not None and node.op is Op.MAX_POOL:
        node = next((one for one in build.nodes if one.name == node.sources[0]), None)
    return node.op if node else None
