"""Block floating point training in PyTorch gives golden's bits, step after step."""

from itertools import product

import numpy as np
import pytest
from concord.golden.lazy import lazy_update, tensor_layers, tensor_network, tensor_training
from concord.golden.lazy import tensor as golden_tensor
from concord.golden.lazy.lazy_update import Counts
from concord.golden.lazy.tensor import TrainingTensor, to_training_tensor
from concord.golden.lazy.tensor_layers import whole
from concord.golden.lazy.tensor_network import AveragePool, Conv, Dense, MaxPool, Relu, Residual
from concord.golden.lazy.tensor_training import Rates
from concord.spec.numbers.lazy import E_MAX, E_MIN, LazyFormat

torch = pytest.importorskip("torch", reason="PyTorch is in the dependency group `train`")
tensor = pytest.importorskip("concord.train.bfp.tensor")
lazy = pytest.importorskip("concord.train.bfp.lazy_update")
networks = pytest.importorskip("concord.train.bfp.tensor_network")
Lazy = pytest.importorskip("concord.train.bfp.parameters").Lazy
Floating = pytest.importorskip("concord.train.bfp.exact_products").Floating
onednn = pytest.importorskip("concord.train.bfp.onednn_products")

FULL = LazyFormat()


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    torch.set_num_threads(1)


def same(got, want: TrainingTensor):
    assert (got.lsb, got.bits) == (want.lsb.item(), want.bits)
    assert np.array_equal(got.golden().mantissas, want.mantissas)


def test_requantizing_is_goldens():
    rng = np.random.default_rng(0)
    for _ in range(500):
        width, up = int(rng.integers(1, 52)), int(rng.integers(0, 10))
        sums = rng.integers(-(1 << width), (1 << width) + 1, 20)
        if rng.random() < 0.3:  # the largest magnitude is an exact power of two
            sums[0] = (1 << width) * rng.choice((-1, 1))
        if rng.random() < 0.3:  # ties
            sums = sums >> 9 << 9 | 1 << 8
        if rng.random() < 0.05:
            sums[:] = 0
        lsb = int(rng.choice((0, E_MIN - 25, E_MIN - 60, E_MAX - 30)))
        types = [t for t, limit in ((torch.int32, 31), (torch.float32, 24), (torch.float64, 53)) if width < limit]
        for dtype, bits in product(types, (8, 16, 32)):
            exact = tensor.ExactTensor(torch.from_numpy(sums).to(dtype), lsb, 0, up)
            same(tensor.requantize(exact, bits), golden_tensor.requantize(sums << up, lsb, bits))


@pytest.mark.parametrize("lsb", [-9, E_MIN - 31, E_MIN - 45, E_MAX - 31, E_MAX - 20])
def test_gradients_of_parameters_are_goldens(lsb):
    rng = np.random.default_rng(5)
    for width in (0, 1, 20, 30, 31, 32, 45):
        found = rng.integers(-(1 << width), (1 << width) + 1, 9)
        for total in (found, np.append(found, 1 << width), np.append(found, -(1 << width))):
            for up in (0, 3):
                got = tensor.parameter_gradient(tensor.sums(torch.from_numpy(total), lsb, up))
                same(got, tensor_layers.parameter_gradient(total << up, lsb))


def test_momenta_add_as_golden():
    rng = np.random.default_rng(6)
    rates, begun = Rates(learning_rate=0.1, momentum=0.9), lazy_update.initial_parameters(np.ones(9), FULL)
    for _ in range(300):
        kept, lsb = Lazy(begun, rates), int(rng.integers(-60, 30))
        v = whole(rng.integers(-(1 << 15), 1 << 15, 9) >> rng.integers(16), int(rng.integers(-30, 30)), 16)
        found = rng.integers(-(1 << 31), 1 << 31, 9) >> rng.integers(32)
        kept.momentum = tensor.exact(v, torch.empty(0))
        kept.update(tensor.sums(torch.from_numpy(found), lsb, 0))
        same(kept.momentum, tensor_training.next_momentum(v, tensor_layers.parameter_gradient(found, lsb), rates))


