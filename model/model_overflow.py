"""Overflow events of all layers of a model, the bounds beside them, and what a narrow accumulator returns.

Source: S3; numerics.md of the specification, overflow events.
"""

from dataclasses import dataclass
from functools import reduce

import numpy as np
from concord.golden.lib import float16
from concord.golden.mfu import activation
from concord.golden.mvm import quantizer
from concord.golden.mvm.overflow import wrap
from concord.model import images, network
from concord.model.image_layers import Add, Concat, Conv, Pool
from concord.model.layer_overflow import Count, Widths, count, proven
from concord.model.layers import LSTM, Dense, Layer
from concord.model.model import INPUT, Model

TOGETHER = 50  #: Samples that run at once: the patches of a convolution are many.


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Product:
    """One integer product of a layer.

    Attributes:
        name:    Of the layer, and of its matrix where it has two.
        weights: Integers[groups, rows, columns]; the groups see different codes.
        start:   Integers[groups, rows].
        largest: Largest magnitude of a code.
    """

    name: str
    weights: np.ndarray
    start: np.ndarray
    largest: int

    @property
    def required(self) -> int:
        """Accumulator bits that hold every sum, whatever the input: proven from the weights."""
        groups = zip(self.weights, self.start, strict=True)
        return max(proven(weights, start, self.largest) for weights, start in groups).bit_length() + 1


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Use:
    """One product of a model over a batch.

    Attributes:
        product: The product.
        count:   What the batch did.
    """

    product: Product
    count: Count


