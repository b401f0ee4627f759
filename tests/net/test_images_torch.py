"""Image layers of golden against PyTorch in float64, on numbers that every format holds exactly."""

import numpy as np
import pytest
from concord.net.layers.convolution import Along
from concord.net.layers.pooling import MaxPool
from concord.net.lowering import block_lowering, image_lowering, lowering
from concord.net.ops.pooling import MaxPooling
from concord.spec.numbers.formats import Format

torch = pytest.importorskip("torch", reason="PyTorch is in the dependency group `train`")
from torch.nn import functional

RNG = np.random.default_rng(17)
EIGHT = Format(bits=8, symmetric=True, e_min=-11, e_max=4)
BLOCK = 16
#: Channels, rows and columns of an image; outputs and size of the kernels; geometry.
CASES = {
    "plain": ((6, 7, 6), 5, (3, 3), {}),
    "padding": ((6, 7, 6), 5, (3, 3), {"padding": (1, 1, 1, 1)}),
    "padding on one side": ((6, 8, 8), 5, (3, 3), {"padding": (0, 1, 0, 1), "stride": (2, 2)}),
    "padding of every size": ((4, 5, 6), 5, (2, 3), {"padding": (3, 0, 2, 1)}),
    "stride": ((6, 9, 8), 5, (3, 3), {"stride": (2, 2), "padding": (1, 1, 1, 1)}),
    "strides": ((6, 9, 8), 5, (1, 1), {"stride": (3, 2)}),
    "kernel": ((1, 49, 10), 3, (10, 4), {"stride": (2, 2), "padding": (4, 5, 1, 1)}),
    "groups": ((6, 7, 6), 4, (3, 2), {"groups": 2, "padding": (1, 1, 1, 1)}),
    "depthwise": ((17, 5, 4), 17, (3, 3), {"groups": 17, "padding": (1, 1, 1, 1)}),
    "two outputs of each channel": ((5, 5, 4), 10, (3, 3), {"groups": 5}),
    "dilation": ((6, 9, 8), 5, (3, 3), {"dilation": (2, 2), "padding": (2, 2, 2, 2)}),
    "dilations": ((6, 9, 8), 5, (3, 2), {"dilation": (3, 2), "stride": (1, 2)}),
    "line": ((6, 1, 20), 5, (1, 5), {"stride": (1, 2), "padding": (0, 0, 2, 2), "dilation": (1, 2)}),
    "window larger than the image": ((6, 2, 3), 5, (5, 5), {"padding": (2, 2, 2, 2)}),
    "window of the whole image": ((6, 4, 5), 5, (4, 5), {}),
    "one channel": ((1, 6, 6), 5, (3, 3), {"padding": (1, 1, 1, 1)}),
    "one more than a block": ((BLOCK + 1, 6, 5), 5, (3, 3), {"padding": (1, 1, 1, 1)}),
}


def patterns(x) -> np.ndarray:
    """Bit patterns of numbers that binary16 holds exactly."""
    halves = np.asarray(x).astype(np.float16)
    assert np.array_equal(halves.astype(np.float64), x)
    return halves.view(np.uint16)


def images(shape) -> np.ndarray:
    """float64[samples, *shape]: small integers; one image is 0, and one only where padding touches it."""
    x = RNG.integers(-5, 6, (4, *shape)).astype(np.float64)
    x[1] = 0
    x[2, :, [0, -1]] = 0
    x[2, :, :, [0, -1]] = 0
    return x


def wanted(x, weights, bias, *, stride=(1, 1), padding=(0, 0, 0, 0), dilation=(1, 1), groups=1):
    """The convolution in PyTorch, in float64."""
    above, below, left, right = padding
    x = functional.pad(torch.from_numpy(x), (left, right, above, below))
    return functional.conv2d(x, torch.from_numpy(weights), torch.from_numpy(bias), stride, 0, dilation, groups).numpy()