def compare(old, update: TrainingTensor, counts):
    """Make one update in PyTorch and in golden, compare, and return the new parameters."""
    new = lazy.lazy_update(lazy.from_golden(old), tensor.exact(update, torch.empty(0)), counts[0])
    want = lazy_update.lazy_update(old, update, counts[1])
    assert new.exponent == want.exponent
    assert np.array_equal(new.golden().mantissas, want.mantissas)
    assert np.array_equal(new.golden().residuals, want.residuals)
    assert counts[0] == counts[1]
    return want


def test_a_million_random_lazy_steps():
    rng, counts = np.random.default_rng(2), (Counts(), Counts())
    steps, corners = 0, {"zero": 0, "power": 0, "left": 0, "right": 0}
    while steps < 1_200_000:
        size = int(rng.choice((1, 7, 1000)))
        w = rng.integers(FULL.lowest, FULL.highest + 1, size) >> rng.integers(0, 8)
        r = rng.integers(-(1 << 14), (1 << 14) + 1, size)
        u = rng.integers(-(1 << 31), 1 << 31, size) >> rng.integers(0, 30)
        if rng.random() < 0.1:
            w[:], r[:] = 0, 0
        if rng.random() < 0.1:
            w[0] = 64 * rng.choice((-2, -1, 1))
        if rng.random() < 0.1:  # ties of the update's alignment
            u = u >> 12 << 12 | 1 << 11
        exponent = int(rng.choice((0, E_MIN, E_MAX, int(rng.integers(-30, 30)))))
        shift = int(rng.integers(-12, 40))
        corners["zero"] += not w.any()
        corners["power"] += abs(int(w[0])) in (64, 128)
        corners["left" if shift < 0 else "right"] += 1
        update = int(np.clip(FULL.alignment(exponent, 0) - shift, E_MIN, E_MAX))
        old = lazy_update.Parameters(w, r, exponent, FULL)
        for _ in range(3):  # the same update is repeated, so that exponents change
            old = compare(old, whole(u, update, 32), counts)
            steps += size
    assert min(counts[0].steps, counts[0].changes, counts[0].rounded, counts[0].saturations, *corners.values()) > 100


@pytest.mark.parametrize("fmt", [LazyFormat(bits=3, residual=5, shift=4, update=5, guard=2),
                                 LazyFormat(bits=5, residual=3, shift=2, update=5)], ids=["3-5", "5-3"])
def test_every_lazy_step_of_small_widths(fmt):
    every = [range(-(1 << bits - 1), 1 << bits - 1) for bits in (fmt.bits, fmt.residual, fmt.update)]
    w, r, u = (np.array(x).ravel() for x in np.meshgrid(*every, indexing="ij"))
    for shift in range(-fmt.guard - fmt.shift - fmt.bits - 2, fmt.update + 2):
        exponent = -shift + fmt.alignment(0, 0)
        counts = Counts(), Counts()
        compare(lazy_update.Parameters(w, r, 0, fmt), whole(u, exponent, fmt.update), counts)
        stays = np.abs(lazy_update.one_pass(lazy_update.Parameters(w, r, 0, fmt), u, exponent).mantissas) < fmt.highest
        top = np.full(1, fmt.highest)  # beside it a tensor need not change its exponent
        for part in np.array_split(np.flatnonzero(stays), 4):
            old = [np.append(a[part], b) for a, b in ((w, top), (r, 0))]
            compare(lazy_update.Parameters(*old, 0, fmt), whole(np.append(u[part], 0), exponent, fmt.update), counts)


SMALL = (Conv(1, 4, 3, padding=1), MaxPool(2, 2), Relu(), Conv(4, 6, 3, stride=2, padding=1), Relu(), MaxPool(2, 2),
         Dense(24, 10))
