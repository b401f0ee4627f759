"""Conv: convolutions of one or two dimensions, with groups; windows, of pooling too, in the attributes of a file."""

import numpy as np
from concord.frontends.onnx.lib.builder import Builder, ReadImage, single
from concord.frontends.onnx.lib.problems import Refused
from concord.frontends.onnx.lib.step import FileNode, Value
from concord.frontends.onnx.lib.views import SampleForm, View, as_file, counting
from concord.frontends.onnx.nodes.dense import of_outputs, of_vectors
from concord.net.arithmetic.windows import Window
from concord.net.ops.weighted import Convolution


def conv(step: FileNode, build: Builder) -> list[Value]:
    """A convolution."""
    view, weight, bias = step.view(0), step.weights(1, "weight"), step.weights(2, "bias")
    dimensions, groups = weight.ndim - 2, step.attributes.get("group", 1)
    pixel = view.source.form is SampleForm.VECTOR and view.numbers.ndim > 2 and view.numbers[0, 0].size == 1
    image = one_pixel(view) if pixel else build.image(view)
    channels, rows, columns = image.source.shape
    if groups < 1 or channels % groups or weight.shape[1] != channels // groups or len(weight) % groups:
        raise Refused(f"its weight {list(weight.shape)} in {groups} groups does not fit {channels} channels",
                      "export the network again")
    over = window_of(step, image, weight.shape[2:], dimensions)
    positions = positions_of(over, rows, columns)
    weight = weight.reshape(*weight.shape[:2], *over.size)
    bias = np.zeros(len(weight)) if bias is None else bias
    grid = build.grids.get(step.names[1])
    if pixel:
        if positions != (1, 1):
            raise Refused("it makes an image of {} x {} pixels of a vector and zeros around it".format(*positions),
                          "use a window of one pixel without padding after a global average")
        made = of_vectors(step, build, view, _seen(weight, over, groups), bias, grid, axis=0)
        return [made.at(made.numbers.reshape(*made.shape, *[1] * dimensions))]
    op = Convolution(weight=single(weight), bias=single(bias), window=over, groups=groups,
                     grid=of_outputs(grid, weight, axis=0))
    made = build.add(step, op, [image.source], SampleForm.IMAGE, (len(weight), *positions))
    return [as_file(made, dimensions)]


def one_pixel(view: View) -> ReadImage:
    """A vector as an image of one pixel, as a global average gives it: [samples, channels, 1, 1]."""
    samples, channels = view.shape[:2]
    return ReadImage(source=counting(view.source.name, SampleForm.IMAGE, samples, (channels, 1, 1)),
                     padding=(0, 0, 0, 0))


def _seen(weight: np.ndarray, over: Window, groups: int) -> np.ndarray:
    """float64[inputs, outputs] of a dense layer: the weights that meet the only pixel, zero for other groups."""
    taps = [divmod(over.padding[2 * axis], over.dilation[axis]) for axis in (0, 1)]
    inside = all(rest == 0 and tap < size for (tap, rest), size in zip(taps, weight.shape[2:], strict=True))
    met = weight[:, :, taps[0][0], taps[1][0]] if inside else np.zeros(weight.shape[:2])
    outputs, each = met.shape
    whole = np.zeros((groups, each, outputs))
    for group, rows in enumerate(np.split(np.arange(outputs), groups)):
        whole[group, :, rows] = met[rows]
    return whole.reshape(groups * each, outputs)


def window_of(step: FileNode, image: ReadImage, size: tuple[int, ...], dimensions: int) -> Window:
    """The window, two-dimensional, of a node that reads an image.

    Args:
        step:       Node of the file.
        image:      The image that it reads.
        size:       Rows and columns of the window; columns if the file has one dimension.
        dimensions: Number of dimensions in the file.

    Raises:
        Refused: the window is larger than the image, or of more dimensions.
    """
    if dimensions not in (1, 2) or len(size) != dimensions:
        raise Refused(f"it has a window of {len(size)} dimensions", "the machine computes those of one or two")
    pair = {key: tuple(step.attributes.get(name, [1] * dimensions))
            for key, name in (("stride", "strides"), ("dilation", "dilations"))}
    rows = np.asarray(image.source.shape[1:])[-dimensions:] + _borders(image.padding)[-dimensions:].sum(axis=1)
    ahead, behind = _padding(step, size, rows, **pair)
    if dimensions == 1:
        size, ahead, behind = (1, *size), (0, *ahead), (0, *behind)
        pair = {key: (1, *value) for key, value in pair.items()}
    padding = np.add((ahead[0], behind[0], ahead[1], behind[1]), image.padding)
    return Window(size=tuple(size), **pair, padding=tuple(int(count) for count in padding))


def positions_of(window: Window, rows: int, columns: int, ceiling: bool = False) -> tuple[int, int]:
    """Number of positions of a window, vertically and horizontally.

    Args:
        window:  The window.
        rows:    Rows of the image without padding.
        columns: Columns of the image without padding.
        ceiling: Whether a last window may reach over the end of the image.
    """
    counts = []
    borders = _borders(window.padding)
    for axis, along in enumerate((rows, columns)):
        span = window.span[axis]
        stride = window.stride[axis]
        free = along + borders[axis].sum() - span
        count = -(-free // stride) + 1 if ceiling else free // stride + 1
        if ceiling and (count - 1) * stride >= along + borders[axis][0]:
            count -= 1  # a window that begins after the image is left out
        if free < 0 or count < 1:
            raise Refused(f"its window of {span} pixels is larger than the image of {along} pixels with its padding",
                          "give the network a larger image, by --shape")
        counts.append(int(count))
    return counts[0], counts[1]


def _borders(padding) -> np.ndarray:
    """[2, 2]: zeros before and after, vertically and horizontally."""
    return np.asarray(padding).reshape(2, 2)


def _padding(step: FileNode, size, along, stride, dilation) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Zeros ahead of the image and after it, along each axis of the file."""
    dimensions, auto = len(size), step.attributes.get("auto_pad", "NOTSET")
    if auto == "VALID":
        return (0,) * dimensions, (0,) * dimensions
    if auto == "NOTSET":
        pads = tuple(step.attributes.get("pads", [0] * 2 * dimensions))
        if min(pads) < 0:
            raise Refused(f"its padding {list(pads)} is negative", "cut the image by a Slice before the network")
        return pads[:dimensions], pads[dimensions:]
    ahead, behind = [], []
    for count, pixels, move, apart in zip(size, along, stride, dilation, strict=True):
        missing = max(0, (-(-int(pixels) // move) - 1) * move + (count - 1) * apart + 1 - int(pixels))
        less, more = missing // 2, missing - missing // 2
        ahead.append(less if auto == "SAME_UPPER" else more)
        behind.append(more if auto == "SAME_UPPER" else less)
    return tuple(ahead), tuple(behind)
