"""The lazy update: its invariant, changes of exponents, corner cases, and exhaustive tests at small widths."""

from fractions import Fraction
from itertools import product
from math import floor

import numpy as np
import pytest
from concord.golden.lazy.lazy_update import (
    Counts,
    Parameters,
    align,
    initial_parameters,
    lazy_update,
    next_change,
    one_pass,
)
from concord.golden.lazy.tensor import TrainingTensor
from concord.spec.numbers.lazy import E_MAX, E_MIN, LazyFormat, Repeat

FULL = LazyFormat()
SMALL = [LazyFormat(bits=3, residual=5, shift=4, update=5, guard=2), LazyFormat(bits=5, residual=3, shift=2, update=5),
         LazyFormat(bits=3, residual=5, shift=2, update=4, guard=1)]


def half_away(x: Fraction) -> int:
    return floor(x + Fraction(1, 2)) if x >= 0 else -floor(-x + Fraction(1, 2))


def scaled(x: int, shift: int) -> int:
    """x / 2**shift, rounded half away from zero."""
    return half_away(Fraction(x) / Fraction(2) ** shift)


def all_scaled(values, shift: int) -> np.ndarray:
    """values / 2**shift, rounded half away from zero."""
    distinct, indices = np.unique(values, return_inverse=True)
    return np.array([scaled(x, shift) for x in distinct.tolist()])[indices]


def parameters(mantissas, residuals, exponent=0, fmt=FULL):
    return Parameters(np.atleast_1d(np.int64(mantissas)), np.atleast_1d(np.int64(residuals)), exponent, fmt)


def tensor(mantissas, exponent, fmt=FULL):
    return TrainingTensor(np.atleast_1d(np.int64(mantissas)), np.int64([exponent]), fmt.update)


def exponent_of_update(shift: int, exponent: int, fmt: LazyFormat) -> int:
    """Exponent E of an update that is shifted right by `shift` bits."""
    return -shift + fmt.alignment(exponent, 0)


@pytest.mark.parametrize("fmt", SMALL, ids=["3-5", "5-3", "3-5-2"])
def test_every_step(fmt):
    """Every w, r, update, alignment and change, in tensors of one element, against fractions."""
    every = [range(-(1 << bits - 1), 1 << bits - 1) for bits in (fmt.bits, fmt.residual, fmt.update)]
    w, r, u = (np.array(x).ravel() for x in np.meshgrid(*every, indexing="ij"))
    for shift in range(-fmt.guard - fmt.shift - fmt.bits - 2, fmt.update + 2):
        aligned, over = align(u, shift, fmt)
        want = all_scaled(u, shift)
        assert (over == (np.abs(want) > fmt.limit)).all()
        assert (aligned == np.clip(want, -fmt.limit, fmt.limit)).all()
        old = Parameters(w, r, 0, fmt)
        done = one_pass(old, u, exponent_of_update(shift, 0, fmt))
        joint = (w << fmt.shift) - r - aligned
        inside = (joint == (done.mantissas << fmt.shift) - done.residuals)
        out = (done.mantissas == fmt.highest) | (done.mantissas == fmt.lowest)
        assert (inside | out & (done.residuals == 0)).all()
        assert (np.abs(done.residuals) <= 1 << fmt.shift - 1).all()
        assert bool(done.repeat & Repeat.CHANGE) == (done.change != 0)
        for change in set(fmt.changes) - {0}:
            changed = one_pass(old, u, exponent_of_update(shift, 0, fmt), change)
            new = all_scaled(joint, change)
            wanted = all_scaled(new, fmt.shift)
            fits = (wanted >= fmt.lowest) & (wanted <= fmt.highest)
            assert (changed.mantissas == np.clip(wanted, fmt.lowest, fmt.highest)).all()
            assert (((changed.mantissas << fmt.shift) - changed.residuals == new) | ~fits).all()
            assert changed.rounded == (new * 2.0**change != joint).sum()


@pytest.mark.parametrize("fmt", SMALL, ids=["3-5", "5-3", "3-5-2"])
def test_every_pair_settles(fmt):
    """For every tensor of two elements, one change of the exponent suffices, and an update of zero does not undo it."""
    reach = [range(-(1 << bits - 1), 1 << bits - 1) for bits in (fmt.bits, fmt.residual)]
    rng = np.random.default_rng(1)
    for (w, r), shift in product(product(*reach), range(-fmt.guard - 2, 4)):
        other = [int(rng.integers(x.start, x.stop)) for x in reach]
        update = rng.integers(-(1 << fmt.update - 1), 1 << fmt.update - 1, 2)
        counts = Counts()
        new = lazy_update(parameters([w, other[0]], [r, other[1]], 0, fmt),
                          tensor(update, exponent_of_update(shift, 0, fmt), fmt), counts)
        assert (new.mantissas >= fmt.lowest).all()
        assert (new.mantissas <= fmt.highest).all()
        changes = [new.exponent]
        for _ in range(fmt.bits + fmt.shift + 2):
            new = lazy_update(new, tensor([0, 0], new.exponent, fmt))
            changes.append(new.exponent)
        moves = np.sign(np.diff(changes))
        assert (moves <= 0).all(), "an update of zero raised the exponent"
        if counts.changes and changes[0] > 0:
            assert not moves.any(), "an exponent that has risen fell without an update"


