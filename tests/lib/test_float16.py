"""golden.lib.float16 against fractions, numpy, gfloat and, if its vectors are installed, Berkeley TestFloat."""

import lzma
import operator
import os
from fractions import Fraction
from pathlib import Path

import gfloat
import numpy as np
import pytest
from concord.golden.lib import float16
from gfloat.formats import format_info_binary16

EVERY = np.arange(1 << 16, dtype=np.uint16)
NUMBERS = EVERY[~float16.is_nan(EVERY)]
FOLDER = Path(os.environ.get("CONCORD_VECTORS", Path(__file__).parents[3] / "shared" / "vectors"))


def rounded(value: Fraction) -> int:
    """Bits of a fraction by the definition: the nearest multiple of its unit in the last place, ties to even."""
    if not value:
        return 0
    magnitude = abs(value)
    exponent = max(-14, magnitude.numerator.bit_length() - magnitude.denominator.bit_length())
    if exponent > -14 and Fraction(2) ** exponent > magnitude:
        exponent -= 1
    digits = round(magnitude * Fraction(2) ** (10 - exponent))
    return (value < 0) << 15 | min((exponent + 14 << 10) + digits, float16.INFINITY)


def value(bits: np.uint16) -> Fraction:
    return Fraction(float(bits.view(np.float16)))


def pairs(seed: int, count: int):
    """Random pairs: some of any bit patterns, some with close exponents, whose sums cancel."""
    rng = np.random.default_rng(seed)
    a = rng.integers(0, 1 << 16, count, dtype=np.uint16)
    b = rng.integers(0, 1 << 16, count, dtype=np.uint16)
    sign = rng.choice(np.array([0x8000, 0], np.uint16), count)
    near = (a ^ sign) + rng.integers(-3000, 3000, count).astype(np.uint16)
    return a, np.where(rng.random(count) < 0.5, b, near)


@pytest.mark.parametrize("name", ["add", "sub", "mul"])
def test_arithmetic_is_exact_and_rounded_once(name):
    a, b = pairs(1, 6000)
    finite = ((a & 0x7C00) < 0x7C00) & ((b & 0x7C00) < 0x7C00)
    a, b = a[finite], b[finite]
    exact = {"add": Fraction.__add__, "sub": Fraction.__sub__, "mul": Fraction.__mul__}[name]
    got = getattr(float16, name)(a, b)
    for x, y, z in zip(a, b, got, strict=True):
        total = exact(value(x), value(y))
        assert z & (0xFFFF if total else 0x7FFF) == rounded(total), f"{name} {x:04x} {y:04x}"


@pytest.mark.parametrize("name", ["add", "sub", "mul"])
def test_arithmetic_is_numpy_in_double_precision(name):
    # Sums and products of two binary16 numbers are exact in binary64, so that its cast is the only rounding.
    a, b = pairs(2, 2_000_000)
    operation = {"add": np.add, "sub": np.subtract, "mul": np.multiply}[name]
    with np.errstate(all="ignore"):
        want = operation(a.view(np.float16).astype(float), b.view(np.float16).astype(float)).astype(np.float16)
    want = np.where(np.isnan(want), np.uint16(float16.NAN), want.view(np.uint16))
    assert (getattr(float16, name)(a, b) == want).all()


def test_every_nan_becomes_the_canonical_one():
    nans = EVERY[float16.is_nan(EVERY)]
    assert nans.size == 2 * 1023
    for operation in (float16.add, float16.sub, float16.mul, float16.maximum):
        for other in np.array([0, 0x3C00, 0xFC00, 0xFFFF], np.uint16):
            assert (operation(nans, other) == float16.NAN).all()
            assert (operation(other, nans) == float16.NAN).all()
    infinity, minus, zero = np.array([0x7C00, 0xFC00, 0], np.uint16)
    assert float16.sub(infinity, infinity) == float16.add(infinity, minus) == float16.mul(zero, minus) == float16.NAN


def test_zero_has_the_sign_of_the_standard():
    plus, minus, one = np.array([0, 0x8000, 0x3C00], np.uint16)
    assert float16.add(minus, minus) == float16.sub(minus, plus) == float16.mul(minus, one) == minus
    assert float16.add(plus, minus) == float16.add(minus, plus) == float16.sub(one, one) == plus


