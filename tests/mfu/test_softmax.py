"""The softmax of golden against real numbers, its tables over all distances, and the unit against golden."""

import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from concord.golden.lib.float16 import NAN
from concord.golden.mfu.softmax import exponential, fraction, softmax
from concord.spec.numbers.softmax import DISTANCE_BITS, LOW_BITS, MOST_ELEMENTS, TERM_BITS, fractions, sum_bits, wholes

UNIT = 2.0**-DISTANCE_BITS


def bits(values):
    return np.asarray(values, np.float16).view(np.uint16)


def values(patterns):
    return patterns.view(np.float16).astype(np.float64)


def real(row):
    """The softmax of binary16 numbers in 40 decimal digits, rounded to float64."""
    with localcontext() as context:
        context.prec = 40
        numbers = [Decimal(float(x)) for x in values(row)]
        powers = [(x - max(numbers)).exp() for x in numbers]
        return np.array([float(power / sum(powers)) for power in powers])


def ulps(row):
    """Distance of each result from the real softmax, in units of the last place of the real value."""
    wanted = real(row)
    unit = 2.0 ** np.maximum(np.floor(np.log2(np.maximum(wanted, 2.0**-30))) - 10, -24)
    return np.abs(values(softmax(row)) - wanted) / unit


def literal(row):
    """The softmax of finite binary16 numbers by the formulas of `spec.numbers.softmax`, one number after the other."""
    scaled = [math.floor(Fraction(x) * 2**16) for x in values(row).tolist()]
    terms = []
    for distance in (max(scaled) - one for one in scaled):
        whole, t = divmod(distance, 2**16)
        segment, low = fractions()[t >> LOW_BITS], t % 2**LOW_BITS
        last = wholes()[whole] if whole < len(wholes()) else None
        near = segment.base - (segment.slope * low >> LOW_BITS)
        terms.append(near * last.factor >> last.shift if last else 0)
    quotients = [Fraction(term, sum(terms)) for term in terms]
    units = [Fraction(2) ** (max(-14, math.frexp(quotient)[1] - 1) - 10) for quotient in quotients]
    return [float(round(y / unit) * unit) for y, unit in zip(quotients, units, strict=True)]


def test_terms_over_all_distances_fall_and_are_exp():
    distance = np.arange(len(wholes()) + 1 << DISTANCE_BITS)
    e, scale = exponential(distance), exponential(np.array([0]))[0]
    assert e.dtype == np.int64
    assert (np.diff(e) <= 0).all()
    assert e[-1 << DISTANCE_BITS:].max() == 0
    assert e.max() == scale < 1 << TERM_BITS
    wanted = np.exp(-distance * UNIT) * scale
    # The tables err by three parts in 2**16 at most; the shift drops less than one unit.
    assert (np.abs(e - wanted) <= wanted * 3 * 2.0**-16 + 1).all()
    far = np.array([len(wholes()) << DISTANCE_BITS, 1 << 33])
    assert (exponential(far) == 0).all()


def test_chords_meet_at_their_ends():
    t = np.arange(1 << DISTANCE_BITS)
    assert (np.diff(fraction(t)) <= 0).all()
    assert (np.diff(fraction(t)) >= -3).all()
    ends = [segment.base - segment.slope for segment in fractions()]
    assert ends[:-1] == [segment.base for segment in fractions()[1:]]


@pytest.mark.parametrize("scale", [2.0**-10, 0.02, 0.5, 2, 6, 40, 3000])
@pytest.mark.parametrize("elements", [1, 2, 10, 35])
def test_random_rows_are_within_one_ulp(scale, elements):
    rng = np.random.default_rng(elements)
    rows = bits(rng.normal(0, scale, (30, elements)))
    assert max(ulps(row).max() for row in rows) < 0.8


