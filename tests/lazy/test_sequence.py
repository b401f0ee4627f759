"""Recurrent layers of block floating point training: steps against fractions, gradients against real arithmetic."""

from fractions import Fraction

import numpy as np
import pytest
from concord.golden.lazy import tensor_network, tensor_sequence, tensor_training
from concord.golden.lazy.lazy_update import initial_parameters
from concord.golden.lazy.tensor import to_training_tensor
from concord.golden.lazy.tensor_layers import whole
from concord.golden.lazy.tensor_network import Dense, Recurrent
from concord.golden.lazy.tensor_sequence import StepTensor, Tape
from concord.net.cells.registry import CELLS
from concord.net.ops.recurrent import Direction, Recurrence
from concord.net.ops.sequences import Last
from concord.spec.numbers.activation import Activation
from concord.spec.numbers.lazy import E_MIN, LazyFormat
from concord.tests.lazy.test_layers import equal, random_block, real, requantized

LENGTHS = np.array([5, 2, 4, 5, 1, 3])


def layers(cell, hidden=(6,)):
    return Recurrent(CELLS[cell], 4, hidden), Dense(hidden[-1], 3)


def begun(plan, seed=0):
    rng = np.random.default_rng(seed)
    return {name: initial_parameters(rng.normal(size=shape) * 0.5, LazyFormat())
            for name, shape in tensor_network.shapes(plan).items()}


def real_outputs(plan, values, x):
    """The network in float64."""
    made, cell = x, plan[0].cell
    for index in range(len(plan[0].hidden)):
        def stack(part, at=index):
            return np.float32([values[f"0.{at}.{gate.name}.{part}"] for gate in cell.gates])

        one = Direction(input_weights=stack("input"), recurrent_weights=stack("recurrent"), bias=stack("bias"),
                        vectors={name: np.float32(values[f"0.{index}.{name}"]) for name in cell.vectors})
        made = Recurrence(cell=cell, directions=(one,)).real(made, LENGTHS)
    return Last().real(made, LENGTHS) @ values["1.weight"].T + values["1.bias"]


@pytest.mark.parametrize(("cell", "hidden"), [(cell, (6,)) for cell in CELLS] + [("lstm", (5, 6))])
def test_gradients_are_those_of_real_arithmetic(cell, hidden):
    rng, plan = np.random.default_rng(1), layers(cell, hidden)
    parameters = begun(plan)
    seen = {name: p.values for name, p in parameters.items()}
    x = rng.normal(size=(6, 5, 4)) * (np.arange(5) < LENGTHS[:, None])[..., None]
    x, labels = to_training_tensor(x, 8), np.arange(6) % 3
    logits, tape = tensor_network.forward(plan, parameters, x, LENGTHS)
    exact = real_outputs(plan, seen, x.values)
    assert np.abs(logits.values - exact).max() < 0.08 * np.abs(exact).max()
    _, gradient = tensor_training.loss_gradient(logits.values, labels, 6)
    got = tensor_network.backward(parameters, tape, to_training_tensor(gradient, 16))
    assert set(got) == set(parameters)
    assert {found.bits for found in got.values()} == {32}

    def loss(changed):
        return tensor_training.loss_gradient(real_outputs(plan, changed, x.values), labels, 6)[0]

    for name, gradient in got.items():
        direction = rng.normal(size=seen[name].shape)
        slope = float(np.subtract(*(loss(seen | {name: seen[name] + e * direction}) for e in (1e-3, -1e-3))) / 2e-3)
        scale = np.abs(gradient.values).max() * np.sqrt(direction.size)
        assert abs((gradient.values * direction).sum() - slope) < 0.2 * scale, name


