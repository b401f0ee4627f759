"""Image layers in golden arithmetic, against loops."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from concord.golden.lib import float16
from concord.golden.mvm.quantizer import quantize_integer
from concord.net import network
from concord.net.layers.convolution import Conv
from concord.net.layers.dense import Dense
from concord.net.layers.joins import Add, Concat
from concord.net.layers.pooling import MaxPool
from concord.net.lowering import image_lowering, lowering
from concord.net.model import INPUT, Model, Provenance
from concord.net.model_file import load_model, save_model
from concord.spec.numbers.activation import Activation
from concord.spec.numbers.formats import Format

FOUR = Format(bits=4, symmetric=True)
RNG = np.random.default_rng(7)


def halves(*shape, scale=3.0):
    return (RNG.normal(size=shape) * scale).astype(np.float16).view(np.uint16)


def conv(name="conv", *, shape=(4, 6, 5), outputs=6, size=(3, 2), stride=(2, 2), padding=(1, 1, 1, 1), dilation=(1, 1),
         groups=2, unsigned=True, real=True, activation=Activation.NONE):
    """A convolution with random parameters."""
    weights = RNG.integers(-7, 8, (outputs, shape[0] // groups, *size)).astype(np.int16)
    start = lowering.start_values(weights.reshape(outputs, -1), FOUR, unsigned)
    return Conv(
        name=name, weights_format=FOUR, input_format=FOUR, unsigned=unsigned, shape=shape, stride=stride,
        padding=padding, dilation=dilation, groups=groups, border=0 if real else int(halves(1)[0]), weights=weights,
        start=start, p=1, scale=halves(outputs), offset=halves(outputs), quant_scale=halves(shape[0]) if real else None,
        quant_offset=halves(shape[0]) if real else None, activation=activation)


def slow_conv(layer: Conv, image):
    """The convolution of an image uint16[channels, rows, columns], position by position."""
    (channels, rows, columns), (above, below, left, right) = layer.shape, layer.padding
    around = np.full((channels, above + rows + below, left + columns + right), layer.border, np.uint16)
    around[:, above:above + rows, left:left + columns] = image
    (down, across), (row, column) = layer.stride, layer.dilation
    result = np.zeros(layer.made, np.uint16)
    each, made = channels // layer.groups, len(layer.weights) // layer.groups
    for o, i, j in product(*map(range, layer.made)):
        total = int(layer.start[o])
        for c, di, dj in product(*map(range, layer.weights.shape[1:])):
            channel = o // made * each + c
            x = around[channel, i * down + di * row, j * across + dj * column]
            if layer.quant_scale is not None:
                x = float16.add(float16.mul(x, layer.quant_scale[channel]), layer.quant_offset[channel])
            code = quantize_integer(np.array([x]), layer.input_format, unsigned=layer.unsigned)[0]
            total += int(layer.weights[o, c, di, dj]) * int(code)
        a = float16.from_integer(np.array([total]), layer.p)[0]
        result[o, i, j] = float16.add(float16.mul(a, layer.scale[o]), layer.offset[o])
    return result


@pytest.mark.parametrize("options", [
    {}, {"groups": 1, "stride": (1, 1)}, {"groups": 4, "outputs": 8, "size": (3, 3), "padding": (2,) * 4},
    {"unsigned": False}, {"real": False}, {"padding": (0,) * 4, "activation": Activation.RELU},
    {"stride": (2, 1), "padding": (0, 1, 2, 0), "dilation": (2, 3)}])
def test_convolution(options):
    layer = conv(**options)
    x = halves(3, layer.inputs)
    trace = layer.run([x], None)
    for sample, image in enumerate(x):
        want = slow_conv(layer, image.reshape(layer.shape)).ravel()
        want = float16.relu(want) if layer.activation is Activation.RELU else want
        assert (trace.outputs[sample] == want).all()


def pool(**options):
    return MaxPool(**{"name": "pool", "shape": (2, 5, 6), "size": (2, 2), "stride": (2, 2), **options})


def pixels(layer, image, c, i, j):
    """The pixels of image[channels, rows, columns] that a window at (i, j) sees, without padding."""
    for di, dj in product(*map(range, layer.window.size)):
        y, x = (at * stride + step * apart - padding for at, step, stride, apart, padding in zip(
            (i, j), (di, dj), layer.stride, layer.dilation, layer.padding[::2], strict=True))
        if 0 <= y < layer.shape[1] and 0 <= x < layer.shape[2]:
            yield image[c, y, x]


@pytest.mark.parametrize("options", [
    {}, {"size": (3, 3), "stride": (1, 1)}, {"size": (5, 2)}, {"size": (3, 3), "padding": (1, 1, 1, 1)},
    {"size": (3, 2), "stride": (1, 3), "padding": (0, 2, 1, 0)}, {"dilation": (2, 3), "padding": (1, 0, 0, 1)}])
def test_maxima(options):
    layer = pool(**options)
    x = halves(2, layer.inputs)
    got = layer.run([x], None).outputs.reshape(2, *layer.made)
    for sample, c, i, j in product(range(2), *map(range, layer.made)):
        seen = pixels(layer, x[sample].reshape(layer.shape), c, i, j)
        assert got[sample, c, i, j] == max(seen, key=lambda bits: float(bits.view(np.float16)))


@pytest.mark.parametrize("unsigned", [False, True])
@pytest.mark.parametrize(("size", "options"), [
    ((2, 2), {}), ((5, 6), {"activation": Activation.RELU}), ((3, 2), {"stride": (2, 1), "padding": (1, 0, 0, 1)})])
def test_averages(unsigned, size, options):
    """The sum of codes is exact and is rounded once, then it is scaled."""
    layer = image_lowering.average(
        name="mean", shape=(3, 5, 6), size=size, input_format=FOUR, unsigned=unsigned, s_in=0.3,
        m_in=-0.5 * unsigned, s_out=0.25, m_out=0.125, quantize_input=True, **options)
    x = halves(2, layer.inputs, scale=1.0)
    got, count = layer.run([x], None).outputs.reshape(2, *layer.made), size[0] * size[1]

    def code(bits):
        return int(layer.codes(np.full((1, 90), bits))[0, 0, 2, 2]) + FOUR.zero * unsigned

    for sample, c, i, j in product(range(2), *map(range, layer.made)):
        seen = [code(bits) for bits in pixels(layer, x[sample].reshape(layer.shape), c, i, j)]
        total = sum(seen) + code(np.uint16(0)) * (count - len(seen))
        a = np.float16(total * 2.0**-layer.p)
        y = np.float16(a * np.float16(0.3 / 0.25 / count * 2.0**layer.p)) + np.float16((-0.5 * unsigned - 0.125) / 0.25)
        want = max(y, np.float16(0)) if layer.activation is Activation.RELU else y
        assert got[sample, c, i, j].view(np.float16) == want
    assert layer.border_codes.tolist() == [code(np.uint16(0)) - FOUR.zero * unsigned] * 3


def graph() -> Model:
    """A model of two branches that are joined twice."""
    image = {"shape": (4, 6, 6)}
    first, second = (conv(name, **image, outputs=4, size=(3, 3), stride=(1, 1)) for name in ("first", "second"))
    largest = pool(**image)
    inputs = 2 * largest.outputs
    weights = RNG.integers(-7, 8, (3, inputs)).astype(np.int16)
    last = Dense(name="last", weights_format=FOUR, input_format=FOUR, unsigned=False, weights=weights,
                 start=np.zeros(3, np.int64), p=0, scale=halves(3), offset=halves(3))
    layers = (first, second, Add(name="sum", inputs=144, activation=Activation.RELU), largest,
              image_lowering.average(name="average", **image, size=(2, 2), stride=(2, 2), input_format=FOUR,
                                     unsigned=True, s_in=0.5, quantize_input=True),
              Concat(name="both", sizes=(36, 36)), last)
    return Model(
        name="graph", data="none", preprocessing="none", classes=("a", "b", "c"), layers=layers,
        provenance=Provenance(command="", method="", seed=0, fp32_accuracy=0.0, quantized_accuracy=0.0,
                              golden_accuracy=0.0),
        fp32_predictions=np.zeros(1, np.uint8), quantized_predictions=np.zeros(1, np.uint8),
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
    for options, message in (
        ({"size": (9, 9)}, r"windows of 9 x 9 with padding \[0, 0, 0, 0\] do not fit into an input of 5 x 6"),
        ({"dilation": (1, 6)}, "windows of 2 x 7 with padding"),
        ({"stride": (1, 0)}, r"layer 'pool', stride: 2 numbers from 1 are needed, not \[1, 0\]"),
        ({"dilation": (1, 1, 1)}, r"dilation: 2 numbers from 1 are needed, not \[1, 1, 1\]"),
        ({"padding": (1, -1, 0, 0)}, r"padding: 4 numbers from 0 are needed, not \[1, -1, 0, 0\]"),
        ({"padding": (0, 0, 2, 0)}, "a window of 2 x 2 holds nothing but padding")):
        with pytest.raises(ValueError, match=message):
            pool(**options)
    with pytest.raises(ValueError, match="3 groups do not divide 4 channels and 6 outputs"):
        conv(groups=3)


def test_averages_multiply_by_ones():
    layer = image_lowering.average(
        name="mean", shape=(2, 3, 3), size=(3, 3), input_format=FOUR, unsigned=False, s_in=1.0)
    for change in ({"weights": 2 * layer.weights}, {"groups": 1, "weights": np.ones((2, 2, 3, 3), np.int16)}):
        with pytest.raises(ValueError, match="'mean': an average multiplies each of its 2 channels by ones|outside"):
            replace(layer, **change)
