"""Arithmetic of tensors with each other and with constants, batch normalisation, and tensors joined to one (Concat)."""

from collections.abc import Callable
from functools import partial

import numpy as np
from concord.frontends.onnx.lib.builder import Builder, check_not_padded, single
from concord.frontends.onnx.lib.problems import Refused
from concord.frontends.onnx.lib.step import FileNode, Value, misplaced
from concord.frontends.onnx.lib.views import ZERO, SampleForm, View, ViewSource, as_file
from concord.net.ops.joins import Addition, ChannelGating, Concatenation, Multiplication
from concord.net.ops.operator import Operator
from concord.net.ops.pointwise import HardSigmoid, HardSwish, Sigmoid
from concord.net.ops.reshape import Tokens
from concord.net.ops.scale import Affine, BatchNorm, Offsets


def add(step: FileNode, build: Builder) -> list[Value]:
    """The sum of tensors and constants (Add, Sum)."""
    _check_real(step)
    views = [value for value in step.values if isinstance(value, View)]
    constants = [step.weights(index, "constant") for index, value in enumerate(step.values)
                 if isinstance(value, np.ndarray)]
    made = views[0]
    for view in views[1:]:
        made = _sum(step, build, made, view)
    for constant in constants:
        made = affine(step, build, made, np.ones(1), constant)
    return [made]


def sub(step: FileNode, build: Builder) -> list[Value]:
    """A difference."""
    _check_real(step)
    if isinstance(step.get(1), np.ndarray):
        return [affine(step, build, step.view(0), np.ones(1), -step.weights(1, "constant"))]
    negative = affine(step, build, step.view(1), -np.ones(1), np.zeros(1))
    if isinstance(step.get(0), np.ndarray):
        return [affine(step, build, negative, np.ones(1), step.weights(0, "constant"))]
    return [_sum(step, build, step.view(0), negative)]


def neg(step: FileNode, build: Builder) -> list[Value]:
    """-x."""
    return [affine(step, build, step.view(0), -np.ones(1), np.zeros(1))]


def mul(step: FileNode, build: Builder) -> list[Value]:
    """A product with a constant, of two tensors, or x times the hard sigmoid of x."""
    _check_real(step)
    constant = next((index for index, value in enumerate(step.values) if isinstance(value, np.ndarray)), None)
    if constant is not None:
        return [affine(step, build, step.view(1 - constant), step.weights(constant, "constant"), np.zeros(1))]
    for x, gate in (step.values, step.values[::-1]):
        maker = build.maker(gate.source)
        gated = maker and isinstance(maker.op, HardSigmoid) and maker.sources == (x.source.name,)
        if gated and np.array_equal(x.indices, gate.indices) and (
                np.isclose(maker.op.alpha, 1 / 6, rtol=1e-6) and maker.op.beta == 0.5):
            return [build.same(step, HardSwish(), x)]
    for image, gate in (step.values, step.values[::-1]):
        if len(image.shape) > 2 and image.shape[2:] != gate.shape[2:] == (1,) * (len(image.shape) - 2) and (
                image.shape[:2] == gate.shape[:2]):
            return [_gated(step, build, image, gate)]
    return [_join(step, build, Multiplication(), *step.values)]


def swish(step: FileNode, build: Builder) -> list[Value]:
    """x * sigmoid(x), SiLU."""
    alpha = float(step.attributes.get("alpha", 1))
    if alpha != 1:
        raise Refused(f"its factor alpha is {alpha:g}", "use a factor of 1 and train on")
    view = step.view(0)
    check_not_padded(view)
    return [_join(step, build, Multiplication(), view, build.same(step, Sigmoid(), view))]


def _gated(step: FileNode, build: Builder, image: View, gate: View) -> View:
    """The product of an image and a vector that has a number for each channel."""
    found, (vector, indices) = build.image(image), build.vector(gate)
    source = found.source
    in_order = np.array_equal(indices, np.arange(source.shape[0]))
    if any(found.padding) or not in_order or vector.shape != source.shape[:1]:
        raise misplaced("it multiplies an image by numbers that are not those of its channels, in order",
                        "multiply before the image is padded, transposed or cut")
    made = build.add(step, ChannelGating(), [source, vector], source.form, source.shape)
    return as_file(made, image.numbers.ndim - 2)


def div(step: FileNode, build: Builder) -> list[Value]:
    """A quotient by a constant."""
    _check_real(step)
    divisor = step.weights(1, "divisor")
    if not divisor.all():
        raise Refused("it divides by zero", "export the network again")
    return [affine(step, build, step.view(0), 1 / divisor, np.zeros(1))]


def _check_real(step: FileNode):
    """Refuse whole numbers that a division would round, or that wrap around."""
    for value in step.values:
        if isinstance(value, np.ndarray) and value.dtype.kind in "iu" and (
                step.kind == "Div" or value.dtype.name not in ("int32", "int64")):
            raise Refused(f"it computes with whole numbers ({value.dtype.name}), which "
                          f"{'are divided without a remainder' if step.kind == 'Div' else 'wrap around'}",
                          "put a Cast to float before it")


