"""Convolutions in block floating point against loops over exact fractions."""

from dataclasses import replace
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from concord.golden.lib import float16
from concord.golden.mvm.quantizer import quantize_block, split
from concord.net.arithmetic import integer
from concord.net.arithmetic.native_vectors import adjacent, blocks, flattened, joined, spread
from concord.net.layers.convolution import Along
from concord.net.layers.pooling import identity
from concord.net.lowering.block_lowering import block_average, block_dense
from concord.net.lowering.block_lowering import block_conv as lowered
from concord.net.model import Model, Provenance
from concord.net.model_file import load_model, save_model
from concord.spec.numbers.activation import Activation
from concord.spec.numbers.formats import Format, Rule

RNG = np.random.default_rng(5)
FOUR = Format(bits=4, symmetric=True, e_min=-11, e_max=4)
SIX = Format(bits=6, symmetric=True, e_min=-9, e_max=6)


def halves(*shape, scale=1.0):
    """Random binary16 numbers of many magnitudes."""
    return (RNG.normal(size=shape) * scale * 2.0 ** RNG.integers(-6, 4, shape)).astype(np.float16).view(np.uint16)


def conv(channels=10, outputs=6, size=(3, 2), *, groups=1, block=4, weights=SIX, inputs=FOUR, **options):
    """A convolution with random parameters."""
    return lowered(
        name="conv", weights=halves(outputs, channels // groups, *size).view(np.float16), bias=RNG.normal(size=outputs),
        shape=(channels, 5, 4), groups=groups, block=block, weights_format=weights, input_format=inputs, **options)


def parts(layer):
    """The channels of the parts that each begin a native vector."""
    at = layer.channel_places
    starts = [c for c in range(len(at)) if not c or at[c] != at[c - 1] + 1]
    return [range(*pair) for pair in zip(starts, [*starts[1:], len(at)], strict=True)]


def vectors(layer, image, i, j):
    """The native vectors of the patch at a position of a padded image[channels, rows, columns].

    Each comes with the (channel, row, column) of its elements.
    """
    pixels = list(product(*map(range, layer.size)))
    channels = range(layer.shape[0])
    lists = [[(c, di, dj) for di, dj in pixels for c in channels]]
    if layer.along is Along.CHANNELS:
        lists = [[(c, di, dj) for c in part] for di, dj in pixels for part in parts(layer)]
    for elements in lists:
        for at in range(0, len(elements), layer.block):
            part = elements[at:at + layer.block]
            bits = np.zeros(layer.block, np.uint16)
            (down, across), (row, column) = layer.stride, layer.dilation
            bits[:len(part)] = [image[c, i * down + di * row, j * across + dj * column] for c, di, dj in part]
            yield part, bits


def slow(layer, image, weight):
    """The convolution, position by position; quantises real weights[outputs, channels / groups, rows, columns]."""
    (above, below, left, right), (channels, rows, columns) = layer.padding, layer.shape
    around = np.zeros((channels, above + rows + below, left + columns + right), np.uint16)
    around[:, above:above + rows, left:left + columns] = image
    each, made = channels // layer.groups, len(layer.mantissas) // layer.groups
    result = np.zeros(layer.made, np.uint16)
    for o, i, j in product(*map(range, layer.made)):
        total = Fraction(0)
        for part, bits in vectors(layer, around, i, j):
            own = np.zeros(layer.block, np.uint16)
            for k, (c, di, dj) in enumerate(part):
                if c // each == o // made:
                    own[k] = weight[o, c % each, di, dj].astype(np.float16).view(np.uint16)
            (mw, ew), (mx, ex) = quantize_block(own, layer.weights_format), quantize_block(bits, layer.input_format)
            dot = sum(int(a) * int(b) for a, b in zip(mw, mx, strict=True))
            total += dot * Fraction(2) ** int(ew + ex - layer.weights_format.bits - layer.input_format.bits + 2)
        fraction_bits = total.denominator.bit_length() - 1
        bits = float16.from_integer(np.array([total.numerator], object), fraction_bits)
        bits = float16.add(bits, layer.bias[o:o + 1])
        result[o, i, j] = (float16.relu(bits) if layer.activation is Activation.RELU else bits)[0]
    return result


@pytest.mark.parametrize(("options", "along"), [
    ({"padding": (1,) * 4}, Along.CHANNELS),
    ({"stride": (2, 2), "padding": (1,) * 4, "activation": Activation.RELU}, Along.CHANNELS),
    ({"stride": (1, 2), "padding": (0, 2, 1, 0), "dilation": (2, 1)}, Along.CHANNELS),
    ({"channels": 1, "padding": (2,) * 4}, Along.PATCH), ({"channels": 3, "block": 8, "stride": (2, 2)}, Along.PATCH),
    ({"channels": 1, "along": Along.CHANNELS}, Along.CHANNELS), ({"channels": 5}, Along.CHANNELS),
    ({"channels": 1, "padding": (1, 0, 0, 2), "dilation": (1, 2)}, Along.PATCH),
    ({"places": joined([adjacent(n) for n in (3, 5, 2)], 4)}, Along.CHANNELS),
    ({"channels": 6, "groups": 2, "places": joined([adjacent(n) for n in (2, 4)], 4)}, Along.CHANNELS),
    ({"channels": 2}, Along.CHANNELS), ({"groups": 2}, Along.CHANNELS),
    ({"channels": 6, "groups": 6, "outputs": 12, "padding": (1,) * 4}, Along.CHANNELS),
    ({"channels": 1, "groups": 1, "block": 1}, Along.CHANNELS),
    ({"channels": 9, "groups": 3, "weights": Format(bits=3, rule=Rule.CEIL), "inputs": Format(bits=5)}, Along.CHANNELS),
    ({"weights": Format(bits=16), "inputs": Format(bits=16)}, Along.CHANNELS)])
def test_convolution(options, along, monkeypatch):
    layer = conv(**options)
    assert layer.along is along
    weight = layer.float_operator.weight
    x = halves(2, layer.inputs, scale=3.0)
    x[0, :40] = 0
    x[0, :7] = 0x7C00, 0xFC00, 0x7E00, 0x8000, 0x0001, 0x3C00, 0x7BFF
    got = layer.run([x], None).outputs.reshape(2, *layer.made)
    for sample, image in enumerate(x):
        assert (got[sample] == slow(layer, image.reshape(layer.shape), weight)).all()
    monkeypatch.setattr(integer, "FLOAT64_EXACT", 0)
    assert (layer.run([x], None).outputs.reshape(2, *layer.made) == got).all()


def test_a_convolution_of_whole_pixels_is_a_dense_layer():
    layer = conv(size=(1, 1))
    dense = block_dense(name="dense", weights=layer.float_operator.weight[:, :, 0, 0], bias=layer.float_operator.bias,
                        weights_format=SIX, input_format=FOUR, block=4)
    x = halves(3, layer.inputs)
    pixels = x.reshape(3, 10, 20).transpose(0, 2, 1).reshape(60, 10)
    want = dense.run([pixels], None).outputs.reshape(3, 20, 6).transpose(0, 2, 1)
    assert (layer.run([x], None).outputs.reshape(3, 6, 20) == want).all()


def test_zeros():
    layer = conv(padding=(1,) * 4, activation=Activation.RELU)
    got = layer.run([np.zeros((1, layer.inputs), np.uint16)], None).outputs.reshape(layer.made)
    assert (got == float16.relu(layer.bias)[:, None, None]).all()


@pytest.mark.parametrize("at", [None, joined([adjacent(n) for n in (3, 7)], 4)])
def test_a_dense_layer_behind_an_image_is_a_convolution_of_all_its_pixels(at):
    layer = conv(size=(5, 4), places=at)
    channels = adjacent(10) if at is None else at
    dense = block_dense(
        name="dense", weights=layer.float_operator.weight.reshape(6, -1), bias=layer.float_operator.bias, block=4,
        weights_format=SIX, input_format=FOUR, places=flattened(channels, 20, 4))
    assert dense.exponents.shape == (6, 20 * blocks(channels, 4))
    x = halves(3, layer.inputs)
    assert (dense.run([x], None).outputs == layer.run([x], None).outputs).all()


def test_places():
    assert joined([adjacent(3), adjacent(5), adjacent(2)], 4).tolist() == [0, 1, 2, 4, 5, 6, 7, 8, 12, 13]
    assert flattened(adjacent(5), 2, 4).tolist() == [0, 8, 1, 9, 2, 10, 3, 11, 4, 12]
    assert spread(np.array([[1, 2, 3]]), np.array([0, 2, 3])).tolist() == [[1, 0, 2, 3]]


@pytest.mark.parametrize(("size", "options"), [
    ((2, 2), {}), ((5, 4), {"weights_format": Format(bits=4, e_max=0), "activation": Activation.RELU}),
    ((3, 2), {"stride": (2, 1), "padding": (1, 0, 0, 1), "places": joined([adjacent(n) for n in (1, 6)], 4)}),
    ((2, 2), {"weights_format": Format(bits=4, e_min=2, rule=Rule.CEIL)})])
def test_averages(size, options):
    """The sum of quantised pixels is exact and is rounded once, then it is scaled."""
    options = {"weights_format": SIX, **options}
    layer = block_average(name="mean", shape=(7, 5, 4), size=size, input_format=FOUR, block=4, **options)
    one = 0.5 if options["weights_format"].e_max == 0 else 1.0
    x = halves(2, layer.inputs, scale=2.0**-6)
    image = layer.bordered(x, np.uint16(0))
    mantissas, exponents = quantize_block(split(spread(np.moveaxis(image, 1, -1), layer.places), 4), FOUR)
    values = np.ldexp(mantissas.astype(float), (exponents - 3)[..., None])
    pixels = np.moveaxis(values.reshape(*values.shape[:3], -1)[..., layer.channel_places], -1, 1)
    total = layer.window.seen(pixels).sum((-2, -1)) * one  # exact in float64
    y = total.astype(np.float16) * np.float16(1 / (one * size[0] * size[1]))
    y = np.maximum(y, np.float16(0)) if layer.activation is Activation.RELU else y
    assert (layer.run([x], None).outputs.view(np.float16) == y.reshape(2, -1)).all()


def test_averages_multiply_by_ones():
    layer = block_average(name="mean", shape=(7, 5, 4), size=(2, 2), input_format=FOUR, weights_format=SIX, block=4)
    for change, message in (
            ({"mantissas": layer.mantissas // 2}, "multiplies each of its 7 channels by ones"),
            ({"exponents": layer.exponents + 1}, "blocks along channels, and the exponent 1"),
            ({"scale": None}, r"scale: uint16\[7\] is needed")):
        with pytest.raises(ValueError, match=message):
            replace(layer, **change)
    with pytest.raises(ValueError, match="mantissas of 4 bits with exponents from 4 hold no 1"):
        identity(Format(bits=4, e_min=4))


@pytest.mark.parametrize("options", [
    {"channels": 1}, {"groups": 2}, {"places": joined([adjacent(n) for n in (3, 7)], 4)}])
def test_files(options, tmp_path):
    layer = conv(**options)
    nothing = Provenance(command="", method="", seed=0, fp32_accuracy=0.0, quantized_accuracy=0.0, golden_accuracy=0.0)
    model = Model(name="one", data="none", preprocessing="none", classes=("a",), layers=(layer,), provenance=nothing,
                  fp32_predictions=np.zeros(1, np.uint8), quantized_predictions=np.zeros(1, np.uint8))
    save_model(model, tmp_path / "one.safetensors")
    again = load_model(tmp_path / "one.safetensors").layers[0]
    assert (again.along, again.shape, again.block) == (layer.along, layer.shape, 4)
    x = halves(2, layer.inputs)
    assert (again.run([x], None).outputs == layer.run([x], None).outputs).all()


@pytest.mark.parametrize(("change", "message"), [
    ({"groups": 4}, "4 groups do not divide 10 channels and 6 outputs"),
    ({"along": Along.PATCH}, r"exponents: int8\[6, 1, 1, 15\] is needed, not int8\[6, 3, 2, 3\]"),
    ({"block": 5}, r"exponents: int8\[6, 3, 2, 2\] is needed"),
    ({"shape": (10, 2, 4)}, r"windows of 3 x 2 with padding \[0, 0, 0, 0\] do not fit into an input of 2 x 4"),
    ({"places": np.zeros(10, np.int32)}, "places: each column needs a place of its own"),
    ({"places": adjacent(9)}, r"places: int32\[10\] is needed, not int32\[9\]"),
    ({"places": adjacent(10) + np.int32(4)}, r"exponents: int8\[6, 3, 2, 4\] is needed, not int8\[6, 3, 2, 3\]"),
    ({"weights_format": FOUR}, "outside -7..7, the range of 4 bits"),
    ({"mantissas": np.zeros((6, 10), np.int16)}, r"mantissas: \[outputs, channels, rows, columns\] is needed")])
def test_wrong_fields(change, message):
    with pytest.raises(ValueError, match=message):
        replace(conv(), **change)


def test_wrong_groups():
    with pytest.raises(ValueError, match="blocks along a patch hold all channels, but it has 2 groups"):
        replace(conv(groups=2), along=Along.PATCH)
    with pytest.raises(ValueError, match="channels have places of their own, which a patch has not"):
        replace(conv(channels=1), places=adjacent(1))
    with pytest.raises(ValueError, match=r"kernels \(6, 5, 3, 2\) in 1 groups do not see 10 channels"):
        lowered(name="conv", weights=np.zeros((6, 5, 3, 2)), bias=np.zeros(6), shape=(10, 5, 4), weights_format=SIX,
                input_format=FOUR, block=4)
