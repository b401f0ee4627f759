"""net.quantize against brute force; both work without PyTorch."""

from itertools import product

import numpy as np
import pytest
from concord.net.quantize import tensors as ptq
from concord.net.quantize import weights as quantizers
from concord.net.quantize.ranges import BINS, divergence, gaussian, quantized, search, unit_step
from concord.net.quantize.recipe import ActivationMethod, WeightMethod
from concord.net.quantize.weights import Grid, kmeans
from concord.spec.numbers.formats import Format


@pytest.mark.parametrize("fmt", [Format(bits=2), Format(bits=2, symmetric=True), Format(bits=3)])
def test_mmse_finds_the_best_integers_of_all(fmt):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(20, 4)) * rng.uniform(0.1, 10, (20, 1))
    codes, scales = ptq.weights(rows, fmt)
    every = np.array(list(product(range(fmt.lowest, fmt.highest + 1), repeat=4)))
    for row, q, a in zip(rows, codes, scales, strict=True):
        fit = (every @ row) / np.maximum((every**2).sum(1), 1)
        best = min(np.square(row - np.maximum(fit, 0)[:, None] * every).sum(1))
        assert np.square(row - a * q).sum() == pytest.approx(best, rel=1e-9)


def test_mmse_of_many_weights_beats_every_scale_of_a_fine_grid():
    fmt = Format(bits=4, symmetric=True)
    row = np.random.default_rng(1).standard_t(3, size=300)
    codes, scales = ptq.weights(row[None], fmt)
    grid = np.linspace(0.01, np.abs(row).max(), 20000)[:, None]
    errors = np.square(row - grid * np.clip(np.rint(row / grid), fmt.lowest, fmt.highest)).sum(1)
    assert np.square(row - scales[0] * codes[0]).sum() <= errors.min()
    assert np.array_equal(codes[0], np.clip(np.rint(row / scales[0]), fmt.lowest, fmt.highest))


def test_mmse_of_zeros_has_scale_one():
    codes, scales = ptq.weights(np.zeros((2, 3)), Format(bits=4))
    assert not codes.any()
    assert scales.tolist() == [1, 1]


@pytest.mark.parametrize("levels", [1, 3, 14])
def test_saturation_search_is_the_best_of_its_two_grids(levels):
    samples = np.maximum(np.random.default_rng(levels).normal(size=(30, 40)), 0.0) + 0.25
    saturation, offset = search(samples, levels, steps=40)
    assert offset == samples.min(axis=1).mean()

    def error(b):
        return sum(np.mean([(x - quantized(x, b, offset, levels)) ** 2 for x in row]) for row in samples)

    top = samples.max() - offset
    coarse = min((top * k / 40 for k in range(1, 41)), key=error)
    fine = min((coarse + top / 40 * k / 40 for k in range(-39, 40)), key=error)
    assert saturation == pytest.approx(fine, rel=1e-9)
    assert error(saturation) <= error(top)


def test_saturation_of_a_constant_is_one():
    assert ptq.activations(np.full((3, 4), 0.5), 14) == (1.0, 0.5)


def test_symmetric_meets_the_largest_magnitude():
    fmt = Format(bits=8, symmetric=True)
    values = np.array([-2.54, 1.27, 0.0, 0.011])
    codes, step = ptq.symmetric(values, fmt)
    assert codes.tolist() == [-127, 64, 0, 1]  # 63.5 rounds to the even integer
    assert step == pytest.approx(0.02)
    assert ptq.symmetric(np.zeros(3), fmt)[1] == 1


@pytest.mark.parametrize("method", list(WeightMethod))
def test_rows_of_a_part_share_a_scale(method):
    rng, fmt = np.random.default_rng(2), Format(bits=4, symmetric=True)
    rows = rng.normal(size=(6, 50)) * rng.uniform(0.5, 2, (6, 1))
    parts = np.array([0, 0, 1, 1, 1, 2])
    codes, scales = ptq.weights(rows, fmt, method, parts)
    for part in range(3):
        found, scale = ptq.weights(rows[parts == part].reshape(1, -1), fmt, method)
        assert (codes[parts == part].ravel() == found[0]).all()
        assert (scales[parts == part] == scale[0]).all()
    assert fmt.lowest <= codes.min() <= codes.max() <= fmt.highest