def test_maximum():
    a, b = pairs(3, 1_000_000)
    got, x, y = float16.maximum(a, b), a.view(np.float16), b.view(np.float16)
    numbers = ~(np.isnan(x) | np.isnan(y))
    assert (got[~numbers] == float16.NAN).all()
    assert (got[numbers] == np.where(x >= y, a, b)[numbers])[(x != 0)[numbers]].all()
    plus, minus = np.array([0, 0x8000], np.uint16)
    assert float16.maximum(plus, minus) == float16.maximum(minus, plus) == plus
    assert float16.maximum(minus, minus) == minus


def test_relu_of_every_input():
    x = EVERY.view(np.float16)
    want = np.where(np.isnan(x), np.uint16(float16.NAN), np.where(x > 0, EVERY, np.uint16(0)))
    assert (float16.relu(EVERY) == want).all()


def test_from_integer_of_every_number():
    # Every finite binary16 number is an integer times 2**-24, and is converted back to itself.
    finite = NUMBERS[(NUMBERS & 0x7C00) < 0x7C00]
    integers = (finite.view(np.float16).astype(float) * 2**24).astype(np.int64)
    assert (float16.from_integer(integers, 24) == np.where(finite == 0x8000, np.uint16(0), finite)).all()


@pytest.mark.parametrize("bits", [8, 16, 32, 62, 63])
def test_from_integer_against_fractions(bits):
    rng = np.random.default_rng(bits)
    scales = rng.integers(-32, 101, 4000)
    values = rng.integers(-(1 << bits), (1 << bits) - 1, 4000) >> rng.integers(0, bits, 4000)
    for got, v, s in zip(float16.from_integer(values, scales), values.tolist(), scales.tolist(), strict=True):
        assert got == rounded(Fraction(v) / Fraction(2) ** s), f"{v} * 2**-{s}"


def test_from_integer_at_ties_and_beside_them():
    edges = [s * (1 << n) + d for n in range(62) for d in (-2, -1, 0, 1, 2) for s in (-1, 1)]
    edges += [(2 * m + 1 << n) + d for m in (1024, 1025, 2047) for n in range(50) for d in (-1, 0, 1)]
    edges += [-(1 << 63), (1 << 63) - 1]
    for scale in (-32, -1, 0, 10, 24, 25, 40, 62, 100):
        got = float16.from_integer(np.array(edges), scale)
        assert got.tolist() == [rounded(Fraction(v) / Fraction(2) ** scale) for v in edges]
        small = [v for v in edges if abs(v) < 1 << 53]
        want = [each for each, v in zip(got.tolist(), edges, strict=True) if abs(v) < 1 << 53]
        assert float16.from_integer(np.array(small), scale).tolist() == want


def test_from_integer_of_big_integers():
    rng = np.random.default_rng(0)
    values = [int.from_bytes(rng.bytes(11), "little", signed=True) >> int(rng.integers(0, 88)) for _ in range(2000)]
    values += [s * ((2049 << n) + d) for n in range(70) for d in (-1, 0, 1) for s in (-1, 1)]
    for scale in (0, 40, 70, 100):
        got = float16.from_integer(np.array(values, object), scale)
        assert got.tolist() == [rounded(Fraction(v) / Fraction(2) ** scale) for v in values]


def test_a_float_is_refused():
    with pytest.raises(TypeError, match="bit patterns, not float16"):
        float16.add(np.float16([1]), np.float16([1]))


#: Patterns of zeros, subnormals, ones, ties, the largest numbers, infinities and NaNs, of both signs.
CORNERS = [pattern | sign for sign in (0, 0x8000) for pattern in (
    0x0000, 0x0001, 0x0002, 0x0003, 0x01FF, 0x03FF, 0x0400, 0x0401, 0x07FF, 0x0800, 0x1400, 0x13FF, 0x2C00, 0x33FF,
    0x37FF, 0x3800, 0x3801, 0x3BFF, 0x3C00, 0x3C01, 0x3FFF, 0x4000, 0x4248, 0x6400, 0x67FF, 0x7800, 0x7BFE, 0x7BFF,
    0x7C00, 0x7C01, 0x7E00, 0x7FFF)]
