"""Networks of small results, which scales of binary16 must not round to 0."""

import numpy as np
import pytest
from concord.campaigns.makers import networks
from concord.net.quantize.options import QuantizationOptions
from concord.net.quantize.widths import NetworkArithmetic
from concord.spec.machine.config import preset
from concord.tests import float_networks
from concord.tests.compiled import agree
from concord.tests.net.quantize.test_quantized import assert_close, quantized


def smaller(factor: float, arithmetic: str):
    """A perceptron whose results are smaller by a factor, and what quantisation makes of it."""
    graph = float_networks.perceptron()
    last = graph.output
    graph = graph.rewritten({last.name: last.changed(
        **{name: np.float32(getattr(last.op, name) * factor) for name in ("weight", "bias")})})
    choices = QuantizationOptions(preset="vision", arithmetic=NetworkArithmetic(arithmetic)).choices()
    return graph, *quantized(graph, choices)


@pytest.mark.parametrize("factor", [1, 1e-3, 1e-5])
def test_golden_follows_small_results_as_it_follows_large_ones(factor):
    """Targets in units of the SI are often that small."""
    graph, made, samples = smaller(factor, "integer")
    assert_close(graph, made, samples, 0.03)
    agree(preset("vision"), networks.model(made.layers, sources=made.sources), samples.inputs[:2])


@pytest.mark.parametrize(("arithmetic", "sentence"), [
    ("integer", "the network's results are .* at most, and binary16 has steps of 6e-08 there: multiply"),
    ("bfp", "of its weights, .* the exponents of the blocks leave .* dB: multiply")])
@pytest.mark.parametrize("factor", [1e-8, 1e-30])
def test_results_that_binary16_cannot_hold_are_refused(factor, arithmetic, sentence):
    with pytest.raises(ValueError, match=sentence):
        smaller(factor, arithmetic)
