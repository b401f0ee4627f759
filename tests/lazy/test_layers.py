"""Golden layers of block floating point training against loops over fractions, and against real arithmetic."""

from fractions import Fraction
from itertools import product
from math import floor

import numpy as np
import pytest
from concord.golden.lazy import tensor_layers, tensor_network, tensor_training
from concord.golden.lazy.lazy_update import initial_parameters
from concord.golden.lazy.tensor import TrainingTensor, to_training_tensor
from concord.golden.lazy.tensor_layers import whole
from concord.golden.lazy.tensor_network import AveragePool, Conv, Dense, MaxPool, Relu, Residual
from concord.spec.numbers.lazy import E_MAX, E_MIN, MOST_TERMS, LazyFormat


def half_away(x: Fraction) -> int:
    return floor(x + Fraction(1, 2)) if x >= 0 else -floor(-x + Fraction(1, 2))


def real(tensor: TrainingTensor) -> np.ndarray:
    """The values of a tensor as an array of fractions."""
    scale = Fraction(2) ** int(tensor.lsb.item())
    return np.array([int(m) * scale for m in tensor.mantissas.ravel()], object).reshape(tensor.mantissas.shape)


def requantized(values: np.ndarray, bits: int, least: int = E_MIN) -> TrainingTensor:
    """The definition of requantisation, in fractions, under an exponent of `least` or more."""
    largest = max((abs(v) for v in values.ravel()), default=0)
    exponent = least
    if largest:
        while Fraction(2) ** exponent < largest and exponent < E_MAX:
            exponent += 1
    scale = Fraction(2) ** (bits - 1 - exponent)
    low, high = -(1 << bits - 1), (1 << bits - 1) - 1
    mantissas = [min(max(half_away(v * scale), low), high) for v in values.ravel()]
    return whole(np.array(mantissas, np.int64).reshape(values.shape), exponent, bits)


def equal(got: TrainingTensor, want: TrainingTensor):
    assert got.bits == want.bits
    assert got.exponent.item() == want.exponent.item()
    assert np.array_equal(got.mantissas, want.mantissas)


