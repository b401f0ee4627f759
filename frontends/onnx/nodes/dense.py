"""Gemm and MatMul: dense layers, at each time step or pixel where the file has them there; models of scikit-learn."""

from dataclasses import replace

import numpy as np
from concord.frontends.onnx.lib.builder import Builder, single
from concord.frontends.onnx.lib.problems import Refused
from concord.frontends.onnx.lib.selection import same_order
from concord.frontends.onnx.lib.step import FileNode, HostValue, Value, misplaced
from concord.frontends.onnx.lib.views import ZERO, SampleForm, View, check_size
from concord.frontends.onnx.nodes import attention
from concord.frontends.onnx.nodes.arithmetic import affine
from concord.frontends.onnx.nodes.layout import UNLESS
from concord.net.arithmetic.windows import Window
from concord.net.ops.grid import IntegerGrid
from concord.net.ops.pointwise import Sigmoid
from concord.net.ops.weighted import Convolution, Linear, NodeLinear


def gemm(step: FileNode, build: Builder) -> list[Value]:
    """alpha * x @ weight + beta * bias."""
    view = step.view(0)
    if step.attributes.get("transA", 0):
        raise Refused("it transposes its input", "export the network with the input as [samples, elements]")
    weight, bias = step.weights(1, "weight"), step.weights(2, "bias")
    grid, alpha = build.grids.get(step.names[1]), step.attributes.get("alpha", 1.0)
    if grid is not None and alpha != 1:
        raise Refused(f"it multiplies quantised weights by {alpha:g} (alpha)", "leave alpha out")
    if step.attributes.get("transB", 0):
        weight = weight.T
        grid = grid and replace(grid, scale=grid.scale.T, zero_point=grid.zero_point.T)
    weight = weight * alpha
    bias = np.zeros(1) if bias is None else bias * step.attributes.get("beta", 1.0)
    if bias.size not in (1, weight.shape[1]) or bias.shape[:-1] not in ((), (1,)):
        raise Refused(f"its bias {list(bias.shape)} is not one number for each of its {weight.shape[1]} outputs",
                      "export it as a MatMul and an Add")
    return [linear(step, build, view, weight, np.broadcast_to(bias.reshape(-1), weight.shape[1]), grid)]


def matmul(step: FileNode, build: Builder) -> list[Value]:
    """x @ weight, or matrix @ x for the matrix of a graph and the features of its nodes; or queries @ keys."""
    if isinstance(step.get(0), View) and isinstance(step.get(1), View):
        return attention.scores(step, build)
    if isinstance(step.get(0), np.ndarray):
        matrix, view = step.weights(0, "matrix"), step.view(1)
        if matrix.ndim != 2 or len(view.shape) != 3 or view.shape[1] != matrix.shape[1]:
            raise Refused(f"it multiplies a constant {list(matrix.shape)} by the input {list(view.shape)}",
                          "the matrix of a graph is [nodes, nodes], and what it multiplies [samples, nodes, features]")
        made = at_each_row(step, build, view.at(view.numbers.swapaxes(1, 2)), matrix.T, np.zeros(len(matrix)),
                           constant=True)
        return [made.at(made.numbers.swapaxes(1, 2))]
    weight = step.weights(1, "weight")
    if weight.ndim != 2:
        raise Refused(f"its weight has the shape {list(weight.shape)}, not [inputs, outputs]",
                      "use one matrix for all samples")
    return [linear(step, build, step.view(0), weight, np.zeros(weight.shape[1]), build.grids.get(step.names[1]))]


def linear(step: FileNode, build: Builder, view: View, weight: np.ndarray, bias: np.ndarray,
           grid: IntegerGrid | None = None
           ) -> View:
    """A dense layer along the last axis.

    Args:
        step:   Node of the file.
        build:  Where the layer goes.
        view:   Input [..., inputs].
        weight: float64[inputs, outputs].
        bias:   float64[outputs].
        grid:   Integers of the weights, with a scale for each, if they are quantised.
    """
    if not view.shape or view.shape[-1] != len(weight):
        raise misplaced(f"its input has the shape {list(view.shape)}, but its weight takes {len(weight)} elements",
                      "export the network again")
    rows = view.numbers.reshape(-1, len(weight))
    if view.source.form is SampleForm.OPEN and len(rows) > view.source.samples and len(rows) % view.source.samples == 0:
        build.image(pixels(view, rows))
    form = view.source.form
    if form is SampleForm.SEQUENCE and len(rows) == view.source.samples * view.source.shape[0]:
        return _each_step(step, build, view, weight, bias, grid)
    if form is SampleForm.IMAGE and len(rows) == view.source.order[:, 0].size > view.source.samples:
        return _each_pixel(step, build, view, weight, bias, grid)
    samples = view.source.samples
    if form is not SampleForm.OPEN and len(rows) > samples and len(rows) % samples == 0 and grid is None:
        return at_each_row(step, build, view, weight, bias)
    made = of_vectors(step, build, view.at(rows if view.numbers.ndim > 1 else view.numbers), weight, bias,
                      grid)
    return made.at(made.numbers.reshape(*view.shape[:-1], -1))