@pytest.mark.parametrize("seed", range(4))
def test_a_step_in_fractions(seed):
    """A gate before its curve, products, sums and differences, and the gradients of all of them."""
    rng = np.random.default_rng(seed)
    w, r, bias = random_block(rng, (5, 3), 8), random_block(rng, (5, 4), 8), random_block(rng, (5,), 8)
    w, r, bias = (whole(t.mantissas, int(rng.integers(-4, 4)), 8) for t in (w, r, bias))
    x, h = (StepTensor(whole(random_block(rng, (6, n), 8).mantissas, int(rng.integers(-4, 4)), 8)) for n in (3, 4))
    tape = Tape({"w": w, "r": r, "b": bias})
    made = tape.linear([("w", x), ("r", h)], "b")
    equal(made.tensor, requantized(real(x.tensor) @ real(w).T + real(h.tensor) @ real(r).T + real(bias), 8))
    g = random_block(rng, (6, 5), 16)
    tape.backward(made, g)
    equal(x.gradient, requantized(real(g) @ real(w), 16))
    equal(h.gradient, requantized(real(g) @ real(r), 16))
    lsb = int(g.lsb.item())
    equal(tape.gradients["w"], requantized(real(g).T @ real(x.tensor), 32, lsb + int(x.tensor.lsb.item()) + 31))
    equal(tape.gradients["b"], requantized(real(g).sum(0), 32, lsb + 31))
    a, b = (StepTensor(random_block(rng, (6, 5), 8, int(rng.integers(-4, 4)))) for _ in range(2))
    for sign in 1, -1:
        one, other = StepTensor(a.tensor), StepTensor(b.tensor)
        total = tape.add(one, other, sign)
        equal(total.tensor, requantized(real(a.tensor) + sign * real(b.tensor), 8))
        tape.backward(total, g)
        assert (real(other.gradient) == sign * real(one.gradient)).all()
    product = tape.multiply(a, b)
    equal(product.tensor, requantized(real(a.tensor) * real(b.tensor), 8))
    tape.backward(product, g)
    equal(a.gradient, requantized(real(g) * real(b.tensor), 16))


@pytest.mark.parametrize(("kind", "function", "slope"), [
    (Activation.SIGMOID, lambda v: 1 / (1 + np.exp(-v)), lambda y: y * (1 - y)),
    (Activation.TANH, np.tanh, lambda y: 1 - y * y)])
def test_curves_of_every_number_of_eight_bits(kind, function, slope):
    for exponent in (-12, -3, 0, 2, 6, 40, E_MIN):
        x = whole(np.arange(-128, 128), exponent, 8)
        made, lsb = tensor_sequence.curve(kind, x)
        assert lsb == -15
        assert np.abs(made / 2**15 - function(np.clip(x.values, -700, 700))).max() <= 2**-15
        assert (np.diff(made) >= 0).all()
    for exponent in (-20, -9, 0):
        y = whole(np.arange(0, 128), exponent, 8)
        made, lsb = tensor_sequence.derivative(kind, y)
        assert np.abs(made * 2.0**lsb - slope(y.values)).max() <= 2**-14
        if exponent == 0:
            assert all(Fraction(int(m)) * Fraction(2) ** lsb == slope(v) for m, v in zip(made, real(y), strict=True))


def test_what_follows_the_end_of_a_sequence_does_not_count():
    plan, rng = layers("lstm"), np.random.default_rng(3)
    parameters, x = begun(plan), random_block(rng, (6, 5, 4), 8, 0)
    ended = x.mantissas.copy()
    ended[np.arange(5) >= LENGTHS[:, None]] //= 2
    results = [tensor_network.forward(plan, parameters, whole(m, 0, 8), LENGTHS)[0] for m in (x.mantissas, ended)]
    assert np.abs(results[0].values - results[1].values).max() < 0.05 * np.abs(results[0].values).max()


def test_states_of_ended_samples_are_zero_and_take_no_gradient():
    rng, live = np.random.default_rng(4), np.array([[True], [False], [True]])
    tape, state, g = Tape({}), StepTensor(random_block(rng, (3, 4), 8)), random_block(rng, (3, 4), 16)
    made = tape.masked(state, live)
    assert (made.tensor.mantissas == state.tensor.mantissas * live).all()
    tape.backward(made, g)
    assert (state.gradient.mantissas == g.mantissas * live).all()


def test_a_recurrent_layer_stands_first():
    with pytest.raises(ValueError, match="a recurrent layer takes the network's input; put it first"):
        tensor_network.check((Dense(4, 4), *layers("gru")))
