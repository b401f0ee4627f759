"""Programs of a trainer, made from networks: steps on golden's machine end with the bits of golden.lazy."""

import re

import numpy as np
import pytest
from concord.compiler.training.costs import ENGINES, costs, explained
from concord.compiler.training.program import compile_training
from concord.compiler.training.session import TrainingSession
from concord.golden.lazy import tensor_network
from concord.golden.lazy.lazy_update import initial_parameters
from concord.golden.lazy.tensor import to_training_tensor
from concord.golden.lazy.tensor_network import AveragePool, Conv, Dense, MaxPool, Relu, Residual
from concord.golden.lazy.tensor_training import Rates, train_step
from concord.spec.numbers.lazy import LazyFormat, Width
from concord.spec.trainer.config import TrainerConfig

RATES = Rates(learning_rate=0.05, momentum=0.9)
SMALL = TrainerConfig(words=1024, accumulator_rows=64)

#: Shape, layers, core and batches; 18 and 20 channels fill a block and begin another one.
CASES = {
    "dense, weights held": ((20,), (Dense(20, 18), Relu(), Dense(18, 5)), TrainerConfig(), [9, 4]),
    "dense, weights in groups": ((100,), (Dense(100, 34), Relu(), Dense(34, 30)), SMALL, [20]),
    "patches, pooling in the product, pixels of a dense layer": (
        (1, 9, 7),
        (Conv(1, 18, 3, 1, 1), Relu(), MaxPool(2, 2), Dense(18 * 12, 5)),
        TrainerConfig(),
        [5, 2],
    ),
    "stride 2, rows of kernels in groups": (
        (20, 7, 8),
        (Conv(20, 18, 3, 2, 1), Relu(), Conv(18, 17, 2, 1, 1), MaxPool(2, 3), Relu(), Dense(68, 3)),
        SMALL,
        [3],
    ),
    "strips of images, rows behind the last window": (
        (17, 9, 23),
        (Conv(17, 17, 1), Relu(), Conv(17, 16, 3, 1, 1), Relu(), MaxPool(2, 4), Dense(192, 3)),
        TrainerConfig(words=768),
        [2],
    ),
    "weights of 16 outputs in parts, by blocks of channels": (
        (700,),
        (Dense(700, 20), Relu(), Dense(20, 3)),
        TrainerConfig(words=512, accumulator_rows=64),
        [3],
    ),
    "weights of 16 outputs in parts, by pixels; sums in strips": (
        (17, 9, 11),
        (Conv(17, 17, 1), Relu(), Residual((Conv(17, 17, 1),)), Relu(), Dense(17 * 99, 20)),
        TrainerConfig(words=768, accumulator_rows=64),
        [3],
    ),
    "stride beyond the kernel": ((3, 8, 8), (Conv(3, 5, 1, 1), Conv(5, 6, 2, 3, 1), Dense(54, 4)), SMALL, [4]),
    "overlapping windows, means": (
        (4, 9, 9),
        (Conv(4, 6, 3), Relu(), MaxPool(3, 2), Relu(), AveragePool(2, 1), Relu(), Dense(24, 4)),
        TrainerConfig(),
        [4],
    ),
    "overlapping windows in strips": (
        (3, 21, 13),
        (Conv(3, 18, 3, 1, 1), Relu(), MaxPool(3, 2), Relu(), Dense(1080, 4)),
        TrainerConfig(words=1024, accumulator_rows=128),
        [2],
    ),
    "overlapping windows in strips, rows behind the last window": (
        (3, 20, 12),
        (Conv(3, 17, 2, 1), MaxPool(4, 3), Dense(306, 4)),
        TrainerConfig(words=512),
        [2, 1],
    ),
    "sums of branches": (
        (3, 6, 6),
        (
            Conv(3, 8, 2, 1, 1),
            Relu(),
            Residual((Relu(), Conv(8, 8, 3, 1, 1), Relu()), (Conv(8, 8, 1),)),
            Residual((Residual((Conv(8, 8, 3, 1, 1),)), Relu()), ()),
            Relu(),
            Dense(392, 4),
        ),
        TrainerConfig(words=2048),
        [3, 2],
    ),
    "exponents of gradients shared": ((20,), (Dense(20, 18), Relu(), Dense(18, 5)), TrainerConfig(exponents=16), [9]),
    "a convolution gives the output": ((2, 5, 5), (MaxPool(2, 1), Relu(), Conv(2, 3, 4)), TrainerConfig(), [6]),
}