def batch_norm(step: FileNode, build: Builder) -> list[Value]:
    """weight * (x - mean) / sqrt(variance + epsilon) + bias, of each channel on the second axis."""
    trains = not step.attributes.get("is_test", 0) if step.opset < 7 else (
        any(step.outputs[1:]) if step.opset < 14 else step.attributes.get("training_mode", 0))
    if trains:
        raise Refused("it is in training mode, and normalises each batch by itself", "export the network for inference "
                      "(eval mode)")
    view, keys = step.view(0), ("weight", "bias", "mean", "variance")
    values = {key: step.weights(index, key) for index, key in enumerate(keys, 1)}
    channels = view.shape[1] if len(view.shape) > 1 else view.shape[0]
    if any(value.size != channels for value in values.values()):
        raise Refused(f"its parameters do not fit {channels} channels", "export the network again")
    beside = [1] * (len(view.shape) - 2)
    fitted = {key: (value.reshape(-1, *beside), default)
              for (key, value), default in zip(values.items(), (1, 0, 0, 1), strict=True)}
    epsilon = float(step.attributes.get("epsilon", 1e-5))
    return [per_channel(step, build, view, partial(BatchNorm, epsilon=epsilon), fitted), *[None] * 4]


def affine(step: FileNode, build: Builder, view: View, scale: np.ndarray, offset: np.ndarray) -> View:
    """scale * x + offset, of constants that fit the tensor as ONNX has it."""
    pixels = _of_pixels(view, scale, offset)
    if pixels is not None:
        return build.same(step, Offsets(offset=single(pixels)), view)
    return per_channel(step, build, view, Affine, {"scale": (scale, 1), "offset": (offset, 0)})


def _of_pixels(view: View, scale: np.ndarray, offset: np.ndarray) -> np.ndarray | None:
    """An offset [channels, rows, columns] that differs from pixel to pixel; None for a scale or any other constant."""
    source = view.source
    fits = source.form is SampleForm.IMAGE and (scale == 1).all() and np.array_equal(
        np.sort(view.indices, axis=None), np.arange(source.order.size))  # each element once
    if not fits or np.broadcast_shapes(view.shape, offset.shape) != view.shape:
        return None
    value = np.broadcast_to(offset, view.shape)
    if _channels(view, value, 0) is not None:
        return None
    spread = np.empty(source.order.size)
    spread[view.indices.reshape(-1)] = value.reshape(-1)
    each = spread.reshape(source.order.shape)
    return each[0] if (each == each[0]).all() else None


def per_channel(step: FileNode, build: Builder, view: View, make: Callable[..., Operator], tensors: dict) -> View:
    """A node with one number for each channel, or element of a vector.

    Args:
        step:       Node of the file.
        build:      Where the node goes.
        view:       What it reads.
        make:       Makes its operator of its tensors.
        tensors:    For each tensor: its numbers, which fit the view, and the number for elements that the file
            does not read.
    """
    check_not_padded(view)
    fitted = {}
    for key, (value, default) in tensors.items():
        try:
            fitted[key] = np.broadcast_to(value, view.shape), default
        except ValueError as error:
            raise misplaced(f"its constant {list(value.shape)} would make its input {list(view.shape)} larger"
                            ) from error
    channel = {key: _channels(view, *value) for key, value in fitted.items()}
    if any(value is None for value in channel.values()):
        view = build.flat(view)
        channel = {key: _channels(view, *value) for key, value in fitted.items()}
    if any(value is None for value in channel.values()):
        sizes = " or ".join(sorted({str(list(np.shape(value))) for value, _ in tensors.values() if np.size(value) > 1}))
        raise Refused(f"its constant {sizes} differs from sample to sample, or between copies of one element",
                      "use the same numbers for all samples")
    return build.same(step, make(**{key: single(value) for key, value in channel.items()}), view)


def _channels(view: View, value: np.ndarray, default: float) -> np.ndarray | None:
    """One number for each channel of an image, or element of a vector or of a time step; None if there are several."""
    source: ViewSource = view.source
    spread = np.full(source.order.size, float(default))
    known = np.zeros(source.order.size, bool)
    indices = view.indices.reshape(-1)
    spread[indices], known[indices] = value.reshape(-1), True
    if source.form is SampleForm.OPEN:
        return np.ones(1)  # conversion starts again once the form of the input is known
    axis = 2 if source.form is SampleForm.SEQUENCE else 1
    others = tuple(other for other in range(source.order.ndim) if other != axis)
    spread, known = spread.reshape(source.order.shape), known.reshape(source.order.shape)
    low = np.where(known, spread, np.inf).min(axis=others)
    high = np.where(known, spread, -np.inf).max(axis=others)
    if (low < high).any() or not np.array_equal(spread.reshape(-1)[indices], value.reshape(-1)):
        return None
    return np.where(known.any(axis=others), high, default)


def _sum(step: FileNode, build: Builder, a: View, b: View) -> View:
    return _join(step, build, Addition(), a, b)