def test_uniform_weights_clip_nothing():
    fmt = Format(bits=3)
    for row in (np.array([-4.0, 1.0, 2.9]), np.array([-1.0, 3.0, 0.2])):
        codes, scales = ptq.weights(row[None], fmt, "uniform")
        assert np.abs(row - scales[0] * codes[0]).max() <= scales[0] / 2
        assert codes.max() == fmt.highest or codes.min() == fmt.lowest


def test_clusters_are_the_nearest_and_their_own_means():
    """If values form as many clusters as there are integers, on an uneven grid, each cluster gets one integer."""
    rng, fmt = np.random.default_rng(3), Format(bits=2)
    heaps = np.array([-2.1, -0.9, 0.1, 1.2])
    values = (heaps[:, None] + 0.01 * rng.normal(size=(4, 200))).ravel()
    codes, scale = kmeans(values, Grid.of(fmt))
    assert codes.reshape(4, 200).tolist() == [[q] * 200 for q in (-2, -1, 0, 1)]
    means = values.reshape(4, 200).mean(1)
    assert scale == pytest.approx(means @ np.arange(-2, 2) / 6)


def test_clusters_lose_no_more_than_quantiles():
    rng, fmt = np.random.default_rng(4), Format(bits=3, symmetric=True)
    values = rng.standard_t(3, 400)
    codes, scale = kmeans(values, Grid.of(fmt))
    best = ptq.weights(values[None], fmt)
    assert ptq.decibels(values, best[1][0] * best[0][0]) >= ptq.decibels(values, scale * codes)
    assert ptq.decibels(values, scale * codes) > 5


@pytest.mark.parametrize("levels", [3, 15])
def test_divergence_is_the_least_of_all_saturations(levels):
    samples = np.abs(np.random.default_rng(levels).standard_t(3, (40, 100))) + 0.5
    saturation, offset = divergence(samples, levels)
    assert offset == samples.min(axis=1).mean()
    top = samples.max() - offset
    counts = np.histogram(np.clip(samples - offset, 0, top), BINS, (0, top))[0]

    def diverges(bins):
        kept, outside = counts[:bins].astype(float), counts[bins:].sum()
        if outside + kept[-1] > 0 and not kept[-1]:
            return np.inf
        p, q = kept.copy(), np.zeros(bins)
        p[-1] += outside
        codes = [round((k + 0.5) / bins * levels) for k in range(bins)]
        for code in set(codes):
            mine = [k for k in range(bins) if codes[k] == code and kept[k]]
            for k in mine:
                q[k] = sum(kept[mine]) / len(mine)
        return sum(a / p.sum() * np.log(a / p.sum() / (b / q.sum())) for a, b in zip(p, q, strict=True) if b)

    some = sorted({round(saturation / top * BINS), *range(levels + 1, BINS + 1, 97), BINS})
    found = {bins: diverges(bins) for bins in some}
    assert min(found, key=found.get) == round(saturation / top * BINS)
    assert saturation < top


def test_uniform_activations_span_the_range():
    samples = np.array([[0.5, 2.0], [0.25, 1.0]])
    assert ptq.activations(samples, 15, "uniform") == (1.75, 0.25)
    assert ptq.activations(np.ones((2, 2)), 15, "uniform") == (1.0, 1.0)


def test_an_unknown_method_is_named():
    with pytest.raises(ValueError, match="'best' is not a valid WeightMethod"):
        ptq.weights(np.ones((1, 2)), Format(bits=4), "best")


def test_decibels():
    assert ptq.decibels(np.array([10.0, 0.0]), np.array([9.0, 0.0])) == pytest.approx(20)
    assert ptq.decibels(np.ones(3), np.ones(3)) == np.inf


@pytest.mark.parametrize("bits", [1, 2, 3])
def test_mmse_of_odd_integers_finds_the_best_of_all(bits):
    grid, rng = Grid.odd(bits), np.random.default_rng(bits)
    row = rng.normal(size=5)
    every = range(grid.lowest, grid.highest + 1, 2)

    def error(codes):
        codes = np.array(codes, np.float64)
        return np.square(row).sum() - max(row @ codes, 0) ** 2 / (codes @ codes)

    codes, scales = ptq.weights(row[None], grid)
    assert set(codes.ravel()) <= set(every)
    found = np.square(row - scales[0] * codes[0]).sum()
    assert found <= min(error(codes) for codes in product(every, repeat=5)) + 1e-12


