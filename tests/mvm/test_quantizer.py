"""golden.mvm.quantizer against exact fractions, and against another implementation of block formats."""

import math
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from concord.golden.mvm.quantizer import invalid, quantize_block, quantize_integer
from concord.spec.numbers.formats import Format, Rule

EVERY = np.arange(1 << 16, dtype=np.uint16)
FORMATS = [
    Format(bits=8),
    Format(bits=8, rule=Rule.CEIL),
    Format(bits=4, symmetric=True, e_min=-7, e_max=0),
    Format(bits=3, e_min=-6, e_max=9, rule=Rule.CEIL),
    Format(bits=16, symmetric=True),
    Format(bits=2, e_min=-15, e_max=-15),
    Format(bits=16, e_min=16, e_max=16),
]


def value(bits: int, *, infinity: int) -> Fraction:
    number = float(np.uint16(bits).view(np.float16))
    if math.isnan(number):
        return Fraction(0)
    return Fraction(number) if math.isfinite(number) else Fraction(int(math.copysign(infinity, number)))


def clip(number: int, low: int, high: int) -> int:
    return max(low, min(high, number))


def block_oracle(block, fmt):
    """The quantisation of one block, literally by the definition."""
    numbers = [value(int(bits), infinity=65504) for bits in block]
    largest = max(abs(number) for number in numbers)
    exponent = fmt.e_min
    if largest:
        exponent = -40
        while Fraction(2) ** exponent < largest or (fmt.rule == Rule.FREXP and Fraction(2) ** exponent == largest):
            exponent += 1
    exponent = clip(exponent, fmt.e_min, fmt.e_max)
    scale = Fraction(2) ** (fmt.bits - 1 - exponent)
    return [clip(round(number * scale), fmt.lowest, fmt.highest) for number in numbers], exponent


def blocks(rng, n, count):
    """Blocks of numbers of all magnitudes: random patterns, narrow ranges, powers of two, ties, zeros."""
    raw = rng.integers(0, 1 << 16, (count, n), dtype=np.uint16)
    near = np.ldexp(rng.integers(-64, 65, (count, n)), rng.integers(-24, 9, (count, 1))).astype(np.float16)
    powers = np.ldexp(rng.choice([-1.0, 0.0, 1.0], (count, n)), rng.integers(-24, 16, (count, n))).astype(np.float16)
    return np.concatenate([raw, near.view(np.uint16), powers.view(np.uint16), np.zeros((1, n), np.uint16)])


@pytest.mark.parametrize("fmt", FORMATS)
def test_block_by_definition(fmt):
    cases = blocks(np.random.default_rng(0), 4, 300)
    mantissas, exponents = quantize_block(cases, fmt)
    for case, mantissa, exponent in zip(cases, mantissas, exponents, strict=True):
        assert (mantissa.tolist(), exponent) == block_oracle(case, fmt), [hex(bits) for bits in case]


@pytest.mark.parametrize("fmt", FORMATS)
def test_blocks_of_one_number_each(fmt):
    mantissas, exponents = quantize_block(EVERY[:, None], fmt)
    for bits in range(0, 1 << 16, 7):
        assert (mantissas[bits].tolist(), exponents[bits]) == block_oracle([bits], fmt), hex(bits)


@cache
def rounded():
    """The nearest integer of every binary16 pattern."""
    return [round(value(bits, infinity=1 << 20)) for bits in range(1 << 16)]


@pytest.mark.parametrize("unsigned", [False, True])
@pytest.mark.parametrize("fmt", FORMATS)
def test_integers_exhaustively(fmt, unsigned):
    low, high, zero = (0, fmt.levels, fmt.zero) if unsigned else (fmt.lowest, fmt.highest, 0)
    want = [clip(number, low, high) - zero for number in rounded()]
    got = quantize_integer(EVERY, fmt, unsigned=unsigned)
    assert got.tolist() == want
    assert got.min() >= fmt.lowest
    assert got.max() <= fmt.highest


def test_invalid():
    assert [invalid(EVERY[k:k + 1]) for k in (0x7BFF, 0x7C00, 0x7C01, 0xFC00, 0xFBFF, 0x8000)] == [
        False, True, True, True, False, False]
    assert not invalid(EVERY[:0x7C00])


def test_microscaling_rule():
    """Exponent and elements equal those of an MXINT8 block in gfloat, where both definitions agree."""
    gfloat = pytest.importorskip("gfloat")
    formats = pytest.importorskip("gfloat.formats")
    fmt = Format(bits=8, symmetric=True)
    info = formats.format_info_mxint8
    rng = np.random.default_rng(1)
    for _ in range(50):
        # No element rounds up to 1: MXINT8 takes the exponent floor(log2), so that its grid is that of the frexp rule.
        scale = 2.0 ** rng.integers(-8, 8)
        numbers = (rng.uniform(-0.99, 0.99, info.k) * scale).astype(np.float16)
        numbers[0] = scale * 0.75
        mantissas, exponent = quantize_block(numbers.view(np.uint16), fmt)
        shared = gfloat.compute_scale_amax(info.etype.emax, numbers.astype(np.float64))
        elements = gfloat.quantize_block(info, numbers.astype(np.float64), gfloat.compute_scale_amax,
                                         gfloat.RoundMode.TiesToEven)
        assert shared == 2.0 ** (int(exponent) - 1)
        assert (mantissas * 2.0 ** (int(exponent) - 7)).tolist() == list(elements)