def parameters(shape, outputs, size, groups=1):
    weights = RNG.integers(-2, 3, (outputs, shape[0] // groups, *size)).astype(np.float64)
    return weights, RNG.integers(-9, 10, outputs).astype(np.float64)


def equal(layer, x, want):
    """Assert that a layer gives the results of PyTorch."""
    got = layer.run([patterns(x.reshape(len(x), -1))], None).outputs
    assert layer.made == want.shape[1:]
    assert np.array_equal(got.view(np.float16).astype(np.float64), want.reshape(len(x), -1))


@pytest.mark.parametrize("offset", [0.0, -4.0])
@pytest.mark.parametrize("in_steps", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_integer_convolutions(case, in_steps, offset):
    """Signed codes, or unsigned ones whose code of a real zero is not 0."""
    shape, outputs, size, geometry = CASES[case]
    weights, bias = parameters(shape, outputs, size, geometry.get("groups", 1))
    x = images(shape) / 2
    patch = lowering.dense(
        name="conv", codes=weights.reshape(outputs, -1), gain=1.0, constant=bias, weights_format=EIGHT,
        input_format=EIGHT, unsigned=offset != 0, s_in=0.5, m_in=offset, quantize_input=not in_steps)
    layer = image_lowering.convolution(patch, shape=shape, kernels=weights.shape, **geometry)
    assert (layer.border_codes + EIGHT.zero * layer.unsigned == -offset / 0.5).all()
    entering = (x - offset) / 0.5 if in_steps else x
    equal(layer, entering, wanted(x, weights, bias, **geometry))


@pytest.mark.parametrize("case", CASES)
def test_block_convolutions(case):
    shape, outputs, size, geometry = CASES[case]
    weights, bias = parameters(shape, outputs, size, geometry.get("groups", 1))
    x = images(shape)
    alongs = [Along.CHANNELS] + [Along.PATCH] * (geometry.get("groups", 1) == 1)
    for along in alongs:
        layer = block_lowering.block_conv(
            name="conv", weights=weights, bias=bias, shape=shape, weights_format=EIGHT, input_format=EIGHT, block=BLOCK,
            along=along, **geometry)
        equal(layer, x, wanted(x, weights, bias, **geometry))


@pytest.mark.parametrize(("shape", "size", "geometry"), [
    ((5, 6, 8), (2, 4), {"stride": (2, 4)}), ((17, 4, 4), (4, 4), {}), ((1, 1, 16), (1, 8), {"stride": (1, 4)}),
    ((5, 5, 5), (2, 2), {"padding": (1, 0, 1, 1)}), ((3, 6, 5), (2, 1), {"stride": (1, 2)}),
    ((3, 2, 2), (4, 4), {"padding": (1, 1, 1, 1)})])
def test_averages(shape, size, geometry):
    x = 4.0 * images(shape)
    above, below, left, right = geometry.get("padding", (0, 0, 0, 0))
    padded = functional.pad(torch.from_numpy(x), (left, right, above, below))
    want = functional.avg_pool2d(padded, size, geometry.get("stride", (1, 1))).numpy()
    for unsigned, offset in ((False, 0.0), (True, -32.0)):
        equal(image_lowering.average(
            name="mean", shape=shape, size=size, input_format=EIGHT, unsigned=unsigned, s_in=1.0, m_in=offset,
            quantize_input=True, **geometry), x, want)
    equal(block_lowering.block_average(
        name="mean", shape=shape, size=size, weights_format=EIGHT, input_format=EIGHT, block=BLOCK, **geometry), x / 4,
        want / 4)


@pytest.mark.parametrize(("size", "geometry"), [
    ((2, 2), {"stride": (2, 2)}), ((3, 2), {"stride": (1, 2), "padding": (1, 0, 0, 1)}),
    ((2, 3), {"stride": (2, 1), "dilation": (3, 2)}), ((7, 9), {"stride": (1, 1), "padding": (1, 0, 0, 1)})])
def test_maxima(size, geometry):
    x = images((3, 6, 8)) - 6
    above, below, left, right = geometry.get("padding", (0, 0, 0, 0))
    padded = functional.pad(torch.from_numpy(x), (left, right, above, below), value=-np.inf)
    want = functional.max_pool2d(padded, size, geometry["stride"], 0, geometry.get("dilation", 1)).numpy()
    layer = MaxPool(name="pool", shape=(3, 6, 8), size=size, **geometry)
    equal(layer, x, want)
    assert np.array_equal(MaxPooling(window=layer.window).real(x, None), want)


def test_a_window_that_does_not_fit_is_refused():
    weights, bias = parameters((2, 3, 3), 4, (3, 3))
    patch = lowering.dense(
        name="conv", codes=weights.reshape(4, -1), gain=1.0, constant=bias, weights_format=EIGHT, input_format=EIGHT,
        unsigned=False, s_in=1.0)
    message = r"layer 'conv': windows of 5 x 5 with padding \[0, 0, 1, 0\] do not fit into an input of 3 x 3"
    geometry = {"shape": (2, 3, 3), "dilation": (2, 2), "padding": (0, 0, 1, 0)}
    with pytest.raises(ValueError, match=message):
        image_lowering.convolution(patch, kernels=weights.shape, **geometry)
    with pytest.raises(ValueError, match=message):
        block_lowering.block_conv(name="conv", weights=weights, bias=bias, weights_format=EIGHT, input_format=EIGHT,
                                  block=BLOCK, **geometry)