INTEGERS = [sign * ((odd << shift) + off) for sign in (1, -1) for odd in (1, 3, 2047, 2049, 4095, 65519 << 1)
            for shift in range(0, 31 - odd.bit_length()) for off in (-1, 0, 1)]
WORDS = [sign | exponent << 23 | fraction for sign in (0, 1 << 31) for exponent in range(85, 150) for fraction in (
    0, 1, 0xFFF, 0x1000, 0x1001, 0x2000, 0x3000, 0x3001, 0x7FEFFF, 0x7FF000, 0x7FFFFF)]


def encoded(number: float) -> int:
    """The binary16 pattern of a number, as gfloat rounds it."""
    if np.isnan(number):
        return float16.NAN
    return gfloat.encode_float(format_info_binary16, gfloat.round_float(format_info_binary16, number))


def of_gfloat(name: str) -> list[tuple[int, ...]]:
    """Lines of operands and result, like those of the TestFloat file with this name."""
    match name:
        case "i32_to_f16":
            return [(number & 0xFFFFFFFF, encoded(float(number))) for number in INTEGERS]
        case "f32_to_f16":
            numbers = np.array(WORDS, np.uint32).view(np.float32)
            return [(bits, encoded(float(number))) for bits, number in zip(WORDS, numbers, strict=True)]
    operation = getattr(operator, name.removeprefix("f16_"))
    values = {bits: gfloat.decode_float(format_info_binary16, bits).fval for bits in CORNERS}
    # Sums and products of two binary16 numbers are exact in binary64.
    results = [(a, b, operation(values[a], values[b])) for a in CORNERS for b in CORNERS]
    return [(a, b, int(got) if isinstance(got, bool) else encoded(got)) for a, b, got in results]


def of_testfloat(name: str) -> list[list[int]]:
    """Lines of the TestFloat file with this name, without the flags."""
    path = FOLDER / f"{name}.tv.xz"
    if not path.exists():
        pytest.skip(f"{name} was compared with gfloat only: there is no {path}; set CONCORD_VECTORS to the folder of "
                    f"TestFloat's vectors")
    with lzma.open(path, "rt") as lines:
        return [[int(word, 16) for word in line.split()[:-1]] for line in lines]


@pytest.fixture(params=[of_gfloat, of_testfloat], ids=["gfloat", "TestFloat"])
def vectors(request):
    """A function that gives the columns of operands and results of an operation."""
    return lambda name: np.array(request.param(name)).T


@pytest.mark.parametrize("name", ["add", "sub", "mul"])
def test_arithmetic_of_others(name, vectors):
    a, b, want = vectors(f"f16_{name}").astype(np.uint16)
    assert len(want) > 4000
    assert (getattr(float16, name)(a, b) == want).all()


def test_maximum_of_others(vectors):
    a, b, less = vectors("f16_lt").astype(np.uint16)
    _, _, equal = vectors("f16_eq").astype(np.uint16)
    distinct = ~(float16.is_nan(a) | float16.is_nan(b)) & (equal == 0)
    assert distinct.sum() > 3000
    assert (float16.maximum(a, b) == np.where(less, b, a))[distinct].all()


def test_conversion_of_others(vectors):
    integers, want = vectors("i32_to_f16")
    assert len(want) > 300
    assert (float16.from_integer(integers.astype(np.uint32).view(np.int32), 0) == want).all()


def test_conversion_of_binary32_of_others(vectors):
    # A finite binary32 number is an integer times a power of two, too.
    bits, want = vectors("f32_to_f16")
    exponent, fraction = bits >> 23 & 0xFF, bits & 0x7FFFFF
    numbers = (exponent < 255) & (exponent + fraction > 0)
    assert numbers.sum() > 300
    significand = np.where(exponent > 0, fraction | 0x800000, fraction) * np.where(bits >> 31, -1, 1)
    got = float16.from_integer(significand, 150 - np.maximum(exponent, 1))
    assert (got == want)[numbers].all()
