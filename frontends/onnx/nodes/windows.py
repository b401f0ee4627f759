"""Windows of convolutions and pooling in the attributes of a file."""

import numpy as np
from concord.frontends.onnx.lib.builder import Image
from concord.frontends.onnx.lib.problems import Refused
from concord.frontends.onnx.lib.step import Step
from concord.net.arithmetic.windows import Window


def window(step: Step, image: Image, size: tuple[int, ...], dimensions: int) -> Window:
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


def places(window: Window, rows: int, columns: int, ceiling: bool = False) -> tuple[int, int]:
    """Number of places of a window, vertically and horizontally.

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
            count -= 1  # a window that begins behind the image is left out
        if free < 0 or count < 1:
            raise Refused(f"its window of {span} pixels is larger than the image of {along} pixels with its padding",
                          "give the network a larger image, by --shape")
        counts.append(int(count))
    return counts[0], counts[1]


def _borders(padding) -> np.ndarray:
    """[2, 2]: zeros before and behind, vertically and horizontally."""
    return np.asarray(padding).reshape(2, 2)


def _padding(step: Step, size, along, stride, dilation) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Zeros ahead of the image and behind it, along each axis of the file."""
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
