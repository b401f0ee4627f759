"""train.ptq against brute force: neither needs PyTorch."""

from itertools import product

import numpy as np
import pytest

from spec.formats import Format
from train import ptq


@pytest.mark.parametrize("fmt", [Format(bits=2), Format(bits=2, symmetric=True), Format(bits=3)])
def test_mmse_finds_the_best_integers_of_all(fmt):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(20, 4)) * rng.uniform(0.1, 10, (20, 1))
    codes, scales = ptq.mmse(rows, fmt)
    every = np.array(list(product(range(fmt.lowest, fmt.highest + 1), repeat=4)))
    for row, q, a in zip(rows, codes, scales, strict=True):
        fit = (every @ row) / np.maximum((every**2).sum(1), 1)
        best = min(np.square(row - np.maximum(fit, 0)[:, None] * every).sum(1))
        assert np.square(row - a * q).sum() == pytest.approx(best, rel=1e-9)


def test_mmse_of_many_weights_beats_every_scale_of_a_fine_grid():
    fmt = Format(bits=4, symmetric=True)
    row = np.random.default_rng(1).standard_t(3, size=300)
    codes, scales = ptq.mmse(row[None], fmt)
    grid = np.linspace(0.01, np.abs(row).max(), 20000)[:, None]
    errors = np.square(row - grid * np.clip(np.rint(row / grid), fmt.lowest, fmt.highest)).sum(1)
    assert np.square(row - scales[0] * codes[0]).sum() <= errors.min()
    assert np.array_equal(codes[0], np.clip(np.rint(row / scales[0]), fmt.lowest, fmt.highest))


def test_mmse_of_zeros_has_scale_one():
    codes, scales = ptq.mmse(np.zeros((2, 3)), Format(bits=4))
    assert not codes.any()
    assert scales.tolist() == [1, 1]


@pytest.mark.parametrize("levels", [1, 3, 14])
def test_saturation_search_is_the_best_of_its_two_grids(levels):
    samples = np.maximum(np.random.default_rng(levels).normal(size=(30, 40)), 0.0) + 0.25
    saturation, offset = ptq.saturation(samples, levels, steps=40)
    assert offset == samples.min(axis=1).mean()

    def error(b):
        return sum(np.mean([(x - ptq.quantised(x, b, offset, levels)) ** 2 for x in row]) for row in samples)

    top = samples.max() - offset
    coarse = min((top * k / 40 for k in range(1, 41)), key=error)
    fine = min((coarse + top / 40 * k / 40 for k in range(-39, 40)), key=error)
    assert saturation == pytest.approx(fine, rel=1e-9)
    assert error(saturation) <= error(top)


def test_saturation_of_a_constant_is_one():
    assert ptq.saturation(np.full((3, 4), 0.5), 14) == (1.0, 0.5)


def test_symmetric_meets_the_largest_magnitude():
    fmt = Format(bits=8, symmetric=True)
    values = np.array([-2.54, 1.27, 0.0, 0.011])
    codes, step = ptq.symmetric(values, fmt)
    assert codes.tolist() == [-127, 64, 0, 1]  # 63.5 goes to the even integer
    assert step == pytest.approx(0.02)
    assert ptq.symmetric(np.zeros(3), fmt)[1] == 1
