"""Sums of products, by 8-bit kernels and in floating point, against int64."""

import numpy as np
import pytest
from concord.golden.lazy.tensor_layers import spread, windows

torch = pytest.importorskip("torch", reason="PyTorch is in the dependency group `train`")
onednn = pytest.importorskip("concord.train.bfp.onednn_products")
Floating = pytest.importorskip("concord.train.bfp.exact_products").Floating

EIGHT_BITS = pytest.mark.skipif(not onednn.available(), reason="this CPU has no exact 8-bit kernels")
KERNELS = [pytest.param(Floating(), id="floating"), pytest.param(onednn.Integer8(), id="integer8", marks=EIGHT_BITS)]


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    torch.set_num_threads(1)


def tensors(rng, shape, bits, lowest=None):
    """Random integers, among them both ends of their range."""
    low, high = -(1 << bits - 1) if lowest is None else lowest, (1 << bits - 1) - 1
    values = rng.integers(low, high + 1, shape)
    values.ravel()[:2] = low, high
    return values


def prepared(kernels, g: np.ndarray, bits: int):
    """A gradient in the form that training passes to the kernels."""
    return kernels.prepare(torch.from_numpy(g).to(torch.int16 if bits <= 16 else torch.float64), int(g.max()))


def equal(got, want):
    assert np.array_equal(got.double().numpy(), want)


#: samples, inputs, rows, outputs, size, stride, padding
SHAPES = [(3, 1, 9, 4, 3, 1, 1), (5, 16, 8, 7, 3, 2, 1), (4, 3, 7, 5, 5, 1, 2), (4, 8, 8, 8, 1, 2, 0),
          (3, 2, 9, 4, 3, 3, 0), (30, 4, 32, 5, 3, 1, 0), (2, 5, 6, 3, 1, 1, 1)]


@pytest.mark.parametrize("kernels", KERNELS)
@pytest.mark.parametrize("shape", SHAPES)
def test_convolutions(shape, kernels):
    samples, inputs, rows, outputs, size, stride, padding = shape
    rng = np.random.default_rng(0)
    w, bias = tensors(rng, (outputs, inputs, size, size), 8), rng.integers(-9999, 9999, outputs)
    weights = torch.from_numpy(w).float()
    for lowest in (0, -128):
        x = tensors(rng, (samples, inputs, rows, rows), 8, lowest)
        seen = windows(x, (size, size), stride, padding)
        y, kept = kernels.convolve(torch.from_numpy(x).to(torch.int8), weights, torch.from_numpy(bias).double(), stride,
                                   padding)
        equal(y, np.einsum("nchwij,ocij->nohw", seen, w, optimize=True) + bias[:, None, None])
        for bits in (4, 8, 15, 16, 24, 32):
            g = tensors(rng, tuple(y.shape), bits)
            gradient = prepared(kernels, g, bits)
            weight, sums = kernels.convolve_weight(gradient, kept, size, stride, padding)
            equal(weight, np.einsum("nohw,nchwij->ocij", g, seen, optimize=True))
            equal(sums, g.sum((0, 2, 3)))
            if bits <= 16:
                parts = np.einsum("nohw,ocij->nchwij", g, w, optimize=True)
                equal(kernels.convolve_input(gradient, weights, x.shape, stride, padding),
                      spread(parts, x.shape, stride, padding))


@pytest.mark.parametrize("kernels", KERNELS)
def test_dense_layers(kernels):
    rng = np.random.default_rng(1)
    for samples, inputs, outputs in ((13, 50, 11), (1, 3000, 2), (64, 7, 1)):
        x, w = tensors(rng, (samples, inputs), 8), tensors(rng, (outputs, inputs), 8)
        bias = rng.integers(-99, 99, outputs)
        weights = torch.from_numpy(w).float()
        y, kept = kernels.dense(torch.from_numpy(x).to(torch.int8), weights, torch.from_numpy(bias).double())
        equal(y, x @ w.T + bias)
        for bits in (8, 16, 32):
            g = tensors(rng, (samples, outputs), bits)
            gradient = prepared(kernels, g, bits)
            weight, sums = kernels.dense_weight(gradient, kept)
            equal(weight, g.T @ x)
            equal(sums, g.sum(0))
            if bits <= 16:
                equal(kernels.dense_input(gradient, weights), g @ w)


@pytest.mark.parametrize("kernels", KERNELS)
def test_sums_too_wide_for_the_quick_kernels(kernels):
    """Every product is at the end of its range."""
    x, w = torch.full((1, 600, 3, 3), -128, dtype=torch.int8), torch.full((600, 600, 3, 3), -128.0)
    y, _ = kernels.convolve(x, w, torch.zeros(600).double(), 1, 0)
    assert y.unique().tolist() == [128 * 128 * 5400]
    g = torch.full((1, 600, 1, 1), -(1 << 15), dtype=torch.int16)
    got = kernels.convolve_input(kernels.prepare(g, (1 << 15) - 1), w, x.shape, 1, 0)
    assert got.unique().tolist() == [(128 << 15) * 600]
