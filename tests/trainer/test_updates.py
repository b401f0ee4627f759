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
from concord.golden.trainer.trainer import run_together
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


#: Ranges of mantissas, residuals and momenta that a parameter begins with.
STARTS = {"zeros": (0, 0, 0), "small": (3, 1 << 14, 9), "any": (128, 1 << 14, 1 << 15)}


def stepping(bench: Bench, rates: Rates, start: str, bias: int = 0, cores: int = 0):
    """A bench whose program makes one step of a parameter, and the old and the new copy of it."""
    rng = bench.rng
    tall = 32
    old = TrainerView(planes=5, plane=tall, n0=ROWS // (8 if bias else 1), s0=1)
    new = replace(old, offset=5 * tall)
    numbers = {name: bench.exponent(0 if name == "ew" and start == "zeros" else None) for name in ("ew", "ev", "eg")}
    parts = [(0, old.n0)] if bias else [(0, 16), (16, old.n0 - 16)]  # several updates make one summary
    pairs = [
        [bench.view(replace(view, offset=view.offset + first, n0=count)) for view in (old, new)]
        for first, count in parts
    ]
    begin = len(bench.program)
    for (first, _), (before, after) in zip(parts, pairs, strict=True):
        bench.do(TrainerOp.UPDATE, old=before, new=after, acc=3 + first, bias=bias, **numbers)
    bench.repeated(begin, MeasureKind.UPDATE, e=numbers["ev"], ew=numbers["ew"], eg=numbers["eg"], cores=cores)
    set_rates(bench, rates)
    shape = old.rows, 16
    high, residual, velocity = STARTS[start]
    parameters = Parameters(
        rng.integers(-high, high + (not high), shape),
        rng.integers(-residual, residual + 1, shape),
        int(rng.integers(-8, 8)),
        FORMAT,
    )
    momenta = whole(rng.integers(-velocity, velocity + (not velocity), shape), int(rng.integers(-8, 8)), 16)
    if start == "small" and not bias:  # the last update of the summary meets zeros
        for tensor in (parameters.mantissas, parameters.residuals):
            tensor[16:] = 0
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


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("bias", [0, 1])
@pytest.mark.parametrize("seed", range(4))
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


@pytest.mark.parametrize("seed", range(6))
def test_cores_have_their_shares_of_rows(seed):
    rates = Rates(learning_rate=float(2.0 ** (seed - 5)), momentum=0.9)
    benches = [Bench(seed=100 * seed + number) for number in range(2)]
    shares = [stepping(bench, rates, "any", cores=3) for bench in benches]
    numbers, old, new, *_ = shares[0]
    lsb, first, velocity = -20, shares[0][3].exponent, int(shares[0][4].exponent.item())
    sums = random_sums(benches[0].rng, (2 * old.rows, 16))
    sums[: old.rows] >>= 8  # the second core decides, in one direction
    sums[old.rows :] = np.abs(sums[old.rows :]) * (-1) ** seed
    for number, bench in enumerate(benches):
        bench.do(TrainerOp.END)
        bench.exponents = benches[0].exponents
        bench.load()
        bench.trainer.number = number
        bench.core.exponents[numbers["eg"]].lsb = lsb
        bench.core.accumulators[3 : 3 + old.rows, :16] = sums[number * old.rows : (number + 1) * old.rows]
    assert run_together([bench.trainer for bench in benches], [(0, 0)] * 2) == [TrainerError.NONE] * 2
    w, r = (np.concatenate([getattr(share[3], name) for share in shares]) for name in ("mantissas", "residuals"))
    named, counts = {"": Parameters(w, r, first, FORMAT)}, Counts()
    velocities = {"": whole(np.concatenate([share[4].mantissas for share in shares]), velocity, 16)}
    train_step(named, velocities, {"": parameter_gradient(sums, lsb)}, rates, counts)
    for offset, planes, wanted in (
        (0, 1, named[""].mantissas),
        (1, 2, named[""].residuals),
        (3, 2, velocities[""].mantissas),
    ):
        part = replace(new, planes=planes, offset=new.offset + offset * new.plane)
        assert (np.concatenate([bench.get(part, 16) for bench in benches]) == wanted).all()
    for bench in benches:
        assert bench.core.exponents[numbers["ew"]].now == named[""].exponent
        assert bench.core.exponents[numbers["ev"]].now == int(velocities[""].exponent.item())
    assert sum(bench.core.counts.steps for bench in benches) == counts.steps
