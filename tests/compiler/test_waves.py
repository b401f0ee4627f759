"""Passes that take turns: their order, the bits of the network, and machines without the room for them."""

from dataclasses import replace
from itertools import groupby

import pytest
from concord.compiler.network import compile_network
from concord.compiler.plan.waves import STRIPS
from concord.net.ops.reduction import FeatureNorm
from concord.tests.compiled import agree_on_random
from concord.tests.compiler.test_attention import VISION, block, model_of
from concord.tests.float_networks import Chain


def order(firmware) -> list[str]:
    """The layers to which the program comes, one after the other."""
    return [name for name, _ in groupby(section.layer for section in firmware.sections)]


@pytest.mark.parametrize("blocks", [False, True])
def test_each_layer_comes_strip_by_strip(blocks):
    """Other strips stand between a strip of the norm and the products that read it."""
    made = agree_on_random(VISION, model_of(block(), VISION, blocks=blocks))
    found = order(made.firmware)
    assert [found.count(name) for name in ("norm", "q", "heads")] == [STRIPS, STRIPS, 1]
    assert found.index("norm") < found.index("offsets", found.index("norm")) < found.index("q")


@pytest.mark.parametrize("small", [{"instructions": 300}, {"initial_vrf": 88}, {"vector_rf": 80}])
def test_without_the_room_layers_follow_each_other(small):
    found = order(agree_on_random(replace(VISION, **small), model_of(block(), VISION)).firmware)
    assert found.count("norm") == found.count("q") == 1


def test_networks_without_attention_take_no_turns():
    chain = Chain((32, 1, 12))
    chain.add(FeatureNorm(weight=chain.weights(32), bias=chain.weights(32)), "norm").conv("q", 16, 32, (1, 1))
    made = compile_network(model_of(chain.network(), VISION), VISION)
    assert order(made.firmware).count("norm") == order(made.firmware).count("q") == 1
