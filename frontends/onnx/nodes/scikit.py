"""Operators of scikit-learn's exports (ai.onnx.ml): scalers and linear models."""

import numpy as np
from concord.frontends.onnx.lib.builder import Builder
from concord.frontends.onnx.lib.problems import Refused
from concord.frontends.onnx.lib.step import HostValue, Step, Value
from concord.frontends.onnx.lib.views import View
from concord.frontends.onnx.nodes.arithmetic import affine
from concord.frontends.onnx.nodes.dense import linear
from concord.frontends.onnx.nodes.layout import UNLESS
from concord.net.ops.pointwise import Sigmoid


def scaler(step: Step, build: Builder) -> list[Value]:
    """(x - offset) * scale."""
    scale, offset = (np.asarray(step.attributes.get(key, [value]), np.float64)
                     for key, value in (("scale", 1.0), ("offset", 0.0)))
    return [affine(step, build, step.view(0), scale, -scale * offset)]


def linear_regressor(step: Step, build: Builder) -> list[Value]:
    """x @ coefficients + intercepts."""
    if step.attributes.get("post_transform", "NONE") != "NONE":
        raise Refused(f"it ends with {step.attributes['post_transform']}", "leave that to the host")
    return [_scores(step, build, step.attributes.get("targets", 1))]


def linear_classifier(step: Step, build: Builder) -> list[Value]:
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


def _scores(step: Step, build: Builder, rows: int) -> View:
    coefficients = np.asarray(step.attributes["coefficients"], np.float64).reshape(rows, -1)
    intercepts = np.asarray(step.attributes.get("intercepts") or [0.0] * rows, np.float64)
    if not np.isfinite(coefficients).all() or not np.isfinite(intercepts).all():
        raise Refused("its coefficients hold values that are infinite or not a number", "train the model again")
    return linear(step, build, step.view(0), coefficients.T, intercepts)
