"""Lazy updates of parameters by messages, on golden and on hardware."""

import numpy as np
import pytest
from concord.golden.lazy.lazy_update import Counts, Parameters, lazy_update
from concord.golden.lazy.tensor import TrainingTensor
from concord.golden.lazy.update_messages import update_message, updated_of
from concord.sim.machines.host import machine
from concord.spec.host.messages import MessageKind, unpack
from concord.spec.host.registers import Counter
from concord.spec.machine.config import preset
from concord.spec.numbers.lazy import E_MIN, LazyFormat, Repeat

CONFIG = preset("tiny")
FULL = LazyFormat()


def updated(nnp, old: Parameters, update: TrainingTensor) -> Parameters:
    """Do what a host does: send a tensor as many times as the unit asks for."""
    exponent, change = update.exponent.item(), 0
    for _ in range(3):
        nnp.send(update_message(nnp.config, old, update.mantissas, exponent, change))
        (reply,) = (unpack(nnp.config, data, to_machine=False) for data in nnp.receive())
        assert reply.kind == MessageKind.UPDATED
        mantissas, residuals, repeat, wanted = updated_of(nnp.config, reply, len(old.mantissas))
        if not repeat:
            return Parameters(mantissas, residuals, old.exponent + change, FULL)
        if repeat & Repeat.FRESH:
            old = Parameters(old.mantissas, old.residuals, exponent, FULL)
        elif repeat & Repeat.CHANGE:
            change = wanted
    raise AssertionError("a tensor asks for a fourth pass")


def blocks(rng):
    """Tensors of all sizes, some of zeros, with updates from negligible to far too large."""
    size = int(rng.integers(1, 40))
    zero = rng.random() < 0.15
    old = Parameters(
        np.where(zero, 0, rng.integers(-128, 128, size) >> rng.integers(0, 7)),
        np.where(zero, 0, rng.integers(-(1 << 14), (1 << 14) + 1, size)), int(rng.integers(-60, 60)), FULL)
    update = rng.integers(-(1 << 31), 1 << 31, size) >> rng.integers(0, 16)
    return old, TrainingTensor(update, np.array([old.exponent + int(rng.integers(-24, 16))]), FULL.update)


@pytest.mark.parametrize("kind", ["golden", "library"])
def test_machines_update_as_golden_does(kind):
    rng, counts = np.random.default_rng(1), Counts()
    with machine(kind, CONFIG, **({"seed": 1, "gap": 0.2, "stall": 0.2} if kind == "library" else {})) as nnp:
        nnp.clear()
        for _ in range(150):
            old, update = blocks(rng)
            want, got = lazy_update(old, update, counts), updated(nnp, old, update)
            assert got.exponent == want.exponent
            assert (got.mantissas == want.mantissas).all()
            assert (got.residuals == want.residuals).all()
        for counter, count in ((Counter.LAZY_STEPS, counts.steps), (Counter.LAZY_CHANGES, counts.changes),
                               (Counter.LAZY_ROUNDED, counts.rounded), (Counter.LAZY_SATURATIONS, counts.saturations)):
            assert nnp.counter(counter) == count > 0


def test_a_machine_without_the_unit_refuses():
    old, update = blocks(np.random.default_rng(2))
    data = update_message(preset("speech"), old, update.mantissas, E_MIN)
    with pytest.raises(ValueError, match="no lazy-update unit"):
        unpack(preset("speech"), data, to_machine=True)
