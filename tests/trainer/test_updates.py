"""`update` and its `measure`: momenta, parameters and exponents after every step are those of golden.lazy."""

from dataclasses import replace

import numpy as np
import pytest
from concord.golden.lazy.lazy_update import Counts, Parameters
from concord.golden.lazy.tensor import TrainingTensor
from concord.golden.lazy.tensor_layers import parameter_gradient, whole
from concord.golden.lazy.tensor_training import Rates, train_step
from concord.golden.trainer.memory import Seen, planes_of, write_parts
from concord.golden.trainer.summary import FORMAT
from concord.spec.trainer.instructions import MeasureKind, TrainerError, TrainerOp
from concord.spec.trainer.registers import TrainerRegister, rate_bits
from concord.spec.trainer.views import TrainerView
from concord.tests.trainer.bench import Bench

ROWS = 24


def rate_of(tensor: TrainingTensor) -> int:
    return rate_bits(int(tensor.mantissas.item()), int(tensor.exponent.item()))


def set_rates(bench: Bench, rates: Rates):
    bench.trainer.write_register(TrainerRegister.RATE, rate_of(rates.learning_rate_tensor))
    bench.trainer.write_register(TrainerRegister.DECAY, rate_of(rates.momentum_tensor))


def stepping(bench: Bench, rates: Rates, start: str, bias: int = 0):
    """A bench whose program makes one step of a parameter, and the old and the new place of it."""
    rng = bench.rng
    tall = 32
    old = TrainerView(planes=5, plane=tall, n0=ROWS // (8 if bias else 1), s0=1)
    new = replace(old, offset=5 * tall)
    numbers = {name: bench.exponent(0 if name == "ew" and start == "zeros" else None) for name in ("ew", "ev", "eg")}
    views = {"old": bench.view(old), "new": bench.view(new)}
    begin = len(bench.program)
    bench.do(TrainerOp.UPDATE, **views, acc=3, bias=bias, **numbers)
    bench.repeated(begin, MeasureKind.UPDATE, e=numbers["ev"], ew=numbers["ew"], eg=numbers["eg"])
    set_rates(bench, rates)
    shape = old.rows, 16
    scale = 0 if start == "zeros" else 1
    parameters = Parameters(
        scale * rng.integers(-128, 128, shape),
        scale * rng.integers(-1 << 14, 1 << 14, shape),
        int(rng.integers(-8, 8)),
        FORMAT,
    )
    momenta = whole(scale * rng.integers(-1 << 15, 1 << 15, shape), int(rng.integers(-8, 8)), 16)
    bytes_ = [
        planes_of(values, count)
        for values, count in ((parameters.mantissas, 1), (parameters.residuals, 2), (momenta.mantissas, 2))
    ]
    write_parts(bench.core.chip, Seen(old, 0), np.concatenate(bytes_)[:, None])
    bench.exponents |= {numbers["ew"]: parameters.exponent, numbers["ev"]: int(momenta.exponent.item())}
    return numbers, old, new, parameters, momenta


def random_sums(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Sums that fit 32 bits, or do not."""
    bits = int(rng.integers(2, 46))
    return rng.integers(-(1 << bits), 1 << bits, shape)


@pytest.mark.parametrize("start", ["zeros", "any"])
@pytest.mark.parametrize("bias", [0, 1])
@pytest.mark.parametrize("seed", range(6))
def test_steps(seed, start, bias):
    bench = Bench(seed=seed)
    rates = Rates(learning_rate=float(2.0 ** bench.rng.integers(-9, 3)), momentum=[0.9, 0.5, 0.1][seed % 3])
    numbers, old, new, parameters, momenta = stepping(bench, rates, start, bias)
    bench.do(TrainerOp.END)
    bench.load()
    core, counts = bench.core, Counts()
    for step in range(8):
        sums, lsb = random_sums(bench.rng, (old.rows, 16)), int(bench.rng.integers(-40, -10))
        sums = 0 * sums if step == 5 else sums
        if bias:
            core.accumulators[3 : 3 + 16 * old.rows, 16] = sums.ravel()
        else:
            core.accumulators[3 : 3 + old.rows, :16] = sums
        core.exponents[numbers["eg"]].lsb = lsb
        assert bench.trainer.run() == TrainerError.NONE
        assert bench.trainer._passes == 0
        named, velocities = {"": parameters}, {"": momenta}
        train_step(named, velocities, {"": parameter_gradient(sums, lsb)}, rates, counts)
        parameters, momenta = named[""], velocities[""]
        found = [
            bench.get(replace(new, planes=planes, offset=new.offset + first * new.plane), 16)
            for first, planes in ((0, 1), (1, 2), (3, 2))
        ]
        assert (found[0] == parameters.mantissas).all()
        assert (found[1] == parameters.residuals).all()
        assert (found[2] == momenta.mantissas).all()
        assert core.exponents[numbers["ew"]].now == parameters.exponent
        assert core.exponents[numbers["ev"]].now == core.exponents[numbers["ev"]].next == int(momenta.exponent.item())
        assert core.counts == counts
        core.chip[: 5 * old.plane] = core.chip[5 * old.plane : 10 * old.plane]


def test_an_update_that_golden_rounds_twice_is_refused():
    bench = Bench(seed=1)
    rates = Rates(learning_rate=2.0**-60, momentum=0.5)
    numbers, old, _, _, _ = stepping(bench, rates, "any")
    bench.exponents |= {numbers["ew"]: -104, numbers["ev"]: -80}
    bench.do(TrainerOp.END)
    bench.load()
    bench.core.accumulators[3 : 3 + old.rows, :16] = 1
    bench.core.exponents[numbers["eg"]].lsb = -110
    before = bench.core.exponents[numbers["ew"]].now
    assert bench.trainer.run() == TrainerError.UNDERFLOW
    assert bench.core.exponents[numbers["ew"]].now == before
