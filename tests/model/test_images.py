"""Image layers in golden arithmetic, against loops."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from concord.golden.lib import float16
from concord.golden.mvm.quantizer import quantize_integer
from concord.model import lowering, network
from concord.model.layers.add import Add
from concord.model.layers.concat import Concat
from concord.model.layers.convolution import Conv
from concord.model.layers.dense import Dense
from concord.model.layers.pool import Pool, Reduction
from concord.model.model import INPUT, Model, Provenance
from concord.model.model_file import load_model, save_model
from concord.spec.activation import Activation
from concord.spec.formats import Format

FOUR = Format(bits=4, symmetric=True)
RNG = np.random.default_rng(7)


def halves(*shape, scale=3.0):
    return (RNG.normal(size=shape) * scale).astype(np.float16).view(np.uint16)


def conv(name="conv", *, shape=(4, 6, 5), outputs=6, size=(3, 2), stride=2, padding=1, groups=2, unsigned=True,
         real=True, activation=Activation.NONE):
    """A convolution with random parameters."""
    weights = RNG.integers(-7, 8, (outputs, shape[0] // groups, *size)).astype(np.int16)
    start = lowering.start_values(weights.reshape(outputs, -1), FOUR, unsigned)
    return Conv(
        name=name, weights_format=FOUR, input_format=FOUR, unsigned=unsigned, shape=shape, stride=stride,
        padding=padding, groups=groups, border=0 if real else int(halves(1)[0]), weights=weights, start=start, p=1,
        scale=halves(outputs), offset=halves(outputs), quant_scale=halves(shape[0]) if real else None,
        quant_offset=halves(shape[0]) if real else None, activation=activation)


def slow_conv(layer: Conv, image):
    """The convolution of an image uint16[channels, rows, columns], place by place."""
    channels, rows, columns = layer.shape
    around = np.full((channels, rows + 2 * layer.padding, columns + 2 * layer.padding), layer.border, np.uint16)
    around[:, layer.padding:layer.padding + rows, layer.padding:layer.padding + columns] = image
    result = np.zeros(layer.made, np.uint16)
    each, made = channels // layer.groups, len(layer.weights) // layer.groups
    for o, i, j in product(*map(range, layer.made)):
        total = int(layer.start[o])
        for c, di, dj in product(*map(range, layer.weights.shape[1:])):
            channel = o // made * each + c
            x = around[channel, i * layer.stride + di, j * layer.stride + dj]
            if layer.quant_scale is not None:
                x = float16.add(float16.mul(x, layer.quant_scale[channel]), layer.quant_offset[channel])
            code = quantize_integer(np.array([x]), layer.input_format, unsigned=layer.unsigned)[0]
            total += int(layer.weights[o, c, di, dj]) * int(code)
        a = float16.from_integer(np.array([total]), layer.p)[0]
        result[o, i, j] = float16.add(float16.mul(a, layer.scale[o]), layer.offset[o])
    return result


@pytest.mark.parametrize("options", [
    {}, {"groups": 1, "stride": 1}, {"groups": 4, "outputs": 8, "size": (3, 3), "padding": 2}, {"unsigned": False},
    {"real": False}, {"padding": 0, "activation": Activation.RELU}])
def test_convolution(options):
    layer = conv(**options)
    x = halves(3, layer.inputs)
    trace = layer.run([x], None)
    for sample, image in enumerate(x):
        want = slow_conv(layer, image.reshape(layer.shape)).ravel()
        want = float16.relu(want) if layer.activation is Activation.RELU else want
        assert (trace.outputs[sample] == want).all()


@pytest.mark.parametrize(("reduction", "size", "stride", "padding"), [
    (reduction, size, stride, 0) for reduction in Reduction for size, stride in ((2, 2), (3, 1), (5, 1))] + [
    (Reduction.MAX, 3, 2, 1)])
def test_pooling(reduction, size, stride, padding):
    layer = Pool(name="pool", reduction=reduction, shape=(2, 5, 6), size=size, stride=stride, padding=padding)
    x = halves(2, layer.inputs)
    got = layer.run([x], None).outputs.reshape(2, *layer.made)
    for sample, c, i, j in product(range(2), *map(range, layer.made)):
        image = x[sample].reshape(layer.shape)[c]
        seen = [image[i * stride + di - padding, j * stride + dj - padding] for di in range(size) for dj in range(size)
                if 0 <= i * stride + di - padding < 5 and 0 <= j * stride + dj - padding < 6]
        if reduction is Reduction.MAX:
            want = max(seen, key=lambda bits: float(bits.view(np.float16)))
        else:
            total = np.float16(0)
            for bits in seen:
                total = np.float16(total + bits.view(np.float16))
            want = np.float16(total * np.float16(1 / size**2)).view(np.uint16)
        assert got[sample, c, i, j] == want


def graph() -> Model:
    """A model of two branches that are joined twice."""
    first = conv("first", shape=(4, 6, 6), outputs=4, size=(3, 3), stride=1)
    second = conv("second", shape=(4, 6, 6), outputs=4, size=(3, 3), stride=1)
    pool = Pool(name="pool", reduction=Reduction.MAX, shape=(4, 6, 6), size=2, stride=2)
    inputs = 2 * pool.outputs
    weights = RNG.integers(-7, 8, (3, inputs)).astype(np.int16)
    last = Dense(name="last", weights_format=FOUR, input_format=FOUR, unsigned=False, weights=weights,
                 start=np.zeros(3, np.int64), p=0, scale=halves(3), offset=halves(3))
    layers = (first, second, Add(name="sum", inputs=144, activation=Activation.RELU), pool,
              Pool(name="average", reduction=Reduction.AVERAGE, shape=(4, 6, 6), size=2, stride=2),
              Concat(name="both", sizes=(36, 36)), last)
    return Model(
        name="graph", data="none", preprocessing="none", classes=("a", "b", "c"), layers=layers,
        provenance=Provenance(command="", method="", seed=0, fp32_accuracy=0.0, qat_accuracy=0.0, golden_accuracy=0.0),
        fp32_predictions=np.zeros(1, np.uint8), qat_predictions=np.zeros(1, np.uint8),
        sources={"second": (INPUT,), "sum": ("first", "second"), "average": ("sum",), "both": ("pool", "average")})


def test_a_graph(tmp_path):
    model, x = graph(), halves(5, 144)
    made = [trace.outputs for trace in network.forward(model, x)]
    assert (made[1] == model.layers[1].run([x], None).outputs).all()
    assert (made[2] == float16.relu(float16.add(made[0], made[1]))).all()
    assert (made[5] == np.hstack(made[3:5])).all()
    assert (made[6] == model.layers[6].run([made[5]], None).outputs).all()
    save_model(model, tmp_path / "graph.safetensors")
    again = load_model(tmp_path / "graph.safetensors")
    assert again.sources == model.sources
    assert (network.outputs(again, x) == made[6]).all()


@pytest.mark.parametrize(("sources", "message"), [
    ({"sum": ("first",)}, "layer 'sum' takes 2 tensors, but sources names 1"),
    ({"first": ("second",)}, "layer 'first' takes 'second', which no layer before it makes"),
    ({"none": ("first",)}, "sources names 'none', which is no layer of it"),
    ({"last": ("pool",)}, "layer 'last' takes 72 inputs, but 'pool' before it gives 36")])
def test_wrong_graphs(sources, message):
    model = graph()
    with pytest.raises(ValueError, match=message):
        replace(model, sources={**model.sources, **sources})


def test_wrong_shapes():
    with pytest.raises(ValueError, match="windows of 9 x 9, stride 1, padding 0 have no place in an input of 6 x 6"):
        Pool(name="pool", reduction=Reduction.MAX, shape=(4, 6, 6), size=9, stride=1)
    with pytest.raises(ValueError, match="averages take no padding"):
        Pool(name="pool", reduction=Reduction.AVERAGE, shape=(4, 6, 6), size=2, stride=1, padding=1)
    with pytest.raises(ValueError, match="3 groups do not divide 4 channels and 6 outputs"):
        conv(groups=3)
