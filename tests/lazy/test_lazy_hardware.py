# amaranth: UnusedElaboratable=no
"""The Verilated lazy update against golden: exhaustive at small widths, a million random steps at the real ones."""

from functools import cache
from itertools import product

import numpy as np
import pytest
from concord.golden.lazy.lazy_update import Parameters
from concord.hw.lazy.exponent_search import COUNTS
from concord.hw.lazy.lazy_update import LazyUpdate
from concord.sim.drivers.bench import assert_equal
from concord.sim.stimulus.lazy_passes import Given, bins, random_pass
from concord.spec.numbers.lazy import E_MIN, LazyFormat
from concord.tests.stream_harness import StreamHarness

SMALL = {"3-5": LazyFormat(bits=3, residual=5, shift=4, update=5, guard=2),
         "5-3": LazyFormat(bits=5, residual=3, shift=2, update=5)}


@cache
def unit(fmt: LazyFormat, lanes: int) -> StreamHarness:
    """The Verilated unit; each format and width is built once, as building takes longer than running."""
    return StreamHarness(LazyUpdate(fmt, lanes), "lazy_update")


def words(values, lanes):
    """Elements as words, padded with zeros after the last element."""
    return np.pad(values, (0, -len(values) % lanes)).reshape(-1, lanes)


def compare(verilated: StreamHarness, passes: list[Given], *, pause: float = 0.0):
    """Send passes, and compare every bit of the results with golden."""
    lanes = verilated.dut.lanes
    lengths = [-(-len(given.update) // lanes) for given in passes]
    last = np.zeros(sum(lengths), int)
    last[np.cumsum(lengths) - 1] = 1
    joined = {name: np.concatenate([words(values(given), lanes) for given in passes]) for name, values in (
        ("mantissas", lambda given: given.old.mantissas), ("residuals", lambda given: given.old.residuals),
        ("updates", lambda given: given.update))}
    block = {"exponent": [given.old.exponent - E_MIN for given in passes],
             "update_exponent": [given.update_exponent - E_MIN for given in passes],
             "change": [given.change for given in passes]}
    got = verilated({"o": len(last), "answer": len(passes)}, pause=pause, i=joined | {"last": last}, block=block)
    golden = [given.golden for given in passes]
    for name in ("mantissas", "residuals"):
        want = np.concatenate([words(getattr(done, name), lanes) for done in golden])
        assert_equal(name, got["o"][name], want, **joined)
    assert_equal("last", got["o"]["last"], last)
    for name in ("repeat", "change", *COUNTS):
        assert_equal(f"answer {name}", got["answer"][name], [getattr(done, name) for done in golden], **block)
    return golden


def at_shift(shift: int, fmt: LazyFormat) -> tuple[int, int]:
    """Exponents of a tensor and of an update that is shifted right by `shift` bits."""
    return 0, fmt.alignment(0, 0) - shift


@pytest.mark.parametrize("fmt", SMALL.values(), ids=SMALL)
def test_every_step(fmt):
    """Every mantissa, residual and update, with every alignment and change that matters."""
    every = [np.arange(-(1 << bits - 1), 1 << bits - 1) for bits in (fmt.bits, fmt.residual, fmt.update)]
    w, r, u = (axis.ravel() for axis in np.meshgrid(*every, indexing="ij"))
    shifts = range(-fmt.limit.bit_length() - 2, fmt.update + 3)
    passes = []
    for shift, change in product(shifts, fmt.changes):
        exponent, update_exponent = at_shift(shift, fmt)
        passes.append(Given(Parameters(w, r, exponent, fmt), u, update_exponent, change))
    compare(unit(fmt, 8), passes)


@pytest.mark.parametrize("fmt", SMALL.values(), ids=SMALL)
def test_answers_of_single_elements(fmt):
    """Answers for tensors of one element, in which no larger neighbour hides an element."""
    rng = np.random.default_rng(fmt.bits)
    compare(unit(fmt, 8), [random_pass(rng, fmt, 1) for _ in range(10_000)], pause=0.2)


@pytest.mark.parametrize("lanes", [3, 8])
def test_a_million_random_steps(lanes):
    """At the real widths, tensors of one to thousands of elements reach every bin."""
    fmt, rng, met = LazyFormat(), np.random.default_rng(lanes), set()
    steps = 0
    while steps < 600_000:
        passes = [random_pass(rng, fmt, int(rng.integers(1, 2 ** rng.integers(1, 13)))) for _ in range(200)]
        golden = compare(unit(fmt, lanes), passes, pause=0.1 * (steps == 0))
        steps += sum(len(given.update) for given in passes)
        met |= {name for pair in zip(passes, golden, strict=True) for name, hit in bins(*pair).items() if hit}
    assert met == set(bins(passes[0], golden[0]))


def test_words_follow_each_other_across_blocks():
    """In the steady state, a tensor takes as many cycles as it has words."""
    rng, fmt, lanes = np.random.default_rng(3), LazyFormat(), 8
    verilated = unit(fmt, lanes)
    search, latency = verilated.dut.search, verilated.dut.latency
    passes = [random_pass(rng, fmt, lanes * (search + int(rng.integers(40)))) for _ in range(300)]
    compare(verilated, passes)
    count = sum(len(given.update) for given in passes) // lanes
    assert verilated.cycles <= count + latency + 2 * search + 10