def of_vectors(step: FileNode, build: Builder, view: View, weight: np.ndarray, bias: np.ndarray,
               grid: IntegerGrid | None, axis: int = 1) -> View:
    """A dense layer of the vectors that the rows of a tensor hold; arguments as for `linear` and `of_outputs`."""
    source, indices = build.vector(view)
    op = _linear(_columns(weight, indices, source.shape[0]), bias, grid, axis)
    made = build.add(step, op, [source], SampleForm.VECTOR, (weight.shape[1],))
    return View(source=made, numbers=made.order)


def at_each_row(step: FileNode, build: Builder, view: View, weight: np.ndarray, bias: np.ndarray, *,
                constant: bool = False) -> View:
    """A dense layer of each of the vectors that a sample holds, as one product with the whole sample.

    Args:
        view:     Input [samples, rows, inputs].
        constant: Whether training keeps the weights.
        Others:   As for `linear`.
    """
    source, indices = build.vector(view)
    rows, outputs = indices.reshape(-1, len(weight)), weight.shape[1]
    check_size((len(rows) * outputs, source.shape[0]))
    matrix = single(np.concatenate([_columns(weight, row, source.shape[0]) for row in rows]))
    op = NodeLinear(weight=matrix, bias=single(np.tile(bias, len(rows))), constant=constant)
    made = build.add(step, op, [source], SampleForm.VECTOR, (len(matrix),))
    return View(source=made, numbers=made.order.reshape(*view.shape[:-1], outputs))


def pixels(view: View, rows: np.ndarray) -> View:
    """The network's input as an image whose pixels are the vectors that a dense layer reads, with channels first.

    Args:
        view: The input [samples, ..., channels], with its axes in any order, or what a Reshape has made of it.
        rows: Its vectors [samples * pixels, channels].
    """
    numbers, whole = np.moveaxis(view.numbers, _axis_of_samples(view), 0), view.source.order
    if numbers.ndim < 3 and whole.shape[-1] == rows.shape[1] and np.array_equal(rows, whole.reshape(rows.shape)):
        numbers = whole
    return view.at(np.moveaxis(numbers, -1, 1) if numbers.ndim > 2 else rows.reshape(
        view.source.samples, -1, rows.shape[1]).swapaxes(1, 2))


def _axis_of_samples(view: View) -> int:
    """The axis along which the samples of a tensor [..., channels] of the network's input follow each other."""
    sample = view.numbers // (view.source.order.size // view.source.samples)
    fitting = [axis for axis in range(view.numbers.ndim - 1) if view.shape[axis] == view.source.samples and (
        np.moveaxis(sample, axis, -1) == np.arange(view.source.samples)).all()]
    return fitting[0] if fitting else 0


def _each_step(step: FileNode, build: Builder, view: View, weight: np.ndarray, bias: np.ndarray,
               grid: IntegerGrid | None
               ) -> View:
    source, size = view.source, view.source.shape[1]
    moment, indices = same_order(view.indices, size)
    outputs = weight.shape[1]
    made = build.add(step, _linear(_columns(weight, indices, size), bias, grid), [source], SampleForm.SEQUENCE,
                     (source.shape[0], outputs), mixed=source.backward > 0 or source.mixed)
    return View(source=made, numbers=(moment[..., None] * outputs + np.arange(outputs)).astype(np.int32))


def _each_pixel(step: FileNode, build: Builder, view: View, weight: np.ndarray, bias: np.ndarray,
                grid: IntegerGrid | None
               ) -> View:
    """A dense layer at each pixel is a convolution with a window of one pixel."""
    source = view.source
    channels, rows, columns = source.shape
    pixels, outputs = rows * columns, weight.shape[1]
    # Channels after pixels, as a dense layer along the last axis reads them.
    sample, channel, pixel = np.unravel_index(view.indices, (source.samples, channels, pixels))
    moment, indices = same_order((sample * pixels + pixel) * channels + channel, channels)
    matrix = single(_columns(weight, indices, channels)[:, :, None, None])
    op = Convolution(weight=matrix, bias=single(bias), window=Window(size=(1, 1)),
                     grid=of_outputs(grid, matrix, axis=1))
    made = build.add(step, op, [source], SampleForm.IMAGE, (outputs, rows, columns))
    sample, pixel = np.divmod(moment[..., None], pixels)
    return View(source=made, numbers=((sample * outputs + np.arange(outputs)) * pixels + pixel).astype(np.int32))


