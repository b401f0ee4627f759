"""Concat: images joined along channels, vectors along elements."""

import numpy as np
from concord.frontends.onnx.lib.builder import Builder, check_not_padded
from concord.frontends.onnx.lib.problems import Refused
from concord.frontends.onnx.lib.step import Step, Value
from concord.frontends.onnx.lib.views import Form, View
from concord.net.ops.reshape import Concatenation


def concat(step: Step, build: Builder) -> list[Value]:
    """Tensors joined along one axis."""
    views = [step.view(index) if not isinstance(value, np.ndarray) else _refuse()
             for index, value in enumerate(step.values)]
    axis = step.attributes["axis"]
    if all(view.source is views[0].source for view in views):
        joined = np.concatenate([view.numbers for view in views], axis=axis)
        if len(np.unique(joined)) == joined.size:
            return [views[0].at(joined)]
    for view in views:
        check_not_padded(view)
        if view.source.form is Form.OPEN:
            build.image(view) if len(view.shape) > 2 else build.vector(view)
    if len({view.source.form for view in views}) > 1 or not _alike(views, axis):
        views = [build.flat(view) for view in views]
    form = views[0].source.form
    channels = [view.source.shape[1 if form is Form.SEQUENCE else 0] for view in views]
    first = views[0].source
    shape = (first.shape[0], sum(channels)) if form is Form.SEQUENCE else (sum(channels), *first.shape[1:])
    mixed = any(view.source.backward or view.source.mixed for view in views)
    made = build.add(step, Concatenation(), [view.source for view in views], form, shape, mixed=mixed)
    parts, start = [], 0
    for view, count in zip(views, channels, strict=True):
        where = np.take(made.order, range(start, start + count), axis=2 if form is Form.SEQUENCE else 1)
        parts.append(where.reshape(-1)[view.places])
        start += count
    return [View(source=made, numbers=np.concatenate(parts, axis=axis))]


def _alike(views: list[View], axis: int) -> bool:
    """Whether the sources of tensors can be joined along channels, as the file joins them."""
    first = views[0].source
    if first.form is Form.VECTOR:
        return True
    along = 0 if first.form is Form.IMAGE else 1
    shapes = {tuple(size for index, size in enumerate(view.source.shape) if index != along) for view in views}
    return len(shapes) == 1 and all(view.numbers.size == view.source.order.size for view in views) and len(
        {view.numbers.ndim for view in views}) == 1 and views[0].numbers.ndim > 2


def _refuse():
    raise Refused("it joins a constant to what it computes", "leave the constant out, or add a bias")
