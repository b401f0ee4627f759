"""Elements with exponents of their own: values, rounding and codes, against fractions and against ml_dtypes."""

import math
from bisect import bisect_left
from dataclasses import replace
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from concord.golden.mvm.elements import (
    decode,
    encode,
    nearest,
    pack_entries,
    pack_tiles,
    representable,
    unpack_entries,
    unpack_tiles,
)
from concord.golden.mvm.mvm import multiply
from concord.golden.mvm.quantizer import quantize_block, quantize_integer
from concord.golden.mvm.vector_rf import numbers
from concord.spec.machine.config import preset
from concord.spec.numbers.formats import Format

EVERY = np.arange(1 << 16, dtype=np.uint16)
LOG2, LOG3, LOG4 = (Format.floating(n, 0) for n in (2, 3, 4))
FLOATS = [Format.floating(*pair) for pair in ((2, 1), (2, 3), (3, 2), (3, 4), (4, 3), (5, 2), (1, 3), (3, 7))]
FORMATS = [LOG2, LOG3, LOG4, Format.floating(1, 0), *FLOATS]
ENDS = ({"e_min": 4, "e_max": 4}, {"e_min": -11, "e_max": 4}, {})
BLOCKS = [replace(fmt, **ends) for fmt in FORMATS for ends in ENDS]


def elements(fmt):
    """All mantissas of a format in rising order, literally by the definition."""
    p = fmt.precision
    sizes = {m << s for m in range(1 << p) for s in range(fmt.bits - p)}
    return sorted(sizes | {-size for size in sizes})


def oracle(value: Fraction, fmt, known):
    """The nearest mantissa; of two, the one whose magnitude is an even multiple of the larger distance between them."""
    at = bisect_left(known, value)
    if at in (0, len(known)):
        return known[min(at, len(known) - 1)]
    below, above = known[at - 1], known[at]
    if value - below != above - value:
        return below if value - below < above - value else above
    even = above if below // (above - below) % 2 else below
    return even


@pytest.mark.parametrize("fmt", FORMATS, ids=lambda fmt: fmt.element)
def test_codes_are_all_elements_and_no_other(fmt):
    codes = np.arange(1 << fmt.code_bits)
    found = decode(codes, fmt)
    assert sorted(set(found.tolist())) == elements(fmt)
    assert found.max() == fmt.highest == -fmt.lowest == -found.min()
    minus_zero = 1 << fmt.code_bits - 1
    assert (encode(found, fmt) == np.where(codes == minus_zero, 0, codes)).all()
    assert representable(found, fmt)
    assert not any(representable(np.array([0, beyond]), fmt) for beyond in (2 * fmt.highest, 2 * fmt.lowest))
    if fmt.precision < fmt.bits - 1:
        assert not representable(np.array([(1 << fmt.precision) + 1]), fmt)


def test_logarithmic_elements_are_powers_of_two():
    assert elements(LOG2) == [-4, -2, -1, 0, 1, 2, 4]
    assert (LOG3.bits, LOG3.code_bits, LOG3.highest) == (8, 4, 64)
    # Half way between two powers the larger one is taken, and 0 half way below 1.
    values = np.array([0.5, 0.501, 1.499, 1.5, 2.999, 3.0, 5.999, 6.0, -3.0, -0.5])
    assert nearest(values, LOG4).tolist() == [0, 1, 1, 2, 2, 4, 4, 8, -4, 0]


@pytest.mark.parametrize("fmt", FORMATS, ids=lambda fmt: fmt.element)
def test_rounding_by_definition(fmt):
    known, rng = elements(fmt), np.random.default_rng(1)
    middles = [(a + b) / 2 for a, b in zip(known[:-1], known[1:], strict=True)]
    values = np.array([*known, *middles, *np.nextafter(middles, np.inf), *np.nextafter(middles, -np.inf),
                       *rng.uniform(fmt.lowest, fmt.highest, 200)])
    values = rng.choice(values, 1000) if len(values) > 1000 else values
    assert nearest(values, fmt).tolist() == [oracle(Fraction(value), fmt, known) for value in values.tolist()]


@pytest.mark.parametrize(("fmt", "dtype"), [
    (Format.floating(2, 1), ml_dtypes.float4_e2m1fn), (Format.floating(2, 3), ml_dtypes.float6_e2m3fn),
    (Format.floating(3, 2), ml_dtypes.float6_e3m2fn)], ids=lambda value: getattr(value, "element", ""))
def test_formats_without_infinity_are_those_of_ml_dtypes(fmt, dtype):
    codes = np.arange(1 << fmt.code_bits, dtype=np.uint8)
    theirs = codes.view(dtype).astype(np.float64)
    unit = theirs[1]
    assert (decode(codes, fmt) * unit == theirs).all()
    x = EVERY.view(np.float16)[np.isfinite(EVERY.view(np.float16))].astype(np.float64)
    assert (np.clip(nearest(x / unit, fmt), fmt.lowest, fmt.highest) * unit == x.astype(dtype).astype(np.float64)).all()


@pytest.mark.parametrize(("fmt", "dtype"), [
    (Format.floating(3, 4), ml_dtypes.float8_e3m4), (Format.floating(4, 3), ml_dtypes.float8_e4m3),
    (Format.floating(5, 2), ml_dtypes.float8_e5m2)], ids=lambda value: getattr(value, "element", ""))
def test_formats_with_an_infinity_agree_below_it(fmt, dtype):
    largest, unit = (float(getattr(ml_dtypes.finfo(dtype), name)) for name in ("max", "smallest_subnormal"))
    x = EVERY.view(np.float16)[np.abs(EVERY.view(np.float16)) <= largest].astype(np.float64)
    assert (nearest(x / unit, fmt) * unit == x.astype(dtype).astype(np.float64)).all()