def _join(step: FileNode, build: Builder, op: Operator, a: View, b: View) -> View:
    """The sum or product of two tensors, element by element."""
    does = "adds" if isinstance(op, Addition) else "multiplies"
    if a.shape != b.shape:
        raise misplaced(f"it {does} tensors of the shapes {list(a.shape)} and {list(b.shape)}", "make the shapes equal")
    if not _aligned(a, b) or min(a.numbers.min(), b.numbers.min()) == ZERO:
        a, b = (build.own(view) for view in (a, b))
    for view in (a, b):
        check_not_padded(view)
    if a.source.form is not b.source.form:
        a, b = build.flat(a), build.flat(b)
    if not _aligned(a, b):
        raise misplaced(f"it {does} two tensors whose elements lie in different orders", "do so before one of them is "
                        "flattened, transposed or cut")
    sources = [a.source, b.source]
    mixed = any(source.backward or source.mixed for source in sources)
    made = build.add(step, op, sources, a.source.form, a.source.shape, mixed=mixed)
    return View(source=made, numbers=a.indices)


def _aligned(a: View, b: View) -> bool:
    """Whether the elements of two tensors lie in the same order in results of the same shape."""
    return a.source.shape == b.source.shape and np.array_equal(a.indices, b.indices)


def concat(step: FileNode, build: Builder) -> list[Value]:
    """Tensors joined along one axis."""
    if len(step.values) == 2 and isinstance(step.get(0), np.ndarray) and (made := _behind(step, build)) is not None:
        return [made]
    views = [step.view(index) if not isinstance(value, np.ndarray) else _refuse()
             for index, value in enumerate(step.values)]
    axis = step.attributes["axis"]
    if all(view.source is views[0].source for view in views):
        joined = np.concatenate([view.numbers for view in views], axis=axis)
        if len(np.unique(joined)) == joined.size:
            return [views[0].at(joined)]
    for view in views:
        if view.source.form is SampleForm.OPEN:
            build.image(view) if len(view.shape) > 2 else build.vector(view)
    if axis % views[0].numbers.ndim == 1 and {view.source.form for view in views} == {SampleForm.IMAGE}:
        views = [view if view.numbers.size == view.source.order.size and view.numbers.min() > ZERO
                 else build.own(view) for view in views]
    for view in views:
        check_not_padded(view)
    if len({view.source.form for view in views}) > 1 or not _alike(views, axis):
        views = [build.flat(view) for view in views]
    form = views[0].source.form
    channels = [view.source.shape[1 if form is SampleForm.SEQUENCE else 0] for view in views]
    first = views[0].source
    shape = (first.shape[0], sum(channels)) if form is SampleForm.SEQUENCE else (sum(channels), *first.shape[1:])
    mixed = any(view.source.backward or view.source.mixed for view in views)
    made = build.add(step, Concatenation(), [view.source for view in views], form, shape, mixed=mixed)
    parts, start = [], 0
    for view, count in zip(views, channels, strict=True):
        where = np.take(made.order, range(start, start + count), axis=2 if form is SampleForm.SEQUENCE else 1)
        parts.append(where.reshape(-1)[view.indices])
        start += count
    return [View(source=made, numbers=np.concatenate(parts, axis=axis))]


def _alike(views: list[View], axis: int) -> bool:
    """Whether the sources of tensors can be joined along channels, as the file joins them."""
    first = views[0].source
    if first.form is SampleForm.VECTOR:
        return True
    along = 0 if first.form is SampleForm.IMAGE else 1
    shapes = {tuple(size for index, size in enumerate(view.source.shape) if index != along) for view in views}
    return len(shapes) == 1 and all(view.numbers.size == view.source.order.size for view in views) and len(
        {view.numbers.ndim for view in views}) == 1 and views[0].numbers.ndim > 2


def _behind(step: FileNode, build: Builder) -> View | None:
    """The positions of an image [samples, positions, channels] behind constant ones; None for another tensor."""
    view, constant = step.view(1), step.weights(0, "constant")
    source, fits = view.source, view.numbers.ndim == 3 == constant.ndim and step.attributes["axis"] in (1, -2)
    if fits and source.form is SampleForm.OPEN:
        build.image(view.at(view.numbers.swapaxes(1, 2)))
    if not fits or source.form is not SampleForm.IMAGE or view.shape[::2] != constant.shape[::2] or (
            constant != constant[:1]).any() or not np.array_equal(
            view.indices, np.arange(source.order.size).reshape(source.samples, source.shape[0], -1).swapaxes(1, 2)):
        return None
    count = constant.shape[1] + view.shape[1]
    made = build.add(step, Tokens(tokens=single(constant[0].T)), [source], SampleForm.IMAGE, (view.shape[2], 1, count))
    return View(source=made, numbers=made.order[:, :, 0].swapaxes(1, 2))


def _refuse():
    raise Refused("it joins a constant to what it computes", "leave the constant out, or add a bias; a "
                  "constant may stand ahead of all positions [samples, positions, channels], such as a class token")