def begun(layers, seed: int = 0):
    """Random parameters by name."""
    rng = np.random.default_rng(seed)
    return {
        name: initial_parameters(rng.normal(size=shape) / np.sqrt(np.prod(shape[1:])), LazyFormat())
        for name, shape in tensor_network.shapes(layers).items()
    }


def equal_states(found, expected):
    """Refuse parameters and momenta that differ in one bit."""
    for name, kept in expected[0].items():
        momentum = expected[1][name]
        assert (found[0][name].exponent, found[1][name].exponent) == (kept.exponent, momentum.exponent), name
        for one, other in (
            (found[0][name].mantissas, kept.mantissas),
            (found[0][name].residuals, kept.residuals),
            (found[1][name].mantissas, momentum.mantissas),
        ):
            np.testing.assert_array_equal(one, other, name)


@pytest.mark.parametrize("case", CASES)
def test_steps_end_with_the_bits_of_golden(case):
    """Exponents are guessed wrong at first, and memories hold rubbish."""
    shape, layers, config, sizes = CASES[case]
    rng, parameters, momenta = np.random.default_rng(1), begun(layers), {}
    session = TrainingSession(layers, shape, config, RATES, parameters, batches=sizes)
    core = session.trainer.core
    core.chip[:] = rng.integers(0, 256, core.chip.shape)
    core.accumulators[:] = rng.integers(-1 << 47, 1 << 47, core.accumulators.shape)
    for size in [sizes[0], *sizes]:
        x = to_training_tensor(rng.normal(size=(size, *shape)), Width.ACTIVATION)
        y, tape = tensor_network.forward(layers, parameters, x)
        found = session.forward(x)
        np.testing.assert_array_equal(found.mantissas, y.mantissas.reshape(size, -1))
        assert found.exponent.item() == y.exponent.item()
        gradient = to_training_tensor(rng.normal(size=y.mantissas.shape), Width.GRADIENT)
        train_step(parameters, momenta, tensor_network.backward(parameters, tape, gradient), RATES)
        session.backward(x, gradient)
        equal_states(session.parameters(), (parameters, momenta))


def test_a_session_goes_on_where_another_one_was():
    shape, layers, config, sizes = CASES["dense, weights held"]
    rng = np.random.default_rng(2)
    x = to_training_tensor(rng.normal(size=(sizes[0], *shape)), Width.ACTIVATION)
    labels = rng.integers(0, 5, sizes[0])
    session = TrainingSession(layers, shape, config, RATES, begun(layers), batches=sizes)
    session.step(x, labels)
    other = TrainingSession(layers, shape, config, RATES, *session.parameters(), batches=sizes)
    assert session.step(x, labels) == other.step(x, labels)
    equal_states(session.parameters(), other.parameters())


@pytest.mark.parametrize("case", CASES)
def test_the_costs_of_every_step_are_told(case):
    shape, layers, config, sizes = CASES[case]
    made = compile_training(layers, shape, sizes[0], config)
    assert all(sum(work.cycles.values()) for work in costs(made) if work.work != "load")
    assert explained(made).splitlines()[-1].startswith("sum ")


@pytest.mark.parametrize(("shape", "layers", "batch", "cycles"), [
    ((784,), (Dense(784, 128), Relu(), Dense(128, 64), Relu(), Dense(64, 10)), 64, 87_424),
    ((1, 28, 28), (Conv(1, 16, 3, 1, 1), Relu(), MaxPool(2, 2), Conv(16, 32, 3, 1, 1), Relu(), MaxPool(2, 2),
                   Dense(1568, 10)), 32, 690_736),
])  # fmt: skip
def test_the_tensor_engine_has_no_more_to_do_than_the_products(shape, layers, batch, cycles):
    """The counts are those of blocks of 16 x 16, vectors, and rows that are drained."""
    made = compile_training(layers, shape, batch, TrainerConfig())
    works = costs(made)
    assert sum(work.cycles.get("tensor", 0) for work in works) == cycles
    last = explained(made).splitlines()[-1]
    sums = [sum(work.cycles.get(engine, 0) for work in works) for engine in ENGINES]
    assert [int(number.replace(",", "")) for number in re.findall(r"[\d,]+", last)] == [
        sum(work.most for work in works),
        *sums,
        sum(work.bytes for work in works),
    ]
    assert sum(work.most for work in works) < 1.05 * cycles


