"""Resize and Upsample to the nearest pixel, ConvTranspose and DepthToSpace: operators that give more pixels."""

import numpy as np
from concord.frontends.onnx.lib.builder import Builder
from concord.frontends.onnx.lib.problems import Refused
from concord.frontends.onnx.lib.step import FileNode, Value
from concord.frontends.onnx.lib.views import SampleForm, ViewSource, as_file
from concord.net.ops.joins import Concatenation
from concord.net.ops.reshape import Enlarging
from concord.net.ops.transposed import phases, result_size

#: Coordinates with roundings by which whole factors repeat each pixel.
_REPEATING = {"asymmetric": ("floor",), "half_pixel": ("round_prefer_floor", "round_prefer_ceil")}


def resize(step: FileNode, build: Builder) -> list[Value]:
    """Nearest upsampling by whole factors."""
    view, later = step.view(0), step.kind == "Resize" and step.opset > 10
    mode = step.attributes.get("mode", "nearest")
    if mode != "nearest":
        raise Refused(f"it interpolates between pixels (mode {mode})", 'use the mode "nearest" and train on')
    coordinates = step.attributes.get("coordinate_transformation_mode", "half_pixel" if later else "asymmetric")
    rounded = step.attributes.get("nearest_mode", "round_prefer_floor" if later else "floor")
    if rounded not in _REPEATING.get(coordinates, ()):
        raise Refused(f"it takes other pixels than the nearest ones (coordinates {coordinates}, rounded by {rounded})",
                      "use the coordinates asymmetric with floor, as PyTorch writes them")
    image = _whole(step, build)
    factor = _factors(step, view.shape, 2 if later else 1)
    made = build.add(step, Enlarging(factor=factor), [image], SampleForm.IMAGE, _enlarged(image.shape, factor))
    return [as_file(made, view.numbers.ndim - 2)]


def _factors(step: FileNode, shape: tuple[int, ...], index: int) -> tuple[int, int]:
    """The factors of rows and columns, of the attribute or input `scales`, or the input `sizes` after it."""
    scales = step.attributes.get("scales")
    scales = step.constant(index, "scales") if scales is None else scales
    axes = np.atleast_1d(step.attributes.get("axes", range(len(shape))))
    if scales is None or not np.size(scales):
        sizes = step.constant(index + 1, "sizes")
        if sizes is None or len(sizes) != len(axes):
            raise Refused("it has neither scales nor sizes", "export the network again")
        policy = step.attributes.get("keep_aspect_ratio_policy", "stretch")
        if policy != "stretch":  # the result has other sizes than these
            raise Refused(f"it keeps the ratio of rows and columns (keep_aspect_ratio_policy {policy})",
                          "use the policy stretch, or scales instead of sizes")
        scales = np.where(axes == 0, 1, np.asarray(sizes) / np.asarray(shape)[axes])  # all samples stay
    found = np.ones(len(shape))
    if np.size(scales) != len(axes):
        raise Refused(f"it has {np.size(scales)} scales for {len(axes)} axes", "export the network again")
    found[axes] = np.asarray(scales, np.float64).reshape(-1)
    if (found[:2] != 1).any() or (found < 1).any() or (found != np.round(found)).any():
        raise Refused(f"its factors are {found.tolist()}", "enlarge rows and columns only, by whole factors")
    return (1, *map(int, found[2:]))[-2:]


def conv_transpose(step: FileNode, build: Builder) -> list[Value]:
    """A transposed convolution: a convolution for each phase of the result."""
    weight, bias = step.weights(1, "weight"), step.weights(2, "bias")
    dimensions, groups = weight.ndim - 2, step.attributes.get("group", 1)
    image = _whole(step, build)
    channels, *size = image.shape
    if dimensions not in (1, 2) or channels != len(weight) or groups < 1 or channels % groups:
        raise Refused(f"its weight {list(weight.shape)} in {groups} groups does not fit {channels} channels",
                      "export the network again")
    if build.grids.get(step.names[1]) is not None:
        raise Refused("its weights are quantised already", "leave transposed convolutions in float32")
    if step.attributes.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID") or "output_shape" in step.attributes:
        raise Refused("the size of its result sets its padding", "use the attributes pads and output_padding")
    if any(one != 1 for one in step.attributes.get("dilations", ())):
        raise Refused("its kernel has a dilation", "use a dilation of 1")
    lines = 2 - dimensions  # an image of one dimension has one row
    pads = step.attributes.get("pads", [0] * 2 * dimensions)
    stride = (*[1] * lines, *step.attributes.get("strides", [1] * dimensions))
    more = (*[0] * lines, *step.attributes.get("output_padding", [0] * dimensions))
    padding = (*[0] * 2 * lines, *np.reshape(pads, (2, dimensions)).T.ravel().tolist())
    weight = weight.reshape(*weight.shape[:2], *[1] * lines, *weight.shape[2:])
    try:
        made = result_size(size, weight.shape[2:], stride, padding, more)
    except ValueError as error:
        reason, _, todo = str(error).partition(": ")
        raise Refused(reason, todo) from error
    outputs = weight.shape[1] * groups
    found = [build.add(step, one, [image], SampleForm.IMAGE, (outputs, *one.window.counts(*size))) for one in phases(
        weight, np.zeros(outputs) if bias is None else bias, groups=groups, size=size, stride=stride, padding=padding,
        made=made)]
    return [as_file(_shuffled(step, build, found, stride), dimensions)]


def depth_to_space(step: FileNode, build: Builder) -> list[Value]:
    """Groups of channels as the pixels of blocks (PixelShuffle in PyTorch)."""
    view, block = step.view(0), step.attributes["blocksize"]
    channels = view.shape[1] if len(view.shape) > 1 else 0
    if len(view.shape) != 4 or block < 1 or channels % block**2:
        raise Refused(f"its input {list(view.shape)} has no {block} x {block} channels for each of its outputs",
                      "export the network again")
    beside = step.attributes.get("mode", "DCR") == "CRD"  # whether channels of one output lie beside each other
    split = (channels // block**2, block**2) if beside else (block**2, channels // block**2)
    numbers = view.numbers.reshape(len(view.numbers), *split, *view.shape[2:])
    images = [build.image(view.at(part)) for part in np.moveaxis(numbers, 2 if beside else 1, 0)]
    if any(any(image.padding) for image in images):
        raise Refused("it moves zeros that a Pad has put around its input", "put the Pad behind it")
    return [as_file(_shuffled(step, build, [image.source for image in images], (block, block)), 2)]


def _shuffled(step: FileNode, build: Builder, parts: list[ViewSource], factor: tuple[int, int]) -> ViewSource:
    """The image whose pixels are those of several images of one size, in turns."""
    channels, rows, columns = parts[0].shape
    if len(parts) == 1:
        return parts[0]
    joined = build.add(step, Concatenation(), parts, SampleForm.IMAGE, (channels * len(parts), rows, columns))
    return build.add(step, Enlarging(factor=factor, shuffled=True), [joined], SampleForm.IMAGE,
                     _enlarged(parts[0].shape, factor))


def _whole(step: FileNode, build: Builder) -> ViewSource:
    """The image that a node reads, without zeros around it."""
    image = build.image(step.view(0))
    if any(image.padding):
        raise Refused("it reads zeros that a Pad has put around its input", "put the Pad behind it")
    return image.source


def _enlarged(shape: tuple[int, ...], factor: tuple[int, int]) -> tuple[int, int, int]:
    return shape[0], shape[1] * factor[0], shape[2] * factor[1]