def random_block(rng, fmt, size=64):
    spread = rng.integers(0, fmt.bits)
    w = rng.integers(fmt.lowest, fmt.highest + 1, size) >> spread
    r = rng.integers(-(1 << fmt.shift - 1), (1 << fmt.shift - 1) + 1, size)
    return Parameters(w, r, int(rng.integers(E_MIN, E_MAX + 1)), fmt)


def test_random_blocks_keep_the_joint_value():
    rng, counts, directions = np.random.default_rng(2), Counts(), set()
    for _ in range(4000):
        old = random_block(rng, FULL)
        update = rng.integers(-(1 << 31), 1 << 31, 64) >> rng.integers(0, 20)
        shift = int(rng.integers(-6, 40))
        exponent = exponent_of_update(shift, old.exponent, FULL)
        if not E_MIN <= exponent <= E_MAX:
            continue
        before = counts.saturations
        new = lazy_update(old, tensor(update, exponent), counts)
        if counts.saturations == before:
            change = new.exponent - old.exponent
            directions.add(np.sign(change))
            exact = old.joint - align(update, shift, FULL)[0]
            assert (new.joint == all_scaled(exact, change)).all()
    assert directions == {-1, 0, 1}
    assert min(counts.steps, counts.changes, counts.rounded, counts.saturations) > 0


def test_updates_add_up():
    """1,000 updates far below one unit of the mantissa add up without loss."""
    old = parameters([100, -100], [0, 0])
    new = old
    for _ in range(1000):
        new = lazy_update(new, tensor([1 << 20, -(1 << 20)], exponent_of_update(16, 0, FULL)))
    assert (new.joint == old.joint - np.array([16000, -16000])).all()


def test_update_of_many_units():
    new = lazy_update(parameters([100, 3], [0, 0]), tensor([-(5 << 24), 0], 0))
    assert new.exponent == 0
    assert new.mantissas.tolist() == [105, 3]
    new = lazy_update(parameters([100, 3], [0, 0]), tensor([-(1 << 30), 0], 3))  # -512 units
    assert new.exponent == 3
    assert new.mantissas.tolist() == [77, 0]  # 76.5 and 0.375
    assert (new.joint / 2**15).tolist() == [76.5, 0.375]


def test_zero_block_takes_the_exponent_of_its_update():
    for exponent in (E_MIN, -40, 0, 90):
        new = lazy_update(parameters([0, 0], [0, 0], E_MIN), tensor([-(1 << 30), 77], exponent))
        assert new.exponent == exponent
        assert new.mantissas.tolist() == [64, 0]
    still = lazy_update(parameters([0, 0], [0, 0], E_MIN), tensor([0, 0], E_MIN))
    assert still.exponent == E_MIN
    assert not still.mantissas.any()


def test_zero_mantissas_sink_to_their_residuals():
    """If all mantissas are zero and residuals are not, the exponent falls by one in each update until they show."""
    new = parameters([0, 0], [1000, -400], 10)
    for _ in range(40):
        new = lazy_update(new, tensor([0, 0], 0))
    assert FULL.small <= np.abs(new.mantissas).max() <= FULL.highest
    assert new.joint.tolist() == [-1000 << 10 - new.exponent, 400 << 10 - new.exponent]


def test_the_exponent_falls_only_where_all_mantissas_are_small():
    for largest, change in ((FULL.small - 1, -1), (FULL.small, 0)):
        assert next_change(0, largest << FULL.shift, largest, True, 10, FULL) == change
        assert one_pass(parameters([largest], [0], 10), np.array([0]), 10).change == change


def test_range_of_exponents_ends():
    counts = Counts()
    new = lazy_update(parameters([127, 0], [0, 0], E_MAX), tensor([-(1 << 30), 0], E_MAX), counts)
    assert (new.exponent, new.mantissas[0], new.residuals[0]) == (E_MAX, 127, 0)
    assert counts.saturations == 1
    new = lazy_update(parameters([1, 0], [0, 0], E_MIN), tensor([0, 0], E_MIN))
    assert (new.exponent, new.mantissas[0]) == (E_MIN, 1)


def test_start_keeps_what_mantissas_cut_off():
    rng = np.random.default_rng(3)
    for scale in (1e-30, 1e-3, 1.0, 7.0, 1e20):
        values = rng.normal(size=1000) * scale
        begun = initial_parameters(values, FULL)
        error = np.abs(begun.joint * 2.0 ** (begun.exponent - 7 - 15) - values)
        assert error.max() <= 2.0 ** (begun.exponent - 7 - 15)
        assert np.abs(begun.residuals).max() <= 1 << 14
    top = initial_parameters(np.array([1.0, -1.0, 0.25]), FULL)
    assert (top.exponent, top.mantissas.tolist(), top.residuals.tolist()) == (1, [64, -64, 16], [0, 0, 0])
    assert initial_parameters(np.zeros(3), FULL).exponent == E_MIN


@pytest.mark.parametrize("wrong", [{"bits": 2}, {"shift": 16}, {"shift": 0}, {"guard": 0}, {"update": 33}])
def test_formats_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        LazyFormat(**wrong)
