"""Twins of networks with softmax and normalisation inside: readable, and with golden's bits."""

from dataclasses import replace

import numpy as np
import pytest
from concord.campaigns.makers import networks
from concord.campaigns.twin_programs import differences, firmware_of
from concord.campaigns.twin_random import calls, results
from concord.golden.lib.float16 import to_bits
from concord.net.layers.reductions import VectorNorm, VectorSoftmax
from concord.sim.stimulus.programs import written_program
from concord.spec.machine.config import PRESETS
from concord.tests.twin.recovered import agree, golden
from concord.twin.recovery.nodes.elements import Unrecognised
from concord.twin.recovery.recover import recover

VECTOR = replace(PRESETS["tiny_vector"], instructions=512)


def norm(width: int, *, centred: bool) -> VectorNorm:
    rng = np.random.default_rng(width)
    weight, bias = (to_bits(rng.normal(1, 0.3, width)) for _ in range(2))
    return VectorNorm(name="norm", weight=weight, bias=bias, centred=centred, epsilon=1e-5)


INSIDE = {"softmax": VectorSoftmax(name="soft", inputs=11), "layer norm": norm(11, centred=True),
          "RMS norm": norm(11, centred=False)}


def model(kind: str, block: bool = False):
    """A perceptron with a layer in its middle."""
    rng = np.random.default_rng(0)
    first, last = networks.mlp(rng, VECTOR, [9, 11, 4], block=block).layers
    return networks.model((first, INSIDE[kind], last))


@pytest.mark.parametrize("block", [False, True])
@pytest.mark.parametrize("kind", INSIDE)
def test_networks(kind, block):
    samples = networks.inputs(np.random.default_rng(1), 20, 9)
    made = agree(VECTOR, model(kind, block), samples)
    named = {each.function for each in calls(made)}
    assert "total" in named
    assert ("largest" in named) == (kind == "softmax")
    assert "take" not in named
    titles = [routine.title for routine in made.routines]
    assert titles[1] == ("Softmax." if kind == "softmax" else "Normalisation.")


def test_reductions_of_parts_of_a_vector_have_no_form():
    """A word sees the elements up to it, which the third word writes, too: nothing that a network says."""
    words = "s_wr Rows, 6\nv_rd NetQ\nv_sum0\nv_wr NetQ\nend_chain\nend"
    case = written_program(VECTOR, np.random.default_rng(0), words, integer=True)
    with pytest.raises(Unrecognised, match="the program reads reductions of parts of a vector"):
        recover(replace(firmware_of(case), outputs=6))
    assert not differences(case, 0)


def test_a_number_that_is_spread_over_all_lanes_is_one_number():
    """The last word has a lane that no element has; the largest element of its copies and that zero is the number."""
    spread = "".join(f"v_rd MultiplyVrf0, 2\nv_largest0\nv_wr MultiplyVrf0, {word}\nend_chain\n" for word in (8, 9, 10))
    words = ("s_wr Rows, 5\nv_rd NetQ\nv_exp0\nv_wr InitialVrf, 0\nv_sum1\nv_recip1\nv_wr MultiplyVrf0, 0\nend_chain\n"
             f"s_wr Rows, 2\n{spread}s_wr Rows, 5\nv_rd InitialVrf, 0\nvv_mul0 8\nv_wr NetQ\nend_chain\nend")
    case = written_program(VECTOR, np.random.default_rng(0), words, integer=True)
    firmware = replace(firmware_of(case), inputs=5, input_words=3, outputs=5)
    script = recover(firmware)
    assert [call.function for call in calls(script)][:-1] == ["exp", "total", "reciprocal", "multiply"]
    samples = networks.inputs(np.random.default_rng(1), 4, 5)
    np.testing.assert_array_equal(results(script, samples), golden(firmware, samples))


def test_sums_side_by_side_stay_two():
    sums = "".join(f"v_rd NetQ\nv_sum0\nv_wr InitialVrf, {word}\nend_chain\n" for word in range(2))
    words = f"s_wr Rows, 2\n{sums}s_wr Rows, 4\nv_rd InitialVrf, 0\nv_wr NetQ\nend_chain\nend"
    case = written_program(VECTOR, np.random.default_rng(0), words, integer=True)
    firmware = replace(firmware_of(case), inputs=4, input_words=2, outputs=4)
    samples = networks.inputs(np.random.default_rng(1), 4, 4)
    np.testing.assert_array_equal(results(recover(firmware), samples), golden(firmware, samples))