@pytest.mark.parametrize(("call", "sentence"), [
    (lambda session, x: session.forward(x((4, 19), 8)), r"the network takes \[20\] and 8 bits"),
    (lambda session, x: session.forward(x((4, 20), 16)), r"the shape \[20\] and 16 bits"),
    (lambda session, x: session.forward(x((3, 20), 8)), "no program for a batch of 3"),
    (lambda session, x: session.backward(x((4, 20), 8), x((4, 5), 32)), "5 numbers of 32 bits"),
    (lambda session, x: session.backward(x((4, 20), 8), x((4, 6), 16)), "the output has 4 x 5"),
    (lambda session, x: session.step(x((4, 20), 8), np.array([0, 1, 2, 5])), r"one in 0\.\.4 for each sample"),
])  # fmt: skip
def test_a_session_refuses_what_is_not_its_networks(call, sentence):
    layers = (Dense(20, 5),)
    session = TrainingSession(layers, (20,), TrainerConfig(), RATES, begun(layers), batches=[4])
    with pytest.raises(ValueError, match=sentence):
        call(session, lambda shape, bits: to_training_tensor(np.ones(shape), bits))


def test_a_session_refuses_parameters_of_other_layers():
    layers, found = (Dense(20, 5),), begun((Dense(5, 20),))
    with pytest.raises(ValueError, match=r"'0.weight' has the shape \[20, 5\], and its layer takes \[5, 20\]"):
        TrainingSession(layers, (20,), TrainerConfig(), RATES, found)
    given = {"0.weight": found["0.weight"], "1.weight": found["0.weight"]}
    with pytest.raises(ValueError, match="look at 0.bias, 1.weight"):
        TrainingSession(layers, (20,), TrainerConfig(), RATES, given)


def test_programs_are_the_same_each_time():
    shape, layers, config, sizes = CASES["sums of branches"]
    one, other = (compile_training(layers, shape, sizes[0], config) for _ in range(2))
    assert one.cores[0].backward == other.cores[0].backward


@pytest.mark.parametrize(("shape", "layers", "config", "batch", "sentence"), [
    ((300,), (Dense(300, 60),), {"words": 256}, 2, "layer '0', update, needs .* words of 16 bytes"),
    ((20,), (Dense(20, 70),), {"accumulator_rows": 64}, 2, "layer '0', update, needs 70 rows of the accumulators"),
    ((3, 4, 300), (Conv(3, 4, 1), Dense(4800, 2)), {}, 1, "layer '0' has images 300 pixels wide"),
    ((20,), (Dense(20, 20), Dense(20, 20), Dense(20, 20)), {"exponents": 16}, 2, "21 exponents"),
    ((3, 9, 9), (Conv(3, 16, 3), Dense(784, 10)), {"instructions": 16}, 2, "the forward program: .* words"),
    ((20,), (Dense(20, 20), Dense(20, 20)), {"views": 2}, 2, "needs more than the 2 views"),
    ((100,), (Dense(100, 100),), {"bases": 2, "words": 1024}, 20, "base registers"),
    ((1, 4096, 4096), (MaxPool(4, 4), Dense(1 << 20, 2)), {}, 1, "layer '0', forward, needs .* words of 16"),
    ((1, 2, 3, 4), (Dense(6, 2),), {}, 2, r"a sample of the shape \[1, 2, 3, 4\]"),
    ((21,), (Dense(20, 20),), {}, 2, "layer '0' takes 20 numbers, and there are 21"),
    ((3, 2, 2), (Conv(3, 4, 3), Dense(4, 2)), {}, 2, "kernels of 3 pixels, and its input has 2 x 2"),
    ((20,), (Dense(20, 20),), {}, 0, "a batch of 0 samples"),
])  # fmt: skip
def test_what_a_core_cannot_do_is_refused(shape, layers, config, batch, sentence):
    with pytest.raises(ValueError, match=sentence):
        compile_training(layers, shape, batch, TrainerConfig(**config))


def test_a_batch_with_too_many_terms_is_refused(monkeypatch):
    monkeypatch.setattr(tensor_network.tensor_layers, "MOST_TERMS", 100)
    with pytest.raises(ValueError, match="use smaller batches"):
        compile_training((Dense(20, 20),), (20,), 101, TrainerConfig())


def test_training_without_momentum_is_refused():
    with pytest.raises(ValueError, match="give one above 0"):
        TrainingSession((Dense(20, 20),), (20,), TrainerConfig(), Rates(learning_rate=0.1), {})
