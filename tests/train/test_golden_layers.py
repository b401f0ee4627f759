"""Every layer of training, forward and backward: PyTorch has golden's bits, with all kernels, in one table."""

import numpy as np
import pytest
from concord.golden.lazy import tensor_network
from concord.golden.lazy.lazy_update import Parameters
from concord.golden.lazy.tensor import TrainingTensor
from concord.golden.lazy.tensor_layers import whole
from concord.golden.lazy.tensor_network import AveragePool, Conv, Dense, MaxPool, Relu, Residual
from concord.golden.lazy.tensor_training import Rates
from concord.spec.numbers.lazy import E_MAX, E_MIN, LazyFormat

torch = pytest.importorskip("torch", reason="PyTorch is in the dependency group `train`")
tensor = pytest.importorskip("concord.train.bfp.tensor")
tensor_layers = pytest.importorskip("concord.train.bfp.tensor_layers")
Lazy = pytest.importorskip("concord.train.bfp.parameters").Lazy
Floating = pytest.importorskip("concord.train.bfp.exact_products").Floating
onednn = pytest.importorskip("concord.train.bfp.onednn_products")

EIGHT_BITS = pytest.mark.skipif(not onednn.available(), reason="this CPU has no exact 8-bit kernels")
KERNELS = [pytest.param(Floating(), id="floating"), pytest.param(onednn.Integer8(), id="integer8", marks=EIGHT_BITS)]

IMAGE = 3, 8, 7
#: Layers, and the shape of one sample.
LAYERS = {
    "dense": ((Dense(20, 7),), (20,)),
    "dense of images": ((Dense(168, 5),), IMAGE),
    "convolution": ((Conv(3, 5, 3),), IMAGE),
    "one channel": ((Conv(1, 4, 3, 1, 1),), (1, 9, 9)),
    "pixels": ((Conv(3, 5, 1),), IMAGE),
    "padding": ((Conv(3, 5, 3, 1, 1),), IMAGE),
    "padding as wide as the kernel": ((Conv(3, 2, 2, 1, 2),), IMAGE),
    "stride": ((Conv(3, 5, 3, 2, 1),), IMAGE),
    "stride that leaves a row out": ((Conv(3, 5, 3, 2),), IMAGE),
    "stride above the kernel": ((Conv(3, 5, 1, 3),), IMAGE),
    "stride above the kernel, padding": ((Conv(3, 4, 2, 3, 1),), IMAGE),
    "relu": ((Relu(),), IMAGE),
    "maximum": ((MaxPool(2, 2),), IMAGE),
    "maximum with gaps": ((MaxPool(2, 3),), IMAGE),
    "maximum with overlap": ((MaxPool(3, 2),), IMAGE),
    "maximum of all neighbours": ((MaxPool(2, 1),), IMAGE),
    "mean": ((AveragePool(2, 2),), IMAGE),
    "mean of nine": ((AveragePool(3, 3),), IMAGE),
    "mean with overlap": ((AveragePool(3, 1),), IMAGE),
    "mean with gaps": ((AveragePool(2, 3),), IMAGE),
    "sum with the input": ((Residual((Conv(3, 3, 3, 1, 1),)),), IMAGE),
    "sum of two ways": ((Residual((Conv(3, 4, 3, 2, 1), Relu()), (Conv(3, 4, 1, 2),)),), IMAGE),
    "sum of relus and means": ((Residual((Relu(), Conv(3, 3, 1)), (AveragePool(1, 1),)),), IMAGE),
    "several layers": ((Conv(3, 4, 3, 1, 1), MaxPool(2, 2), Relu(), Dense(48, 6), Relu()), IMAGE),
}
#: Exponents of the input, weights, biases and the gradient: alike, far apart, and at the ends of their range.
EXPONENTS = [(1, -1, -2, -9), (0, 0, -30, 4), (3, -2, 16, 0), (-10, -20, 3, -60), (0, 30, -3, 30), (0, -30, -60, -20),
             (E_MIN, -3, 0, E_MIN), (-70, -60, -118, -80), (90, 60, 30, 70), (E_MAX, E_MAX, E_MAX, E_MAX)]
BATCHES = 6, 1  #: The last batch is smaller.


def numbers(rng, shape, bits: int) -> np.ndarray:
    """Mantissas: any, small ones, ties, powers of two, their ends alone, or zeros."""
    low, high = -(1 << bits - 1), (1 << bits - 1) - 1
    any_of = rng.integers(low, high + 1, shape)
    kinds = [any_of, any_of >> rng.integers(bits), any_of >> 3 << 3 | 4, np.sign(any_of) << rng.integers(bits - 1),
             np.where(any_of < 0, low, high), 0 * any_of]
    return kinds[rng.choice(len(kinds), p=[0.4, 0.2, 0.1, 0.1, 0.1, 0.1])]


def equal(got, want: TrainingTensor, what):
    """Assert that a tensor of PyTorch is one of golden."""
    assert (got.lsb, got.bits) == (want.lsb.item(), want.bits), what
    assert np.array_equal(got.integers(), want.mantissas), what


@pytest.mark.parametrize("kernels", KERNELS)
@pytest.mark.parametrize("name", LAYERS)
def test_layers_are_goldens(name, kernels):
    torch.set_num_threads(1)
    layers, sample = LAYERS[name]
    rng = np.random.default_rng(len(name))
    for exponents in EXPONENTS:
        begun = {part: Parameters(numbers(rng, shape, 8), np.zeros(shape, np.int64), exponents[1 + (len(shape) == 1)],
                                  LazyFormat()) for part, shape in tensor_network.shapes(layers).items()}
        kept = {part: Lazy(parameters, Rates(learning_rate=1)) for part, parameters in begun.items()}
        built = tensor_layers.build(layers, kept, kernels, wanted=True)
        for count in BATCHES:
            what = name, exponents, count
            x, found = whole(numbers(rng, (count, *sample), 8), exponents[0], 8), {}
            y, tape = tensor_network.branch(layers, begun, x)
            got = tensor.exact(x, torch.empty(0))
            for layer in built:
                got = layer.forward(got)
            equal(got, y, what)
            g = whole(numbers(rng, y.mantissas.shape, 16), exponents[3], 16)
            sent = tensor_network.branch_back(begun, tape, g, found, wanted=True)
            equal(tensor_layers.backward(built, tensor.exact(g, torch.empty(0))), sent, what)
            sums = tensor_layers.gradients(built)
            assert sums.keys() == found.keys()
            for part, want in found.items():
                equal(tensor.parameter_gradient(sums[part]), want, (*what, part))