def products(layer: Layer) -> list[Product]:
    """The integer products of a layer.

    Raises:
        ValueError: the layer multiplies, but not integers.
    """
    match layer:
        case Dense():
            found = [(layer.name, layer.weights[None], layer.start[None])]
        case Conv():
            weights = layer.weights.reshape(layer.groups, len(layer.weights) // layer.groups, -1)
            found = [(layer.name, weights, layer.start.reshape(layer.groups, -1))]
        case LSTM():
            found = []
            for name, stacked in (("input", layer.input_weights), ("recurrent", layer.recurrent_weights)):
                tall = stacked.reshape(1, -1, stacked.shape[-1])
                found.append((f"{layer.name}, {name}", tall, np.zeros(tall.shape[:2], np.int64)))
        case Pool() | Add() | Concat():
            return []
        case _:
            raise ValueError(
                f"layer {layer.name!r} has no integer weights: overflow is counted in integer mode only, and what a "
                "sum in block floating point needs depends on the machine's exponents"
            )
    largest = -layer.input_format.lowest
    return [Product(name=name, weights=weights, start=start, largest=largest) for name, weights, start in found]


def required_bits(layer: Layer) -> int:
    """Accumulator bits that hold every sum of a layer, whatever its input; 0 where it has none."""
    return max((product.required for product in products(layer)), default=0)


def dry_run(model: Model, inputs: np.ndarray, lengths: np.ndarray | None, widths: Widths) -> list[Use]:
    """Count every product of a model for a batch; results go on unwrapped. Arguments as in `network.forward`."""
    found = {layer.name: products(layer) for layer in model.layers}
    counts = {}

    def look(layer: Layer, x: list[np.ndarray], trace: network.Trace, lengths: np.ndarray) -> np.ndarray | None:
        for product, codes in zip(found[layer.name], _codes(layer, x, trace, lengths), strict=True):
            groups = zip(product.weights, codes, product.start, strict=True)
            made = reduce(Count.beside, (count(*group, widths) for group in groups))
            counts[product.name] = counts[product.name] + made if product.name in counts else made
        return None

    _walk(model, inputs, lengths, look)
    listed = [product for layer in model.layers for product in found[layer.name]]
    return [Use(product=product, count=counts[product.name]) for product in listed]


def wrapped(model: Model, inputs: np.ndarray, sum_bits: int) -> np.ndarray:
    """Outputs uint16[samples, outputs] of a model whose accumulators have `sum_bits` bits.

    Raises:
        ValueError: a layer is recurrent, or in block floating point.
    """
    for layer in model.layers:
        if not isinstance(layer, Dense | Conv | Pool | Add | Concat):
            raise ValueError(f"layer {layer.name!r} has no integer sums that are known here; they cannot be wrapped")

    def look(layer: Layer, x: list[np.ndarray], trace: network.Trace, lengths: np.ndarray) -> np.ndarray | None:
        if not isinstance(layer, Dense | Conv):
            return None
        (product,), (codes,) = products(layer), _codes(layer, x, trace, lengths)
        sums = codes.astype(np.float64) @ product.weights.astype(np.float64).transpose(0, 2, 1)
        totals = wrap(sums.astype(np.int64) + product.start[:, None], sum_bits)
        # [groups, samples, places, rows] to [samples, groups * rows, places]
        totals = totals.reshape(len(totals), len(x[0]), -1, totals.shape[-1]).transpose(1, 0, 3, 2)
        totals = totals.reshape(len(x[0]), len(layer.scale), -1)
        scaled = float16.mul(float16.from_integer(totals, layer.p), layer.scale[:, None])
        y = activation.apply(layer.activation, float16.add(scaled, layer.offset[:, None]))
        return y.reshape(len(x[0]), -1)

    return _walk(model, inputs, None, look)


def _walk(model: Model, inputs: np.ndarray, lengths: np.ndarray | None, look) -> np.ndarray:
    """Run a model some samples at a time. After each layer, what `look` returns goes on in place of its outputs."""
    lengths, results = np.full(len(inputs), inputs.shape[1]) if lengths is None else np.asarray(lengths), []
    recurrent = [layer.name for layer, after in zip(model.layers, model.layers[1:], strict=False)
                 if isinstance(after, LSTM)]
    for first in range(0, len(inputs), TOGETHER):
        part = slice(first, first + TOGETHER)
        made = {INPUT: np.asarray(inputs[part], np.uint16)}
        for layer in model.layers:
            x = [made[name] for name in model.sources_of(layer)]
            trace = network.run(layer, x, lengths[part])
            other = look(layer, x, trace, lengths[part])
            outputs = trace.outputs if other is None else other
            made[layer.name] = trace.hidden if layer.name in recurrent else outputs
        results.append(outputs)
    return np.concatenate(results)


def _codes(layer: Layer, x: list[np.ndarray], trace: network.Trace, lengths: np.ndarray) -> list[np.ndarray]:
    """The codes [groups, samples, columns] that enter each product of a layer: of a convolution, a sample for each
    place; of a recurrent layer, one for each time step."""
    match layer:
        case Dense():
            return [trace.codes[None]]
        case Conv():
            return [_patches(layer, trace.codes)]
        case LSTM():
            return _recurrent(layer, x[0], trace.hidden, lengths)
    return []


def _patches(layer: Conv, codes: np.ndarray) -> np.ndarray:
    channels, rows, columns = layer.shape
    padded = codes.reshape(len(codes), channels, rows + 2 * layer.padding, columns + 2 * layer.padding)
    seen = images.windows(padded, layer.weights.shape[2:], layer.stride, 0, 0)
    seen = seen.reshape(len(codes), layer.groups, -1, *seen.shape[2:])
    return seen.transpose(1, 0, 3, 4, 2, 5, 6).reshape(layer.groups, len(codes) * seen.shape[3] * seen.shape[4], -1)


def _recurrent(layer: LSTM, x: np.ndarray, hidden: np.ndarray, lengths: np.ndarray) -> list[np.ndarray]:
    inside = np.arange(x.shape[1]) < lengths[:, None]
    first = np.broadcast_to(layer.initial_hidden, (len(x), 1, layer.outputs))
    before = np.concatenate([first, hidden[:, :-1]], axis=1)
    found = []
    for values, scale in ((x, layer.input_quant_scale), (before, layer.hidden_quant_scale)):
        values = values[inside] if scale is None else float16.mul(values[inside], scale)
        found.append(quantizer.quantize_integer(values, layer.input_format, unsigned=False)[None])
    return found
