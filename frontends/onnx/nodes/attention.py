"""Attention: MatMul of two computed tensors, a scale, a mask, a softmax, and MatMul with a third one; as one node.

The layers that make queries, keys and values are taken apart where a file has one for all of them, so that each makes
just what a head reads, in order; a scale of the scores becomes part of the queries' weights.
"""

from dataclasses import dataclass, replace

import numpy as np
from concord.frontends.onnx.lib.builder import Builder, single
from concord.frontends.onnx.lib.problems import Refused
from concord.frontends.onnx.lib.scores import ONLY_ATTENTION, Scores
from concord.frontends.onnx.lib.step import FileNode, Value, evaluate, misplaced
from concord.frontends.onnx.lib.views import ZERO, SampleForm, View, ViewSource
from concord.frontends.onnx.nodes.layout import FLOATS, check_keeps
from concord.net.arithmetic.windows import Window
from concord.net.ops.attention import MASKED, Attention
from concord.net.ops.scale import Scale
from concord.net.ops.weighted import Convolution

#: Masks of a file up to it hide a key, whatever the scores are.
_HIDDEN = -1e4


def scores(step: FileNode, build: Builder) -> list[Value]:
    """Products of queries and keys."""
    return [Scores.of(step.view(0), step.view(1))]


def follow(step: FileNode, build: Builder) -> list[Value]:
    """What becomes of products of two computed tensors.

    Raises:
        Refused: it is no part of an attention.
    """
    at = next(index for index, value in enumerate(step.values) if isinstance(value, Scores))
    found: Scores = step.values[at]
    other = step.get(1 - at) if at < 2 else None
    match step.kind:
        case "Shape" | "Size":
            return evaluate(step, (np.empty(found.shape, np.float32),))
        case "Mul" | "Div" if isinstance(other, np.ndarray) and (step.kind == "Mul" or at == 0):
            factor = step.weights(1 - at, "constant")
            if found.mask is not None and (factor <= 0).any():  # what the mask hides would be seen
                raise Refused("it multiplies scores behind their mask by a number that is not above zero",
                              "add the mask behind the scale")
            return [found.scaled(factor if step.kind == "Mul" else 1 / factor)]
        case "Add" if isinstance(other, np.ndarray):
            return [found.plus(np.asarray(other, np.float64))]
        case "Where" if isinstance(step.get(0), np.ndarray) and at > 0 and isinstance(step.get(3 - at), np.ndarray):
            return [_chosen(found, step.get(0) if at == 1 else ~step.get(0), step.get(3 - at))]
        case "IsNaN" if found.weights:
            return [np.zeros(found.shape, bool)]
        case "Softmax" if step.attributes.get("axis", -1 if step.opset >= 13 else 1) in (-1, len(found.shape) - 1):
            return [found.softmaxed()]
        case "Identity" | "Dropout" | "Cast":
            _check_passing(step)
            return [found, *(None for _ in step.outputs[1:])]
        case "Reshape" | "Squeeze" | "Unsqueeze" | "Flatten":
            numbers = np.arange(np.prod(found.shape), dtype=np.int32).reshape(found.shape)
            return [found.reshaped(evaluate(step, (numbers, *step.values[1:]))[0])]
        case "MatMul" if at == 0 and found.weights and isinstance(other, View):
            return [attended(step, build, found, other)]
    raise Refused("it computes with products of two computed tensors, which are imported as an attention only",
                  ONLY_ATTENTION)


def _check_passing(step: FileNode):
    """Refuse a Dropout that drops elements, and a Cast to whole numbers."""
    check_keeps(step)
    if step.kind == "Cast" and step.attributes["to"] not in FLOATS:
        raise Refused("it makes whole numbers or conditions of products of two computed tensors", ONLY_ATTENTION)