@pytest.mark.parametrize("fmt", BLOCKS, ids=lambda fmt: f"{fmt.element}, {fmt.e_min}..{fmt.e_max}")
def test_blocks_by_definition(fmt):
    rng, known = np.random.default_rng(2), elements(fmt)
    raw = rng.integers(0, 1 << 16, (30, 3), dtype=np.uint16)
    near = np.ldexp(rng.integers(-64, 65, (30, 3)), rng.integers(-24, 9, (30, 1))).astype(np.float16).view(np.uint16)
    cases = np.concatenate([raw, near, np.zeros((1, 3), np.uint16)])
    mantissas, exponents = quantize_block(cases, fmt)
    for block, got, exponent in zip(cases, mantissas, exponents, strict=True):
        values = [float(v) for v in block.view(np.float16)]
        values = [Fraction(0 if math.isnan(v) else max(-65504, min(65504, v))) for v in values]
        size, e = max(map(abs, values)), -40
        # The first power of two to which the largest magnitude does not round.
        while size and size >= Fraction(2) ** e * (1 - Fraction(1, 2 << fmt.precision)):
            e += 1
        e = max(fmt.e_min, min(fmt.e_max, e if size else fmt.e_min))
        assert (exponent, got.tolist()) == (
            e, [oracle(v * Fraction(2) ** (fmt.bits - 1 - e), fmt, known) for v in values])


@pytest.mark.parametrize("fmt", [LOG3, LOG4, Format.floating(2, 1)], ids=lambda fmt: fmt.element)
def test_integers_are_elements(fmt):
    known = elements(fmt)
    cases = np.random.default_rng(3).choice(EVERY, 2000)
    values = np.clip(np.nan_to_num(cases.view(np.float16).astype(np.float64), nan=0.0), -1e6, 1e6)
    got = quantize_integer(cases, fmt, unsigned=False)
    assert got.tolist() == [oracle(Fraction(v), fmt, known) for v in values.tolist()]
    assert (quantize_integer(cases, fmt, unsigned=True) == np.maximum(got, 0)).all()


@pytest.mark.parametrize("weights", [LOG3, Format.floating(4, 3, e_min=4, e_max=4)], ids=lambda fmt: fmt.element)
def test_memories_and_products(weights):
    activations = Format.floating(3, 2, e_min=-3, e_max=4)
    config = replace(preset("tiny"), weights=weights, activations=activations, multipliers=0, acc_int=30, acc_frac=50)
    rng, n = np.random.default_rng(4), config.native_dim
    real = rng.normal(size=(2, 3, n, n)).astype(np.float16).view(np.uint16)
    mantissas, exponents = quantize_block(real, weights)
    data = pack_tiles(config, mantissas.reshape(-1, n, n), exponents.reshape(-1, n) - weights.e_min)
    back = unpack_tiles(config, data)
    assert (back[0] == mantissas.reshape(-1, n, n)).all()
    assert (back[1] == exponents.reshape(-1, n) - weights.e_min).all()
    x = rng.normal(size=(3, n)).astype(np.float16).view(np.uint16)
    x_mantissas, x_exponents = quantize_block(x, activations)
    entries = unpack_entries(config, pack_entries(config, x_mantissas, x_exponents - activations.e_min))
    assert (entries[0] == x_mantissas).all()
    values = np.ldexp(x_mantissas.astype(float), x_exponents[:, None] - (activations.bits - 1))
    assert (numbers(config, *entries).view(np.float16) == values).all()
    # Every product and sum of these numbers is exact in float64.
    real = np.ldexp(mantissas.astype(float), exponents[..., None] - (weights.bits - 1))
    wanted = np.einsum("rcij,cj->ri", real, values).reshape(-1).astype(np.float16)
    got, _ = multiply(config, mantissas, exponents - weights.e_min, x, rows=2 * n)
    assert (got.view(np.float16) == wanted).all()


@pytest.mark.parametrize(("values", "sentence"), [
    ({"bits": 7, "precision": 1, "symmetric": True}, "a mantissa of 7 bits has no exponent field of 1 significant"),
    ({"bits": 8, "precision": 1}, "elements with a precision have a sign and a magnitude"),
    ({"bits": 8, "precision": 12, "symmetric": True}, "precision = 12: an element has 1 to 11 significant bits"),
    ({"bits": 42, "precision": 11, "symmetric": True}, "choose 12, 14, 18, 26 bits")])
def test_formats_that_do_not_exist(values, sentence):
    with pytest.raises(ValueError, match=sentence):
        Format(**values)


def test_machines_that_do_not_exist():
    tiny = preset("tiny")
    with pytest.raises(ValueError, match="multipliers = 20 must be 0: weights of E3M0 are multiplied in lookup tables"):
        replace(tiny, weights=LOG3)
    wide = replace(Format.floating(5, 2), e_min=0, e_max=0)
    with pytest.raises(ValueError, match="the sum of 8 products needs 69 bits, and golden holds 53"):
        replace(tiny, weights=wide, activations=wide, multipliers=0)
    for name in ("weights", "activations"):
        config = replace(tiny, multipliers=0, acc_frac=48, **{name: Format.floating(2, 6)})
        with pytest.raises(ValueError, match=f"{name} of E2M6 are stored in 9 bits, and hardware takes floats of at"):
            config.require_hardware()


def test_digests_of_machines_without_precision_stay():
    assert f"{preset('tiny').digest:08x}" == "54a64bf1"
    assert f"{preset('vision').digest:08x}" == "2a5036b5"
    logarithmic = replace(preset("tiny"), weights=LOG3, multipliers=0)
    assert logarithmic.digest != replace(preset("tiny"), weights=replace(LOG3, precision=0), multipliers=0).digest
