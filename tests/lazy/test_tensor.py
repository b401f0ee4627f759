"""Training tensors: quantising against exact rational arithmetic, along any axes, at both ends of the exponents."""

from fractions import Fraction
from math import floor

import numpy as np
import pytest
from concord.golden.lazy.tensor import TrainingTensor, ceil_log2, measure, requantize, round_shift, to_training_tensor
from concord.spec.numbers.lazy import E_MAX, E_MIN

WIDTHS = (8, 16, 32)


def half_away(x: Fraction) -> int:
    return floor(x + Fraction(1, 2)) if x >= 0 else -floor(-x + Fraction(1, 2))


def by_the_book(values: list[Fraction], bits: int) -> tuple[list[int], int]:
    """Mantissas and E of one tensor by the definition."""
    largest = max(map(abs, values))
    exponent = E_MIN
    if largest:
        exponent = min((e for e in range(-400, 400) if largest <= Fraction(2) ** e), default=400)
        exponent = max(E_MIN, min(E_MAX, exponent))
    top = (1 << bits - 1) - 1
    mantissas = [half_away(v * Fraction(2) ** (bits - 1 - exponent)) for v in values]
    return [max(-top - 1, min(top, m)) for m in mantissas], exponent


def same(tensor: TrainingTensor, want: tuple[list[int], int]):
    assert tensor.mantissas.tolist() == want[0]
    assert tensor.exponent.item() == want[1]


@pytest.mark.parametrize("bits", WIDTHS)
def test_real_numbers(bits):
    rng = np.random.default_rng(bits)
    for _ in range(150):
        values = rng.normal(size=rng.integers(1, 6)) * 2.0 ** rng.integers(-150, 150, 1)
        values = np.where(rng.random(values.shape) < 0.2, 2.0 ** rng.integers(-20, 20), values)  # powers of two
        values = np.where(rng.random(values.shape) < 0.2, 0.0, values)
        same(to_training_tensor(values, bits), by_the_book([Fraction(v) for v in values.tolist()], bits))


@pytest.mark.parametrize("bits", WIDTHS)
def test_exact_sums(bits):
    rng = np.random.default_rng(bits)
    for _ in range(200):
        sums = rng.integers(-(1 << 62), 1 << 62, rng.integers(1, 6)) >> rng.integers(0, 63)
        lsb = int(rng.choice([rng.integers(-60, 60), rng.integers(-300, 300)]))
        want = by_the_book([Fraction(s) * Fraction(2) ** lsb for s in sums.tolist()], bits)
        same(requantize(sums, lsb, bits), want)
        assert measure(sums, lsb).item() == want[1]


@pytest.mark.parametrize("bits", WIDTHS)
def test_halves_go_away_from_zero_and_powers_of_two_saturate(bits):
    top = (1 << bits - 1) - 1
    tensor = to_training_tensor(np.array([1.0, -1.0, 2.0**-bits, -(2.0**-bits), 2.0 ** -(bits + 1)]), bits)
    assert tensor.mantissas.tolist() == [top, -top - 1, 1, -1, 0]
    assert tensor.exponent.item() == 0


def test_ends_of_the_exponents():
    assert to_training_tensor(np.zeros(3), 8).exponent.item() == E_MIN
    assert to_training_tensor(np.array([2.0**200, -(2.0**120)]), 8).mantissas.tolist() == [127, -1]
    assert to_training_tensor(np.array([2.0**-150, 2.0**-130]), 16).mantissas.tolist() == [0, 2048]
    assert to_training_tensor(np.array([np.inf, -np.inf, np.nan]), 8).mantissas.tolist() == [127, -128, 0]
    assert requantize(np.array([5]), 400, 8).mantissas.tolist() == [127]
    assert requantize(np.array([5]), -400, 8).mantissas.tolist() == [0]


@pytest.mark.parametrize("axes", [None, 0, 1, 2, (0, 2), (1, 2), (0, 1, 2)])
def test_blocks_along_any_axes(axes):
    rng = np.random.default_rng(3)
    values = rng.normal(size=(3, 4, 5)) * 2.0 ** rng.integers(-9, 9, (3, 4, 5))
    tensor = to_training_tensor(values, 8, axes)
    inside = {None: (0, 1, 2)}.get(axes, (axes,) if isinstance(axes, int) else axes)
    outside = [axis for axis in range(3) if axis not in inside]
    assert tensor.exponent.shape == tuple(1 if axis in inside else values.shape[axis] for axis in range(3))
    for index in np.ndindex(*(values.shape[axis] for axis in outside)):
        where = tuple(index[outside.index(axis)] if axis in outside else slice(None) for axis in range(3))
        alone = to_training_tensor(values[where], 8)
        assert (tensor.mantissas[where] == alone.mantissas).all()
        assert (tensor.exponent[where] == alone.exponent.item()).all()
    assert np.abs(tensor.values - values).max() <= 2.0 ** tensor.lsb.max()


def test_shifts_and_logarithms():
    values = np.array([5, -5, 6, -6, 7, 0, (1 << 62) - 1])
    assert round_shift(values, 1).tolist() == [3, -3, 3, -3, 4, 0, 1 << 61]
    assert round_shift(values[:3], -2).tolist() == [20, -20, 24]
    assert round_shift(values, 63).tolist() == [0] * 7
    assert ceil_log2([0, 1, 2, 3, 4, 5, (1 << 53) + 1, 1 << 62]).tolist() == [0, 0, 1, 2, 2, 3, 54, 62]
