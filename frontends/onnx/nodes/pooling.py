"""MaxPool, AveragePool, and means over all pixels."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from concord.frontends.onnx.lib.builder import Builder, ReadImage
from concord.frontends.onnx.lib.problems import Refused
from concord.frontends.onnx.lib.step import FileNode, UnknownValue, Value, misplaced
from concord.frontends.onnx.lib.views import SampleForm, View, ViewSource, as_file
from concord.frontends.onnx.nodes.convolution import positions_of, window_of
from concord.net.arithmetic.windows import Window
from concord.net.ops.operator import Operator
from concord.net.ops.pointwise import Pointwise
from concord.net.ops.pooling import AveragePooling, GlobalAverage, MaxPooling


def max_pool(step: FileNode, build: Builder) -> list[Value]:
    """The largest value of each window."""
    image = _image_of_maxima(step, build)
    return [_pool(step, build, _window(step, image), lambda whole: MaxPooling(window=whole)),
            UnknownValue(reason="it reads where MaxPool found the largest values, which the machine does not keep")]


def _image_of_maxima(step: FileNode, build: Builder) -> ReadImage:
    """The image, around which zeros stand only where none of its numbers is below zero."""
    image = build.image(step.view(0))
    if any(image.padding) and not _positive(build, image.source):
        raise Refused("zeros around its input, put there by a Pad, would be larger than negative values",
                      "put a Relu before the Pad, or use the attribute pads")
    return image


def average_pool(step: FileNode, build: Builder) -> list[Value]:
    """The mean of each window."""
    image = build.image(step.view(0))
    over, around = _window(step, image), any(image.padding)
    all_count = bool(step.attributes.get("count_include_pad", 0))
    if around and over.padding != image.padding and not all_count:
        raise Refused("some zeros around its image count in its means and others do not", "use one kind of padding")
    counted = any(over.padding) and (all_count or around)
    return [_pool(step, build, over, lambda whole: AveragePooling(window=whole, count_padding=counted),
                  counted=counted)]


def _window(step: FileNode, image: ReadImage) -> Window:
    """The window of the attributes."""
    size = tuple(step.attributes["kernel_shape"])
    return window_of(step, image, size, len(size))


def _pool(step: FileNode, build: Builder, over: Window, make: Callable[[Window], Operator], *, counted: bool = False
          ) -> View:
    image = build.image(step.view(0))
    channels, rows, columns = image.source.shape
    over = _reaching(step, over, rows, columns, counted)
    counts = positions_of(over, rows, columns)
    # Such a window has no maximum, and no mean of the pixels that count.
    if not counted and not all(_meets(over, axis, along, count) for axis, (along, count) in enumerate(
            zip((rows, columns), counts, strict=True))):
        raise Refused("a window of it lies in the padding only, and holds no pixel of the image",
                      "put less padding around the image than a window is large")
    made = build.add(step, make(over), [image.source], SampleForm.IMAGE, (channels, *counts))
    return as_file(made, len(step.attributes["kernel_shape"]))


def _meets(over: Window, axis: int, along: int, count: int) -> bool:
    """Whether the window meets the image at each of its positions along an axis."""
    starts = np.arange(count)[:, None] * over.stride[axis] - over.padding[2 * axis]
    pixels = starts + np.arange(over.size[axis]) * over.dilation[axis]
    return bool(((pixels >= 0) & (pixels < along)).any(axis=1).all())


def _reaching(step: FileNode, over: Window, rows: int, columns: int, counted: bool) -> Window:
    """The window with as much more padding at the end as its last positions need if the attribute ceil_mode is set."""
    if not step.attributes.get("ceil_mode", 0):
        return over
    padding = list(over.padding)
    for axis, (count, along) in enumerate(zip(positions_of(over, rows, columns, ceiling=True), (rows, columns),
                                              strict=True)):
        span = over.span[axis]
        more = (count - 1) * over.stride[axis] + span - along - padding[2 * axis] - padding[2 * axis + 1]
        if more > 0 and counted:
            raise Refused("its last window reaches over the end of the image (ceil_mode), where no zeros count, but it "
                          "counts those of the padding", "export it without ceil_mode")
        padding[2 * axis + 1] += max(0, more)
    return replace(over, padding=tuple(padding))


def global_average(step: FileNode, build: Builder) -> list[Value]:
    """The mean of all pixels of each channel."""
    view = step.view(0)
    if view.source.form is SampleForm.VECTOR and view.numbers[0, 0].size == 1:
        return [view]  # the mean of one pixel
    image = build.image(view)
    if any(image.padding):
        raise Refused("zeros of a Pad would count in its means", "use AveragePool")
    made = build.add(step, GlobalAverage(), [image.source], SampleForm.VECTOR, image.source.shape[:1])
    return [View(source=made, numbers=made.order.reshape(*view.shape[:2], *[1] * (len(view.shape) - 2)))]


def global_max(step: FileNode, build: Builder) -> list[Value]:
    """The largest of all pixels of each channel."""
    view = step.view(0)
    if view.source.form is SampleForm.VECTOR and view.numbers[0, 0].size == 1:
        return [view]  # the largest of one pixel
    channels, *size = _image_of_maxima(step, build).source.shape
    made = build.add(step, MaxPooling(window=Window(size=tuple(size))), [build.image(view).source], SampleForm.IMAGE,
                     (channels, 1, 1))
    return [View(source=made, numbers=made.order.reshape(*view.shape[:2], *[1] * (len(view.shape) - 2)))]


def reduce_mean(step: FileNode, build: Builder) -> list[Value]:
    """A mean over all pixels, whichever axes they are."""
    view, axes = step.view(0), step.integers("axes", 1)
    if not axes and step.attributes.get("noop_with_empty_axes", 0):
        return [view]
    if view.source.form is SampleForm.OPEN:
        over_time = view.numbers.ndim == 3 and axes is not None and list(axes) in ([1], [-2])
        build.image(view.at(view.numbers.swapaxes(1, 2)) if over_time else view)
    if view.source.form is SampleForm.SEQUENCE:
        view = build.image_of_steps(view)
    if view.source.form is SampleForm.VECTOR and axes and all(view.shape[axis] == 1 for axis in axes):
        kept = tuple(size for axis, size in enumerate(view.shape) if axis - view.numbers.ndim not in axes and
                     axis not in axes)
        return [view.at(view.numbers.reshape(view.shape if step.attributes.get("keepdims", 1) else kept))]
    if view.source.form is not SampleForm.IMAGE:
        raise Refused(f"it computes means over something else than pixels of an image (axes {list(axes or ())})",
                      "compute means over all pixels, or use the last time step of a sequence")
    over = sorted(axis % view.numbers.ndim for axis in axes) if axes else list(range(view.numbers.ndim))
    kept = [axis for axis in range(view.numbers.ndim) if axis not in over]
    numbers = view.indices.transpose(*kept, *over)
    shape = numbers.shape[:len(kept)]
    each = np.sort(numbers.reshape(int(np.prod(shape)), -1), axis=1)
    source = view.source
    pixels = source.shape[1] * source.shape[2]
    channel = each[:, 0] // pixels
    if each.shape[1] != pixels or (each != channel[:, None] * pixels + np.arange(pixels)).any():
        raise misplaced(f"its mean (axes {list(axes or ())}) is not one over all pixels of each channel",
                        "compute means over all rows and columns")
    made = build.add(step, GlobalAverage(), [source], SampleForm.VECTOR, source.shape[:1])
    whole = tuple(1 if axis in over else size for axis, size in enumerate(view.shape))
    keep = step.attributes.get("keepdims", 1)
    return [View(source=made, numbers=channel.astype(np.int32).reshape(whole if keep else shape))]


def _positive(build: Builder, source: ViewSource) -> bool:
    """Whether no element of a result is below zero; maxima count as what they are maxima of."""
    node = build.maker(source)
    while node is not None and isinstance(node.op, MaxPooling):
        node = next((one for one in build.nodes if one.name == node.sources[0]), None)
    return node is not None and isinstance(node.op, Pointwise) and node.op.positive