def _linear(weight: np.ndarray, bias: np.ndarray, grid: IntegerGrid | None, axis: int = 1) -> Linear:
    """The operator of weights [outputs, inputs], with the grid of the file's weights, as for `of_outputs`."""
    weight = single(weight)
    return Linear(weight=weight, bias=single(bias), grid=of_outputs(grid, weight, axis))


def of_outputs(grid: IntegerGrid | None, weight: np.ndarray, axis: int) -> IntegerGrid | None:
    """The grid of a layer's quantised weights [outputs, ...], with one scale for each output; None without one.

    Args:
        grid:   Their integers, with a scale and a zero point for each weight of the file.
        weight: The layer's weights.
        axis:   The axis of the file's weights that counts outputs.

    Raises:
        Refused: weights of one output have different scales.
    """
    if grid is None:
        return None
    found = {}
    for key, value in (("scale", grid.scale), ("zero_point", grid.zero_point)):
        rows = np.moveaxis(value, axis, 0).reshape(value.shape[axis], -1)
        if (rows != rows[:, :1]).any():
            raise Refused("its weights have scales or zero points that differ within one output",
                          "use one for each output, or one for all weights")
        found[key] = rows[:, 0]
    return IntegerGrid.of_outputs(found["scale"], found["zero_point"], weight, bits=grid.bits, signed=grid.signed,
                           narrow=grid.narrow)


def _columns(weight: np.ndarray, indices: np.ndarray, size: int) -> np.ndarray:
    """Weights [outputs, size] of a layer that reads a whole vector, from those of the inputs that the file reads.

    `weight` is [inputs, outputs], and `indices` says where each input lies in the vector.
    Elements that the file does not read have weights of zero; those that it reads twice have the sum of both.
    """
    whole = np.zeros((size, weight.shape[1]))
    np.add.at(whole, indices[indices != ZERO], weight[indices != ZERO])
    return whole.T


def scaler(step: FileNode, build: Builder) -> list[Value]:
    """(x - offset) * scale."""
    scale, offset = (np.asarray(step.attributes.get(key, [value]), np.float64)
                     for key, value in (("scale", 1.0), ("offset", 0.0)))
    return [affine(step, build, step.view(0), scale, -scale * offset)]


def linear_regressor(step: FileNode, build: Builder) -> list[Value]:
    """x @ coefficients + intercepts."""
    if step.attributes.get("post_transform", "NONE") != "NONE":
        raise Refused(f"it ends with {step.attributes['post_transform']}", "leave that to the host")
    return [_scores(step, build, step.attributes.get("targets", 1))]


def linear_classifier(step: FileNode, build: Builder) -> list[Value]:
    """Scores of classes; their largest is left to the host, and so is a softmax of them."""
    labels = step.attributes.get("classlabels_strings") or step.attributes.get("classlabels_ints") or ()
    transform = step.attributes.get("post_transform", "NONE")
    rows = len(step.attributes.get("intercepts") or ()) or len(labels)
    if rows != len(labels):
        raise Refused(f"it has {rows} scores for {len(labels)} classes", "export it with one score for each class")
    if transform not in ("NONE", "SOFTMAX", "LOGISTIC"):
        raise Refused(f"it ends with {transform}", "use SOFTMAX, LOGISTIC or NONE")
    scores = _scores(step, build, rows)
    build.note(f"{step.name}: the class of the largest score is left to the host; classes are "
               f"{', '.join(str(label) for label in labels)}")
    if transform == "SOFTMAX":
        build.tensors[scores.source.name] = step.outputs[1]
        build.note(f"{step.name}: a softmax (SOFTMAX) is left to the host{UNLESS}")
        return [HostValue(view=scores), HostValue(view=scores, softmax=True)]
    if transform == "LOGISTIC":
        scores = build.same(step, Sigmoid(), scores)
    return [HostValue(view=scores), scores]


def _scores(step: FileNode, build: Builder, rows: int) -> View:
    coefficients = np.asarray(step.attributes["coefficients"], np.float64).reshape(rows, -1)
    intercepts = np.asarray(step.attributes.get("intercepts") or [0.0] * rows, np.float64)
    if not np.isfinite(coefficients).all() or not np.isfinite(intercepts).all():
        raise Refused("its coefficients hold values that are infinite or not a number", "train the model again")
    return linear(step, build, step.view(0), coefficients.T, intercepts)