def random_block(rng, shape, bits, exponent=None):
    exponent = int(rng.integers(-20, 20)) if exponent is None else exponent
    spread = rng.integers(0, bits // 2)
    return whole(rng.integers(-(1 << bits - 1), 1 << bits - 1, shape) >> spread, exponent, bits)


def slow_convolution(x, w, g, stride, padding):
    """The sums of a convolution and of both its gradients, product by product."""
    samples, channels, rows, columns = x.shape
    outputs, _, height, width = w.shape
    across = range((rows + 2 * padding - height) // stride + 1), range((columns + 2 * padding - width) // stride + 1)
    y = np.full((samples, outputs, len(across[0]), len(across[1])), Fraction(0))
    gx, gw = np.full(x.shape, Fraction(0)), np.full(w.shape, Fraction(0))
    indices = product(range(samples), range(outputs), *across, range(channels), range(height), range(width))
    for n, o, p, q, c, i, j in indices:
        r, s = p * stride + i - padding, q * stride + j - padding
        if 0 <= r < rows and 0 <= s < columns:
            y[n, o, p, q] += x[n, c, r, s] * w[o, c, i, j]
            if g is not None:
                gx[n, c, r, s] += g[n, o, p, q] * w[o, c, i, j]
                gw[o, c, i, j] += g[n, o, p, q] * x[n, c, r, s]
    return y, gx, gw


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("stride", "padding"), [(1, 0), (1, 1), (2, 1), (3, 0)])
def test_convolution(stride, padding, seed):
    rng = np.random.default_rng(seed)
    x, w = random_block(rng, (2, 3, 6, 5), 8), random_block(rng, (4, 3, 3, 3), 8)
    b = random_block(rng, (4,), 8, int(x.exponent.item() + w.exponent.item() + rng.integers(-25, 12)))
    sums, _, _ = slow_convolution(real(x), real(w), None, stride, padding)
    lsb = Fraction(2) ** int(x.lsb.item() + w.lsb.item())
    bias = np.array([half_away(v / lsb) * lsb for v in real(b)], object)
    for bits in 8, 32:
        got = tensor_layers.convolve(x, w, b, stride, padding, bits)
        equal(got, requantized(sums + bias[:, None, None], bits))
    g = random_block(rng, got.mantissas.shape, 16)
    _, gx, gw = slow_convolution(real(x), real(w), real(g), stride, padding)
    back = tensor_layers.convolve_back(x, w, g, stride, padding)
    equal(back.inputs, requantized(gx, 16))
    equal(back.weight, requantized(gw, 32, int(g.lsb.item() + x.lsb.item()) + 31))
    equal(back.bias, requantized(real(g).sum((0, 2, 3)), 32, int(g.lsb.item()) + 31))


@pytest.mark.parametrize("seed", range(4))
def test_dense_is_a_convolution_of_one_pixel(seed):
    rng = np.random.default_rng(seed)
    x, w, b = random_block(rng, (3, 7), 8), random_block(rng, (5, 7), 8), random_block(rng, (5,), 8)
    g = random_block(rng, (3, 5), 16)
    deep = [whole(t.mantissas[..., None, None], t.exponent.item(), t.bits) for t in (x, w, g)]
    for bits in 8, 32:
        got, want = tensor_layers.dense(x, w, b, bits), tensor_layers.convolve(*deep[:2], b, bits=bits)
        assert np.array_equal(got.values, want.values[..., 0, 0])
    back, deep_back = tensor_layers.dense_back(x, w, g), tensor_layers.convolve_back(*deep)
    for part in "inputs", "weight":
        assert np.array_equal(getattr(back, part).values, getattr(deep_back, part).values[..., 0, 0])
    equal(back.bias, deep_back.bias)
    assert tensor_layers.dense_back(x, w, g, wanted=False).inputs is None


@pytest.mark.parametrize(("size", "stride"), [(2, 2), (3, 2), (2, 3), (3, 1)])
def test_pooling(size, stride):
    rng = np.random.default_rng(size)
    x = random_block(rng, (2, 3, 7, 8), 8)
    y, chosen = tensor_layers.max_pool(x, size, stride)
    mean = tensor_layers.average_pool(x, size, stride)
    g = random_block(rng, y.mantissas.shape, 16)
    to_largest, to_all = (np.full(x.mantissas.shape, Fraction(0)) for _ in range(2))
    largest, means = np.empty_like(real(y)), np.empty_like(real(y))
    mantissa, lsb = tensor_layers.reciprocal(size**2)
    share = mantissa * Fraction(2) ** lsb
    for n, c, p, q in np.ndindex(y.mantissas.shape):
        rows, columns = (slice(k * stride, k * stride + size) for k in (p, q))
        seen = real(x)[n, c, rows, columns]
        largest[n, c, p, q] = seen.max()
        means[n, c, p, q] = seen.sum() * share
        to_all[n, c, rows, columns] += real(g)[n, c, p, q]
        first = np.unravel_index(np.flatnonzero(seen.ravel() == seen.max())[0], seen.shape)
        to_largest[n, c, rows, columns][first] += real(g)[n, c, p, q]
    assert (real(y) == largest).all()
    equal(mean, requantized(means, 8))
    back = tensor_layers.max_pool_back(g, chosen, x.mantissas.shape, size, stride)
    if stride < size:
        equal(back, requantized(to_largest, 16))
    else:
        assert (real(back) == to_largest).all()
        assert back.exponent.item() == g.exponent.item()
    equal(tensor_layers.average_pool_back(g, x.mantissas.shape, size, stride), requantized(to_all * share, 16))


def test_reciprocals_have_sixteen_bits():
    for count in range(1, 2000):
        mantissa, lsb = tensor_layers.reciprocal(count)
        assert 1 << 14 <= mantissa < 1 << 15
        assert abs(Fraction(1, count) - mantissa * Fraction(2) ** lsb) * 2 <= Fraction(2) ** lsb
        if count & (count - 1) == 0:
            assert mantissa * Fraction(2) ** lsb == Fraction(1, count)


def test_sums_that_accumulators_may_not_hold_are_refused():
    """The largest products are 2^22, so the largest sum is 2^46."""
    assert MOST_TERMS << 15 + 7 == 1 << 46
    with pytest.raises(ValueError, match=r"of a dense layer adds 16,777,217 products .*; use smaller batches"):
        tensor_layers.check_terms(MOST_TERMS + 1, "the gradient of a dense layer")
    x = TrainingTensor(np.broadcast_to(np.int64(1), (MOST_TERMS + 1, 1)), np.zeros((1, 1), np.int64), 8)
    with pytest.raises(ValueError, match="use smaller batches"):
        tensor_layers.dense_back(x, whole(np.ones((1, 1), np.int64), 0, 8), whole(x.mantissas, 0, 16))


@pytest.mark.parametrize("top", [0, 5, 1 << 20, (1 << 31) - 1, 1 << 31, -(1 << 31), (1 << 31) + 1, 3 << 40])
def test_gradients_of_parameters_that_fit_their_bits_are_the_sums(top):
    for lsb in -9, E_MIN - 31, E_MIN - 40, E_MAX - 31, E_MAX - 20:
        sums = np.array([top, top // 3, 0, -(top // 5)])
        got = tensor_layers.parameter_gradient(sums, lsb)
        values = np.array([Fraction(int(s)) * Fraction(2) ** lsb for s in sums])
        equal(got, requantized(values, 32, min(max(lsb + 31, E_MIN), E_MAX)))
        if abs(top) < 1 << 31 and E_MIN <= lsb + 31 <= E_MAX:
            assert (got.mantissas == sums).all()


def test_relu():
    x = whole(np.array([[-128, 0, 1, 127]]), 3, 8)
    y = tensor_layers.relu(x)
    assert y.mantissas.tolist() == [[0, 0, 1, 127]]
    back = tensor_layers.relu_back(whole(np.array([[-5, 6, -7, 8]]), -9, 16), y)
    equal(back, whole(np.array([[0, 0, -7, 8]]), -9, 16))


def test_branches_are_added_exactly():
    rng = np.random.default_rng(5)
    for apart in (0, 3, 15, 24, 31):
        a, b = random_block(rng, (2, 50), 8, 1 + apart), random_block(rng, (2, 50), 8, 1)
        want = real(a) + real(b)
        if apart > tensor_layers.REACH:
            unit = Fraction(2) ** (int(a.lsb.item()) - tensor_layers.REACH)
            want = real(a) + np.vectorize(lambda v, u=unit: half_away(v / u) * u)(real(b))
        equal(tensor_layers.add(a, b), requantized(want, 8))
        equal(tensor_layers.add(b, a), requantized(want, 8))
    a, zeros = random_block(rng, (3,), 16, 100), whole(np.zeros(3, np.int64), E_MIN, 16)
    equal(tensor_layers.add_gradients(a, zeros), requantized(real(a), 16))


def test_zero_weights_leave_the_bias():
    x, b = whole(np.array([[100, -3]]), 2, 8), whole(np.array([90]), -3, 8)
    y = tensor_layers.dense(x, whole(np.zeros((1, 2), np.int64), E_MIN, 8), b)
    assert y.values.tolist() == b.values[None].tolist()


@pytest.mark.parametrize("apart", [-9, -1, 0, 30, 39, 40, 60])
def test_a_bias_and_sums_of_other_magnitude(apart):
    x, w = whole(np.array([[100, -3], [-128, 127]]), 2, 8), whole(np.array([[-128, 127]]), -1, 8)
    b, lsb = whole(np.array([-77]), 2 - 7 - 1 - 7 + 7 + apart, 8), Fraction(2) ** (2 - 7 - 1 - 7)
    sums, bias = real(x) @ real(w).T, np.array([half_away(v / lsb) * lsb for v in real(b)], object)
    for bits in 8, 32:
        equal(tensor_layers.dense(x, w, b, bits), requantized((sums if apart < 40 else 0 * sums) + bias, bits))


def test_update_and_momentum():
    rng = np.random.default_rng(6)
    rates = tensor_training.Rates(learning_rate=0.01, momentum=0.9)
    tensors = rates.learning_rate_tensor, rates.momentum_tensor
    learning_rate, momentum = (Fraction(float(tensor.values[0])) for tensor in tensors)
    assert abs(float(learning_rate) - 0.01) < 0.01 * 2**-14
    v = tensor_training.no_momentum((20,), rates)
    for exponent in (-3, -3, 4, -9, -2, 35, 0, 40, -40):
        g = whole(random_block(rng, (20,), 32).mantissas * (exponent != 35), exponent, 32)
        kept, units = momentum * real(v), [int(t.lsb.item()) for t in (v, g)]
        units[0] += int(rates.momentum_tensor.lsb.item())
        low = Fraction(2) ** max(min(units), max(units) - 15)  # sums of 48 bits
        want = requantized(np.array([(half_away(a / low) + half_away(b / low)) * low
                                     for a, b in zip(kept, real(g), strict=True)], object), 16)
        v = tensor_training.next_momentum(v, g, rates)
        equal(v, want)
        equal(tensor_training.update_of(v, rates), requantized(learning_rate * real(v), 32))


@pytest.mark.parametrize("wrong", [{"learning_rate": 0}, {"momentum": 1}, {"momentum_bits": 32},
                                   {"weight_decay": 1e-4}, {"clip_norm": 1.0}])
def test_rates_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        tensor_training.Rates(**{"learning_rate": 0.1} | wrong)


def test_a_network_without_an_output_is_refused():
    with pytest.raises(ValueError, match="must end in a Conv or Dense layer"):
        tensor_network.check((Dense(3, 2), Relu()))


SMALL = (Conv(1, 4, 3, padding=1), MaxPool(2, 2), Relu(),
         Residual((Conv(4, 4, 3, padding=1), Relu(), Conv(4, 4, 3, padding=1)), (Conv(4, 4, 1),)), Relu(),
         AveragePool(2, 2), Dense(16, 3))


def real_network(params, x):
    """The network SMALL in float64."""
    def convolve(x, name):
        w, b = params[f"{name}.weight"], params[f"{name}.bias"]
        seen = tensor_layers.windows(x, w.shape[2:], 1, w.shape[2] // 2)
        return np.einsum("nchwij,ocij->nohw", seen, w) + b[:, None, None]

    y = np.maximum(tensor_layers.windows(convolve(x, "0"), (2, 2), 2).max((4, 5)), 0)
    y = convolve(np.maximum(convolve(y, "3.body.0"), 0), "3.body.2") + convolve(y, "3.shortcut.0")
    y = tensor_layers.windows(np.maximum(y, 0), (2, 2), 2).mean((4, 5))
    return y.reshape(len(y), -1) @ params["6.weight"].T + params["6.bias"]


def test_gradients_of_a_network_are_those_of_real_arithmetic():
    rng = np.random.default_rng(8)
    values = {}
    for name, layer in tensor_network.named(SMALL):
        shape = layer.shapes["weight"]
        values[f"{name}.weight"] = rng.normal(size=shape) / np.sqrt(np.prod(shape[1:]))
        values[f"{name}.bias"] = rng.normal(size=layer.outputs) / 10
    assert list(values)[2] == "3.body.0.weight"
    parameters = {name: initial_parameters(value, LazyFormat()) for name, value in values.items()}
    seen = {name: p.values for name, p in parameters.items()}
    x, labels = to_training_tensor(rng.random((16, 1, 8, 8)), 8), rng.integers(0, 3, 16)
    logits, tape = tensor_network.forward(SMALL, parameters, x)
    exact = real_network(seen, x.values)
    assert np.abs(logits.values - exact).max() < 0.03 * np.abs(exact).max()
    _, gradient = tensor_training.loss_gradient(logits.values, labels, 16)
    got = tensor_network.backward(parameters, tape, to_training_tensor(gradient, 16))
    assert set(got) == set(values)

    def loss(changed):
        return tensor_training.loss_gradient(real_network(changed, x.values), labels, 16)[0]

    for name, gradient in got.items():
        direction = rng.normal(size=seen[name].shape)
        ends = (loss(seen | {name: seen[name] + e * direction}) for e in (1e-5, -1e-5))
        slope = float(np.subtract(*ends) / 2e-5)
        scale = np.abs(gradient.values).max() * np.sqrt(direction.size)
        assert abs((gradient.values * direction).sum() - slope) < 0.2 * scale, name


def test_training_lowers_the_loss_without_any_wider_copy():
    rng = np.random.default_rng(9)
    parameters = {}
    for name, layer in tensor_network.named(SMALL):
        shape = layer.shapes["weight"]
        values = rng.normal(size=shape) * np.sqrt(2 / np.prod(shape[1:]))
        parameters[f"{name}.weight"] = initial_parameters(values, LazyFormat())
        parameters[f"{name}.bias"] = initial_parameters(np.zeros(layer.outputs), LazyFormat())
    x, labels = to_training_tensor(rng.random((30, 1, 8, 8)), 8), np.arange(30) % 3
    rates, momenta, losses = tensor_training.Rates(learning_rate=0.05, momentum=0.9), {}, []
    for _ in range(40):
        logits, tape = tensor_network.forward(SMALL, parameters, x)
        loss, gradient = tensor_training.loss_gradient(logits.values, labels, 30)
        losses.append(loss)
        gradients = tensor_network.backward(parameters, tape, to_training_tensor(gradient, 16))
        tensor_training.train_step(parameters, momenta, gradients, rates)
    assert losses[-1] < 0.7 * losses[0]
