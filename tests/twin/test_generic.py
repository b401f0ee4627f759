"""Random programs as twins in numpy: outputs and final memories have golden's bits."""

from dataclasses import replace

import numpy as np
import pytest
from concord.campaigns.twin_programs import chunk, differences
from concord.sim.stimulus.programs import random_program, written_program
from concord.sim.units import CONFIGURATIONS, WITH_REDUCTIONS, WITH_SOFTMAX
from concord.spec.isa.operations import Operation
from concord.spec.machine.config import preset
from concord.spec.numbers.formats import Format
from concord.twin.generic.reductions import ReducedWords
from concord.twin.vocabulary.numpy_functions import accumulated

TINY = preset("tiny")
E4M3, LOGARITHMIC = Format.floating(4, 3, e_min=-6, e_max=6), Format.floating(3, 0, e_min=-4, e_max=4)
WIDE = Format.floating(4, 10, e_min=-2, e_max=2)


@pytest.mark.parametrize("config", [*CONFIGURATIONS, WITH_SOFTMAX, WITH_REDUCTIONS])
def test_random_programs(config):
    assert not chunk(config, 77, range(16), written=False)


@pytest.mark.parametrize("config", CONFIGURATIONS)
def test_source_of_random_programs(config):
    assert not chunk(config, 77, range(20, 22))


@pytest.mark.parametrize(("weights", "activations"), [(E4M3, E4M3), (LOGARITHMIC, E4M3), (TINY.weights, WIDE)])
def test_elements_with_exponents_of_their_own(weights, activations):
    config = replace(TINY, weights=weights, activations=activations, multipliers=0, acc_frac=50)
    for seed in range(3):
        assert not differences(random_program(config, np.random.default_rng([9, seed])), seed, written=False)


def test_a_wrong_function_is_found(monkeypatch):
    monkeypatch.setattr(Operation.VV_ADD, "function", "subtract")
    assert chunk("tiny", 77, range(5), written=False)


@pytest.mark.parametrize(("name", "changed"), [
    ("_largest", lambda self, elements, shape: elements),
    ("_totals", lambda self, elements, shape, chain: self._lines.call("totals", elements))])
def test_wrong_reductions_are_found(monkeypatch, name, changed):
    monkeypatch.setattr(ReducedWords, name, changed)
    assert chunk(WITH_REDUCTIONS, 78, range(9), written=False)


def test_a_softmax_whose_words_come_one_by_one():
    words = """
        s_wr Rows, 7
        v_rd InitialVrf, 0
        v_wr InitialVrf, 1
        v_softmax
        v_wr NetQ
        end_chain
        end
    """
    case = written_program(preset(WITH_SOFTMAX), np.random.default_rng(0), words, integer=True)
    assert not differences(case, 0)


def test_totals_wrap_and_round_once():
    rng = np.random.default_rng(0)
    for bits in (20, 62, 64, 74, 80):
        codes, weights = (rng.integers(-1 << 36, 1 << 36, shape) for shape in ((3, 5), (4, 5)))
        exact = codes.astype(object) @ weights.astype(object).T
        half = 1 << bits - 1
        wrapped = (exact + half) % (2 * half) - half
        got = accumulated(codes.astype(np.float64)[None], weights.astype(np.float64), scale=bits - 10, bits=bits)
        # Long doubles have 64 bits; what a rounding to them loses is no tie of binary16 here.
        wanted = (wrapped.astype(np.longdouble) / np.longdouble(2) ** (bits - 10)).astype(np.float16)
        np.testing.assert_array_equal(got[0].view(np.uint16), wanted.view(np.uint16))