def attention(step: FileNode, build: Builder) -> list[Value]:
    """The operator Attention, whose tensors have an axis of heads, or as many heads as its attributes say."""
    if any(step.outputs[1:]) or any(value is not None for value in step.values[4:6]):
        raise Refused("it keeps keys and values for a later call, or gives its scores", "export the network without")
    if step.get(6) is not None:
        raise Refused("it has lengths of its own for the keys (nonpad_kv_seqlen)",
                      "leave them out, or hide keys by a constant mask")
    views = [step.view(index) for index in range(3)]
    flat = len(views[0].shape) == 3
    counts = [int(step.attributes.get(name, 0)) for name in ("q_num_heads", "kv_num_heads", "kv_num_heads")]
    if flat:
        views = [view.at(view.numbers.reshape(*view.shape[:2], count, -1).swapaxes(1, 2))
                 for view, count in zip(views, counts, strict=True)]
    repeats = views[0].shape[1] // views[1].shape[1]
    queries, keys, values = views[0], *(view.at(np.repeat(view.numbers, repeats, 1)) for view in views[1:])
    found = Scores.of(queries, keys.at(keys.numbers.swapaxes(-1, -2)))
    found = found.scaled(np.array(step.attributes.get("scale", queries.shape[-1]**-0.5)))
    if step.attributes.get("softcap", 0.0):
        raise Refused("it caps its scores (softcap)", "leave softcap out and train on")
    if step.attributes.get("is_causal", 0):
        found = found.plus(np.where(np.tri(*found.shape[-2:], dtype=bool), 0, -np.inf))
    mask = step.constant(3, "mask")
    if mask is not None:
        found = found.plus(np.where(mask, 0, -np.inf) if mask.dtype == bool else np.asarray(mask, np.float64))
    made = attended(step, build, found.softmaxed(), values)
    return [made.at(made.numbers.swapaxes(1, 2).reshape(*step.view(0).shape[:2], -1)) if flat else made]


def _chosen(found: Scores, seen: np.ndarray, other: np.ndarray) -> Scores:
    """Scores where a condition holds, and a constant elsewhere."""
    if np.asarray(seen, bool).all():
        return found
    if (np.broadcast_to(other, np.broadcast_shapes(other.shape, seen.shape))[
            np.broadcast_to(~seen, np.broadcast_shapes(other.shape, seen.shape))] > _HIDDEN).any():
        raise Refused("it puts other constants than minus infinity instead of products", ONLY_ATTENTION)
    return found.plus(np.where(seen, 0, -np.inf))


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _Vectors:
    """The vectors of positions that a tensor [..., positions, channels] of a file holds.

    Attributes:
        source:   The image whose pixels are the positions.
        samples:  int[vectors of positions], the sample of each.
        channels: int[vectors of positions, channels], the channels of the image that each has.
    """

    source: ViewSource
    samples: np.ndarray
    channels: np.ndarray

    @classmethod
    def of(cls, build: Builder, view: View) -> "_Vectors":
        if view.source.form is SampleForm.SEQUENCE:
            view = build.image_of_steps(view)
        numbers = view.numbers.reshape(-1, *view.shape[-2:])
        if view.source.form is SampleForm.OPEN:
            build.image(view.at(numbers.swapaxes(1, 2)))
        source, indices = view.source, view.at(numbers).indices
        if source.form is not SampleForm.IMAGE or (indices == ZERO).any():
            raise misplaced(f"it reads {list(view.shape)} as the vectors of positions, which no image holds",
                            "let queries, keys and values come from layers of all positions")
        samples, channels, pixels = np.unravel_index(indices, (source.samples, source.shape[0],
                                                              source.shape[1] * source.shape[2]))
        found = cls(source=source, samples=samples[:, 0, 0], channels=channels[:, 0])
        whole = np.arange(source.shape[1] * source.shape[2])[:, None]
        if pixels.shape[1] != len(whole) or (pixels != whole).any() or (
                samples != found.samples[:, None, None]).any() or (channels != found.channels[:, None]).any():
            raise misplaced(f"it reads {list(view.shape)} as vectors of positions, but not all positions in order",
                            "let queries, keys and values have one vector for each position")
        return found