DEEP = (Conv(1, 4, 5), Relu(), MaxPool(3, 2), Residual((Conv(4, 4, 3, padding=1), Relu(), Conv(4, 4, 3, padding=1))),
        Relu(), Residual((Conv(4, 5, 3, 2, 1),), (Conv(4, 5, 1, 2),)), AveragePool(2, 1), Relu(), AveragePool(2, 2),
        Dense(5, 7), Relu(), Dense(7, 10))


def data(rng, count, size):
    return to_training_tensor(rng.random((count, 1, size, size)) - 0.1, 8), rng.integers(0, 10, count)


def agree(net, parameters, momenta):
    for name, want in parameters.items():
        kept = net.parameters[name]
        got = kept.kept.golden()
        assert got.exponent == want.exponent, name
        assert np.array_equal(got.mantissas, want.mantissas), name
        assert np.array_equal(got.residuals, want.residuals), name
        if name in momenta:
            assert kept.momentum.lsb == momenta[name].lsb.item()
            assert np.array_equal(kept.momentum.golden().mantissas, momenta[name].mantissas)


@pytest.mark.parametrize("kernels", [onednn.Integer8, Floating])
@pytest.mark.parametrize(("layers", "momentum"), [(SMALL, 0.0), (DEEP, 0.9)], ids=["sgd", "momentum"])
def test_steps_of_training_are_goldens(layers, momentum, kernels):
    if kernels is onednn.Integer8 and not onednn.available():
        pytest.skip("this CPU has no exact 8-bit kernels")
    rng = np.random.default_rng(3)
    rates = Rates(learning_rate=0.05, momentum=momentum)
    values = networks.initial_values(layers, 0)
    parameters = {name: lazy_update.initial_parameters(value, FULL) for name, value in values.items()}
    net = networks.TensorNetwork(layers, {name: Lazy(p, rates) for name, p in parameters.items()}, products=kernels())
    momenta, counts = {}, Counts()
    for _ in range(6):
        x, labels = data(rng, 12, 16)
        logits, tape = tensor_network.forward(layers, parameters, x)
        same(net.forward(tensor.exact(x, torch.empty(0))), logits)
        loss, gradient = tensor_training.loss_gradient(logits.values, labels, 12)
        gradients = tensor_network.backward(parameters, tape, to_training_tensor(gradient, 16))
        tensor_training.train_step(parameters, momenta, gradients, rates, counts)
        assert net.step(tensor.exact(x, torch.empty(0)), labels) == loss
        agree(net, parameters, momenta)
    assert net.counts == counts
    assert counts.steps


@pytest.mark.parametrize("rate", [1e-4, 30.0])
def test_small_and_exploding_steps_are_goldens(rate):
    """Tensors of zeros, values of very different magnitudes, and exponents that rise in every step."""
    rng = np.random.default_rng(4)
    for trial, layers in enumerate((SMALL, DEEP)):
        rates = Rates(learning_rate=rate, momentum=0.9, momentum_bits=8)
        values = {name: value * 10.0 ** rng.integers(-3, 3) * (rng.random() < 0.8)
                  for name, value in networks.initial_values(layers, trial).items()}
        parameters = {name: lazy_update.initial_parameters(value, FULL) for name, value in values.items()}
        net, momenta = networks.TensorNetwork(layers, {name: Lazy(p, rates) for name, p in parameters.items()}), {}
        for _ in range(8):
            x, labels = data(rng, 5, 16)
            logits, tape = tensor_network.forward(layers, parameters, x)
            _, gradient = tensor_training.loss_gradient(logits.values, labels, 5)
            gradients = tensor_network.backward(parameters, tape, to_training_tensor(gradient, 16))
            tensor_training.train_step(parameters, momenta, gradients, rates)
            net.step(tensor.exact(x, torch.empty(0)), labels)
            agree(net, parameters, momenta)
