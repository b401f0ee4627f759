# amaranth: UnusedElaboratable=no
"""Reductions over the elements of an iteration: golden against exact sums, and gates against golden."""

import math
from fractions import Fraction

import numpy as np
import pytest
from concord.golden.lib.float16 import INFINITY, NAN, SIGN, is_nan, maximum, to_bits, to_real
from concord.golden.mfu.reduction import NEUTRAL, running
from concord.hw.lib.payloads import turn
from concord.hw.mfu.reducer import Reducer
from concord.sim.drivers.bench import assert_equal, pack_rows
from concord.spec.isa.operations import Operation
from concord.tests.pipeline_harness import PipelineHarness

REDUCTIONS = [operation for operation in Operation if operation.reduces]


def patterns(rng, shape, special: float = 0.0):
    """Numbers of all magnitudes whose sums cancel now and then; a share of them is any pattern."""
    near = rng.integers(0, 1 << 16, shape).astype(np.uint16) & 0xBFFF
    return np.where(rng.random(shape) < special, rng.integers(0, 1 << 16, shape).astype(np.uint16), near)


def test_a_sum_is_rounded_once():
    words = patterns(np.random.default_rng(0), (200, 5, 4))
    found, _ = running(Operation.V_SUM, words)
    for vector, sums in zip(to_real(words), found[..., 0], strict=True):
        for count in range(5):
            exact = sum(Fraction(each) for each in vector[:count + 1].ravel())
            rounded = np.float64(math.ldexp(int(exact * 2**24), -24))
            assert to_bits(rounded) == sums[count]


def test_the_largest_is_that_of_all_pairs():
    words = patterns(np.random.default_rng(1), (500, 3, 4), 0.2)
    found, _ = running(Operation.V_LARGEST, words)
    wanted = words[:, 0, 0]
    for each in words.reshape(500, -1).T[1:]:
        wanted = maximum(wanted, each)
    assert_equal("largest", found[:, -1, 0], np.where(is_nan(wanted), NAN, wanted))


@pytest.mark.parametrize(("elements", "wanted"), [
    ([INFINITY, 0x3C00], INFINITY), ([INFINITY, SIGN | INFINITY], NAN), ([SIGN | INFINITY, 0], SIGN | INFINITY),
    ([0x7C01, 0], NAN), ([SIGN, SIGN], 0), ([0x7BFF, 0x7BFF], INFINITY), ([0x7BFF, 0xFBFF], 0)])
def test_sums_of_special_numbers(elements, wanted):
    assert running(Operation.V_SUM, np.array([elements], np.uint16))[0][0, 0] == wanted


@pytest.mark.parametrize("operation", REDUCTIONS)
def test_a_reduction_goes_on_from_what_is_left(operation):
    words = patterns(np.random.default_rng(2), (6, 4), 0.1)
    whole, _ = running(operation, words)
    first, left = running(operation, words[:2])
    second, _ = running(operation, words[2:], left)
    assert_equal("words", np.concatenate([first, second]), whole)


@pytest.mark.parametrize("lanes", [2, 4])
def test_gates(lanes):
    """Iterations of one to nine words, with gaps, of numbers and of any patterns."""
    rng, iterations = np.random.default_rng(lanes), 30_000
    count = rng.integers(1, 10, iterations)
    first = np.zeros(count.sum(), bool)
    first[np.cumsum(count) - count] = True
    last = np.roll(first, -1)
    number = np.cumsum(first) - 1
    tail = np.where(last, rng.integers(0, lanes, last.size), 0)
    special = np.where(rng.random(iterations) < 0.3, 0.05, 0)[number]
    words = patterns(rng, (last.size, lanes), special[:, None])
    operation = rng.integers(0, 2, iterations)[number]
    absent = (tail[:, None] > 0) & (np.arange(lanes) >= tail[:, None])
    wanted = np.zeros(last.size, np.uint16)
    for k, each in enumerate(REDUCTIONS):
        of = operation == k
        for length in range(1, 10):
            chosen = (of & (count[number] == length)).nonzero()[0]
            given = np.where(absent, NEUTRAL[each], words)[chosen].reshape(-1, length, lanes)
            wanted[chosen] = running(each, given)[0][..., 0].ravel()
    codes = np.array([each.code for each in REDUCTIONS])[operation]
    where = np.flatnonzero(rng.random(last.size + last.size // 4) < 0.8)[:last.size]  # records with a word
    size = where[-1] + 1
    turns = {"valid": np.zeros(size, bool), "first": np.zeros(size, bool), "tail": np.zeros(size, int)}
    turns["valid"][where], turns["first"][where] = True, first[:where.size]
    turns["tail"][where] = tail[:where.size]
    given, op = rng.integers(0, 1 << 16, (size, lanes)).astype(np.uint16), np.zeros(size, int)
    given[where], op[where] = words[:where.size], codes[:where.size]
    got = PipelineHarness(Reducer(lanes), "reducer")(i=given, op=op, turn=pack_rows(turn(lanes), turns))["o"]
    assert_equal("o", got[where], wanted[:where.size], first=first[:where.size], tail=tail[:where.size])