@pytest.mark.parametrize("method", list(WeightMethod))
def test_odd_integers_of_every_method(method):
    rng = np.random.default_rng(9)
    codes, scales = ptq.weights(rng.normal(size=(3, 40)), Grid.odd(3), method)
    assert (codes % 2 == 1).all()
    assert abs(codes).max() == 7
    assert (scales > 0).all()


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_some_scales_find_nearly_the_error_of_all_scales(bits, monkeypatch):
    rows, fmt = np.random.default_rng(0).standard_t(4, (8, 200)), Format(bits=bits, symmetric=True)

    def error() -> float:
        codes, scales = ptq.weights(rows, fmt)
        return np.square(rows - scales[:, None] * codes).sum()

    least = error()
    monkeypatch.setattr(quantizers, "FINE", 0)
    assert least <= error() <= 1.05 * least


@pytest.mark.parametrize("bits", [11, 16, 24])
def test_many_integers_lose_no_more_than_the_range_does(bits):
    rows, grid = np.random.default_rng(0).standard_t(4, (4, 784)), Grid(1 - (1 << bits - 1), (1 << bits - 1) - 1)
    (codes, scales), (full, range_scales) = (ptq.weights(rows, grid, method) for method in ("mmse", "uniform"))
    errors = [np.square(rows - one[:, None] * found).sum(1) for found, one in ((codes, scales), (full, range_scales))]
    assert (errors[0] <= errors[1]).all()
    assert abs(codes).max() == grid.highest


def test_gaussian_steps_are_best_for_a_half_wave():
    """Steps against a search over a grid, on samples; the best step for three outputs is 1.224 (Max, 1960)."""
    samples = np.maximum(np.random.default_rng(0).normal(size=(200, 5000)) * 3, 0)
    for levels in 1, 3, 7:
        saturation, offset = gaussian(samples, levels)
        assert offset == 0
        steps = np.linspace(0.7, 1.3, 61) * saturation / levels
        errors = [np.square(samples - step * np.clip(np.rint(samples / step), 0, levels)).mean() for step in steps]
        assert abs(steps[int(np.argmin(errors))] / (saturation / levels) - 1) < 0.05
    assert unit_step(1) == pytest.approx(1.224, abs=0.01)


def test_a_given_offset_is_kept():
    samples = np.random.default_rng(1).normal(size=(4, 100)) + 3
    for method in ActivationMethod:
        assert ptq.activations(samples, 15, method, 0.5)[1] == 0.5


def test_both_ends_are_searched():
    """The minima of samples of few elements say little of the smallest value; behind a relu, the offset stays 0."""
    samples = np.random.default_rng(1).normal(size=(256, 20))

    def error(method: ActivationMethod, levels: int) -> float:
        saturation, offset = ptq.activations(samples, levels, method)
        return np.square(quantized(samples, saturation, offset, levels) - samples).mean()

    for levels in 15, 254:
        assert error(ActivationMethod.ENDS, levels) < error(ActivationMethod.UNIFORM, levels)
        assert error(ActivationMethod.ENDS, levels) < 0.9 * error(ActivationMethod.SEARCH, levels)
    power = np.square(samples).mean()
    decibels = [round(10 * np.log10(power / error(method, 254)))
                for method in (ActivationMethod.ENDS, ActivationMethod.SEARCH)]
    assert decibels == [41, 21], "docs/quantisation.md has these numbers"
    clipped = samples.clip(0)
    assert ptq.activations(clipped, 15, ActivationMethod.ENDS) == ptq.activations(clipped, 15, offset=0.0)
    assert ptq.activations(clipped * 0, 15, ActivationMethod.ENDS)[0] > 0


@pytest.mark.parametrize("method", list(ActivationMethod))
@pytest.mark.parametrize("mean", [-3.0, 0.5, 3.0])
def test_the_range_of_padded_inputs_includes_zero(method, mean):
    samples = np.random.default_rng(1).normal(mean, 0.5, size=(4, 100))
    saturation, offset = ptq.activations(samples, 15, method, padded=True)
    assert offset <= 0 <= saturation + offset
    alone = ptq.activations(samples, 15, method)
    if alone[1] > 0:
        assert (saturation, offset) == ptq.activations(samples, 15, method, 0.0)
    elif sum(alone) >= 0:
        assert (saturation, offset) == alone


def test_a_given_offset_must_leave_a_code_for_padding():
    with pytest.raises(ValueError, match="offset 0.5 leaves no code for the zeros of the padding"):
        ptq.activations(np.ones((1, 2)), 15, offset=0.5, padded=True)
