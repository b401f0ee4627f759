"""Normalisations whose sums of squares overflow on the machine are named when a network is quantised."""

import re

import numpy as np
import pytest
from concord.campaigns.makers import networks
from concord.golden.lib.float16 import to_bits, to_real
from concord.net import network
from concord.net.graph import Graph
from concord.net.ops.reduction import FeatureNorm
from concord.net.ops.weighted import Linear
from concord.net.quantize.choices import Choices
from concord.net.quantize.quantized import prepared, quantized
from concord.tests.float_networks import Chain

X = np.random.default_rng(0).normal(0, 1, (50, 7)).astype(np.float32)


def network_of(gain: float, *, centred: bool) -> Graph:
    weight = np.random.default_rng(1).normal(0, gain, (9, 7)).astype(np.float32)
    norm = FeatureNorm(weight=np.ones(9, np.float32), bias=np.zeros(9, np.float32), centred=centred)
    chain = Chain((7,)).add(Linear(weight=weight, bias=np.zeros(9, np.float32)), "a").add(norm, "norm")
    return chain.dense("b", 3, 9).network()


def sentences(graph: Graph) -> tuple[list[str], float]:
    """What quantising says of the normalisation, and golden's largest distance from the float network after it."""
    said = []
    made = quantized(prepared(graph, Choices()), X, progress=lambda phase, now, total, text="": said.append(text))
    model = networks.model(made.layers, sources=made.sources)
    found = to_real(network.forward(model, to_bits(X))[1].outputs)
    real = graph.nodes[1].op.real(graph.nodes[0].op.real(X, None), None)
    return [text for text in said if "spread by" in text], float(np.abs(found - real).max())


@pytest.mark.parametrize("centred", [True, False])
def test_a_normalisation_that_overflows_is_named(centred):
    assert sentences(network_of(30.0, centred=centred))[0] == []
    (said,), distance = sentences(network_of(1000.0, centred=centred))
    assert distance > 2
    factor = int(re.fullmatch(r"norm: its vectors spread by .* divide what enters it by (\d+) in the .*", said)[1])
    nothing, distance = sentences(network_of(1000.0 / factor, centred=centred))
    assert nothing == []
    assert distance < 0.7  # what 8 bits lose, as with smaller numbers
