"""Twins of networks with softmax and normalisation inside: readable, and with golden's bits."""

from dataclasses import replace

import numpy as np
import pytest
from concord.campaigns.makers import networks
from concord.campaigns.twin_programs import differences, firmware_of
from concord.campaigns.twin_random import calls
from concord.golden.lib.float16 import to_bits
from concord.net.layers.reductions import VectorNorm, VectorSoftmax
from concord.sim.stimulus.programs import written_program
from concord.spec.machine.config import PRESETS
from concord.tests.twin.recovered import agree
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