def attended(step: FileNode, build: Builder, found: Scores, values: View) -> View:
    """The attention of weights and values.

    Raises:
        Refused: they are not vectors of the same heads and positions.
    """
    if found.shape[:-2] != values.shape[:-2] or found.shape[-1] != values.shape[-2]:
        raise misplaced(f"its weights {list(found.shape)} and values {list(values.shape)} do not fit each other")
    keys = found.keys.at(found.keys.numbers.swapaxes(-1, -2))
    parts = [_Vectors.of(build, view) for view in (found.queries, keys, values)]
    samples = parts[0].samples
    count = parts[0].source.samples
    heads = len(samples) // count
    order = np.argsort(samples, kind="stable").reshape(count, heads)
    mask = _mask(found, order)
    channels = [part.channels[order] for part in parts]
    if (samples[order] != np.arange(count)[:, None]).any() or any(
            (part.samples != samples).any() for part in parts) or any((one != one[0]).any() for one in channels):
        raise misplaced("it mixes samples of a batch, or their heads differ", "export the network again")
    sources = [_selected(step, build, part.source, one[0].reshape(-1), factor, name) for part, one, factor, name in zip(
        parts, channels, (found.scale, 1.0, 1.0), ("queries", "keys", "values"), strict=True)]
    size, plane = channels[2].shape[-1], parts[0].source.shape[1:]
    made = build.add(step, Attention(heads=heads, mask=mask), sources, SampleForm.IMAGE, (heads * size, *plane))
    whole = made.order.reshape(count, heads, size, -1).swapaxes(-1, -2)
    numbers = np.empty((len(samples), *whole.shape[2:]), np.int32)
    numbers[order] = whole
    return View(source=made, numbers=numbers.reshape(*found.shape[:-1], size))


def _mask(found: Scores, order: np.ndarray) -> np.ndarray | None:
    """The mask of each head, which must be that of all samples; one for all heads if they agree; None for zeros."""
    if found.mask is None:
        return None
    largest = found.mask.max(axis=-1, keepdims=True)
    if not (np.abs(largest) <= -MASKED).all():  # float32 loses the scores beside such a number
        raise Refused("its mask hides all keys from a query, or adds numbers to its scores beside which these are lost",
                      f"let each query see a key, and add numbers of {MASKED:g} to {-MASKED:g} to what it sees")
    shifted = found.mask - largest  # a softmax does not change, and what is hidden stays so in the machine's range
    if not shifted.any():
        return None
    each = shifted.reshape(-1, *shifted.shape[-2:])[order]
    if (each != each[:1]).any():
        raise Refused("its mask differs from sample to sample", "use the same mask for all samples")
    mask = each[0, :1] if (each[0] == each[0, :1]).all() else each[0]
    return single(np.clip(mask, MASKED, -MASKED))


def _selected(step: FileNode, build: Builder, source: ViewSource, channels: np.ndarray, factor: float,
              name: str) -> ViewSource:
    """An image of some channels of a source, in this order, times a factor: from the layer that makes the source.

    Scales between that layer and the source become part of its weights. Where another operator makes the source, a
    layer of its own chooses the channels.
    """
    scale, offset, at = np.full(len(channels), factor), np.zeros(len(channels)), source
    maker = build.maker(at)
    while maker is not None and isinstance(maker.op, Scale):
        own, moved = (np.broadcast_to(part, at.shape[0])[channels] for part in maker.op.line())
        scale, offset = scale * own, offset + scale * moved
        at = build.sources[maker.sources[0]]
        maker = build.maker(at)
    named = replace(step, name=f"{step.label()}_{name}", names=())
    plain = maker is not None and isinstance(maker.op, Convolution) and maker.op.groups == 1 and maker.op.grid is None
    if plain:
        weight, bias = maker.op.weight.astype(np.float64)[channels], maker.op.bias.astype(np.float64)[channels]
        changed = replace(maker.op, weight=single(weight * scale.reshape(-1, 1, 1, 1)),
                          bias=single(bias * scale + offset))
        same = np.array_equal(changed.weight, maker.op.weight) and np.array_equal(changed.bias, maker.op.bias)
        if same and at is source:
            return source
        return build.add(replace(named, name=f"{maker.name}_{name}"), changed, [build.sources[maker.sources[0]]],
                         SampleForm.IMAGE, (len(channels), *at.shape[1:]))
    weight = np.zeros((len(channels), at.shape[0], 1, 1))
    weight[np.arange(len(channels)), channels] = scale.reshape(-1, 1, 1)
    return build.add(named, Convolution(weight=single(weight), bias=single(offset), window=Window(size=(1, 1))), [at],
                     SampleForm.IMAGE, (len(channels), *at.shape[1:]))
