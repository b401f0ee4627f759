"""Functions that few scripts need, in every framework: softmax and wide accumulators with the bits of golden."""

import numpy as np
import pytest
from concord.golden.lib.float16 import from_integer
from concord.golden.mfu.reduction import running
from concord.golden.mfu.softmax import softmax
from concord.golden.mvm.quantizer import quantize_block
from concord.spec.isa.operations import Operation
from concord.spec.numbers.formats import Format, Rule
from concord.spec.numbers.softmax import fractions, wholes
from concord.tests.twin.vocabularies import VOCABULARIES
from concord.twin.vocabulary import word_functions

EDGES = np.array([0, 1, 0x3C00, 0x7BFF, 0x7C00, 0x7E00, 0x8000, 0x8001, 0xFBFF, 0xFC00, 0xFE01], np.uint16)


@pytest.fixture(params=VOCABULARIES)
def words(request):
    with np.errstate(all="ignore"):
        vocabulary = VOCABULARIES[request.param]()
        yield vocabulary, vocabulary.functions


def test_no_samples_have_no_words(words):
    vocabulary, generic = words
    if hasattr(generic, "words"):
        got = vocabulary.array(generic.words(vocabulary.value(np.zeros((0, 3, 5), np.float16)), 4))
        assert got.shape == (0, 6, 4)


def rows(rng):
    """Vectors of all edge cases in pairs, of numbers of any size, and of scores of classes."""
    edges = np.stack([np.repeat(EDGES, EDGES.size), np.tile(EDGES, EDGES.size)], 1)
    yield edges
    yield rng.integers(0, 0x7C00, (2000, 5)).astype(np.uint16) | rng.integers(0, 2, (2000, 5)).astype(np.uint16) << 15
    yield rng.normal(0, 4, (2000, 10)).astype(np.float16).view(np.uint16)
    yield np.full((1, 3), 0xFC00, np.uint16)


def test_softmax(words):
    vocabulary, generic = words
    tables = [vocabulary.value(np.array(table, np.int32)) for table in (fractions(), wholes())]
    for bits in rows(np.random.default_rng(0)):
        got = generic.softmax(vocabulary.value(bits.view(np.float16)), *tables)
        np.testing.assert_array_equal(vocabulary.bits(got), softmax(bits))


def reduced() -> list[np.ndarray]:
    """Words [samples, words, lanes] of edge cases, of any patterns, of numbers that cancel, and of zeros."""
    rng = np.random.default_rng(3)
    near = rng.normal(0, 4, (500, 3, 4)).astype(np.float16)
    return [rng.choice(EDGES, (500, 3, 4)), rng.integers(0, 1 << 16, (500, 3, 4)).astype(np.uint16),
            np.concatenate([near, -near[:, ::-1]], 1).view(np.uint16), np.full((1, 2, 4), 0x8000, np.uint16)]


@pytest.mark.parametrize("operation", [Operation.V_SUM, Operation.V_LARGEST])
def test_reductions_of_vectors(words, operation):
    vocabulary, generic = words
    for bits in reduced():
        got = getattr(generic, operation.function)(vocabulary.value(bits.reshape(len(bits), -1).view(np.float16)))
        np.testing.assert_array_equal(vocabulary.bits(got)[:, 0], running(operation, bits)[0][:, -1, 0])


def test_totals_of_words(words):
    """Sums of edge cases, of numbers of any size, and of numbers that cancel, over the words of an iteration."""
    vocabulary, generic = words
    if not hasattr(generic, "totals"):
        pytest.skip("TensorFlow has no twins word by word")
    for bits in reduced():
        got = generic.totals(vocabulary.value(bits.view(np.float16)))
        np.testing.assert_array_equal(vocabulary.bits(got), running(Operation.V_SUM, bits)[0])


@pytest.mark.parametrize("fmt", [
    Format(bits=8), Format(bits=5, symmetric=True, rule=Rule.CEIL, e_min=-4, e_max=3), Format.floating(2, 1),
    Format.floating(3, 0, e_min=-6)], ids=lambda fmt: fmt.element)
def test_blocks(words, fmt):
    vocabulary, generic = words
    if not hasattr(generic, "mantissas_of"):
        pytest.skip("TensorFlow has no twins word by word")
    rng = np.random.default_rng(2)
    bits = np.concatenate([rng.choice(EDGES, (300, 4)), rng.integers(0, 1 << 16, (1000, 4))]).astype(np.uint16)
    x = vocabulary.value(bits.view(np.float16))
    mantissas, wanted = quantize_block(bits, fmt)
    exponents = generic.exponents_of(x, (fmt.e_min, fmt.e_max), str(fmt.rule), fmt.precision)
    np.testing.assert_array_equal(vocabulary.array(exponents)[:, 0], wanted)
    codes = generic.mantissas_of(x, exponents, fmt.bits, fmt.lowest, fmt.highest, fmt.precision)
    np.testing.assert_array_equal(vocabulary.array(codes), mantissas)
    np.testing.assert_array_equal(vocabulary.array(generic.scaled(codes, exponents, 3)),
                                  mantissas * 2.0 ** (wanted[:, None] + 3))
    np.testing.assert_array_equal(vocabulary.array(generic.shifted(codes, 3)), mantissas + 3)


@pytest.mark.parametrize("width", [20, 49, 62, 64, 76])
def test_accumulators_wrap_and_round_once(words, width):
    vocabulary, generic = words
    rng, half = np.random.default_rng(1), 1 << width - 1
    codes, weights = (rng.integers(-1 << 36, 1 << 36, shape) for shape in ((3, 5), (4, 5)))
    start = rng.integers(-1000, 1000, 4)
    exact = (codes.astype(object) @ weights.astype(object).T << 2) + start.astype(object)
    wanted = from_integer((exact + half) % (2 * half) - half, width - 10)
    values = (vocabulary.value(values * unit) for values, unit in ((codes, 2.0**-7), (weights, 2.0**-3), (start, 1.0)))
    settings = {"scale": width - 10, "bits": width, "units": (-7, -3), "shift": 2}
    if width > 64 and generic is not word_functions:
        with pytest.raises(ValueError, match=f"no integers for an accumulator of {width} bits"):
            generic.accumulated(*values, **settings)
        return
    got = generic.accumulated(*values, **settings)
    np.testing.assert_array_equal(vocabulary.bits(got), wanted)


@pytest.mark.parametrize("sign", [1, -1])
def test_totals_near_rounding_points_are_rounded_once(words, sign):
    """Totals whose float64 lies in the middle of two binary16 numbers, though the total itself does not."""
    vocabulary, generic = words
    middles, below = ((2 * np.arange(1024, 1100) + 1) << 21).repeat(3), np.tile([-1, 0, 2], 76)
    weights = sign * np.stack([middles, below], 1).astype(np.float64)
    got = generic.accumulated(vocabulary.value(np.array([[2.0**30, 1]])), vocabulary.value(weights), scale=52, bits=64)
    wanted = from_integer(sign * ((middles << 30) + below), 52)
    np.testing.assert_array_equal(vocabulary.bits(got)[0], wanted)