def test_two_elements_at_every_distance_of_binary16():
    distances = np.arange(0x4E00, dtype=np.uint16)[::7]  # 0 to 24
    rows = np.stack([distances | 0x8000, np.zeros_like(distances)], 1)
    exact = np.exp(values(rows[:, :1]))
    wanted = np.concatenate([exact, np.ones_like(exact)], 1) / (1 + exact)
    unit = 2.0 ** np.maximum(np.floor(np.log2(wanted)) - 10, -24)
    assert (np.abs(values(softmax(rows)) - wanted) / unit).max() < 0.8


@pytest.mark.parametrize("row", [
    np.zeros(MOST_ELEMENTS), np.full(MOST_ELEMENTS, -17.3) + 17.3 * (np.arange(MOST_ELEMENTS) == 5),
    np.full(1000, -7.0) + 7 * (np.arange(1000) < 3), np.array([65504.0, -65504, 65504]), np.array([6e-8, -6e-8, 0.0]),
    np.array([-65504.0, -65472, -65440]), -np.log(np.arange(1.0, 200)),
])
def test_long_and_extreme_rows_are_within_one_ulp(row):
    assert ulps(bits(row)).max() < 0.8


@pytest.mark.parametrize("scale", [2.0**-12, 2.0**-8, 0.1, 4])
def test_formulas_of_the_specification(scale):
    rows = bits(np.random.default_rng(2).normal(0, scale, (60, 9)))
    assert values(softmax(rows)).tolist() == [literal(row) for row in rows]


def test_half_of_the_smallest_number_is_rounded_to_zero():
    """The sum is 2**28, and a term of 8 is half way between 0 and 2**-24."""
    eight = next(x for x in np.arange(-17.5, -17, 2.0**-6) if exponential(np.array([int(-x * 2**16)]))[0] == 8)
    row = bits([0.0] + [eight] * 512)
    assert literal(row)[1] == 0
    assert values(softmax(row)).tolist() == literal(row)


def test_results_rise_with_the_elements():
    rows = np.random.default_rng(3).integers(0, 1 << 16, (400, 12), dtype=np.uint16) & 0xCFFF  # below 16, no NaN
    order = np.argsort(values(rows), axis=1)
    assert (np.diff(np.take_along_axis(values(softmax(rows)), order, 1)) >= 0).all()


def test_axes_and_types():
    rows = bits(np.random.default_rng(1).normal(0, 2, (2, 3, 5)))
    got = softmax(rows)
    assert got.dtype == np.uint16
    assert got.shape == rows.shape
    assert (got[1, 2] == softmax(rows[1, 2])).all()


@pytest.mark.parametrize(("row", "wanted"), [
    ([np.nan, 1, 2], None), ([np.inf, 1, 2], None), ([np.inf, np.inf], None), ([-np.inf, -np.inf], None),
    ([np.inf, -np.inf], None), ([-np.inf], None), ([-np.inf, 0, -np.inf], [0, 1, 0]), ([-np.inf, 3, 3], [0, 0.5, 0.5]),
    ([0.0, -0.0], [0.5, 0.5]), ([65504, -65504], [1, 0]), ([7], [1]), ([-np.inf, -65504], [0, 1]),
])
def test_values_that_are_not_finite(row, wanted):
    """They give what numpy gives: exp(x - max) / sum is NaN wherever an infinity is subtracted from itself."""
    got = softmax(bits(row))
    with np.errstate(all="ignore"):
        powers = np.exp(np.array(row, np.float64) - np.max(row))
        numpys = powers / powers.sum()
    if wanted is None:
        assert np.isnan(numpys).all()
        assert (got == NAN).all()
    else:
        assert numpys.tolist() == wanted
        assert got.tolist() == bits(wanted).tolist()


def test_sum_bits_hold_the_largest_sum():
    for elements in (1, 2, 3, 10, MOST_ELEMENTS):
        assert elements * int(exponential(np.array([0]))[0]) < 1 << sum_bits(elements)
