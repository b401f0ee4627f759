"""Functions with an upper limit as layers of their own: hard swish, hard sigmoids of gates, and a relu6 at the end."""

import concord
import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
from concord.campaigns.makers.onnx_graphs import OnnxGraph, equal, written
from concord.golden.lib.float16 import to_bits
from concord.net.layers.curves import ClippedLine
from concord.net.ops.pointwise import HardSigmoid
from concord.sim.machines.host import machine
from concord.spec.machine.config import preset
from concord.tests.compiled import machines_agree
from concord.tests.twin import recovered

VISION = preset("vision")


def block() -> OnnxGraph:
    """A block of MobileNetV3 with squeeze-and-excitation, and a clip at the end."""
    graph = OnnxGraph((1, 3, 8, 6))
    graph.add("Conv", graph.weight(8, 3, 3, 3), graph.weight(8), strides=[2, 2], pads=[1] * 4)
    image = graph.add("HardSwish")
    graph.add("GlobalAveragePool")
    graph.add("Conv", graph.weight(4, 8, 1, 1), graph.weight(4))
    graph.add("Relu")
    graph.add("Conv", graph.weight(8, 4, 1, 1), graph.weight(8))
    graph.add("Mul", graph.add("HardSigmoid", alpha=1 / 6, beta=0.5), first=image)
    graph.add("Conv", graph.weight(5, 8, 1, 1, scale=2), graph.weight(5))
    graph.add("Clip", graph.constant(np.float32(0)), graph.constant(np.float32(6)))
    return graph


@pytest.fixture(scope="module", params=["integer", "bfp"])
def made(request, tmp_path_factory):
    """The network, samples, and its model."""
    graph = block()
    path = written(tmp_path_factory.mktemp("clipped"), graph)
    equal(path)
    samples = graph.random.normal(size=(48, 3, 8, 6)).astype(np.float32)
    network = concord.load(path)
    data = samples, concord.run(network, samples).numbers
    return network, samples, concord.quantize(network, data, preset="vision", arithmetic=request.param)


def test_golden_follows_the_network(made):
    network, samples, model = made
    assert sum(isinstance(layer, ClippedLine) for layer in model.quantized.layers) == 3
    golden = concord.run(concord.compile(model, preset="vision"), samples[:8]).numbers
    assert np.array_equal(golden, concord.run(model, samples[:8]).numbers)
    real = concord.run(network, samples[:8]).numbers
    assert np.abs(golden - real).max() < np.abs(real).max() / 20
    assert golden.max() == 6.0


def test_hardware_and_twins_agree(made):
    _, samples, model = made
    bits = to_bits(samples[:2].reshape(2, -1))
    with machine("golden", VISION) as golden, machine("library", VISION) as library:
        machines_agree(golden, library, VISION, model.quantized, bits)
    recovered.agree(VISION, model.quantized, bits)


@pytest.mark.parametrize(("shift", "slope", "ceiling"), [(3.0, 1 / 6, 1.0), (0.0, 1.0, 6.0), (-0.25, 2.0, 0.7)])
def test_golden_is_the_formula_rounded_twice(shift, slope, ceiling):
    """For all numbers of binary16, infinities and signs of zero."""
    x = np.arange(1 << 16, dtype=np.uint16)
    x = x[~np.isnan(x.view(np.float16))]
    layer = ClippedLine(name="layer", inputs=1, shift=shift, slope=slope, ceiling=ceiling)
    found = layer.run([x[:, None]], None).outputs[:, 0].view(np.float16)
    real = x.view(np.float16).astype(np.float64)
    with np.errstate(over="ignore"):
        moved = (real + float(np.float16(shift))).astype(np.float16).astype(np.float64)
        sloped = (np.maximum(moved, 0) * float(np.float16(slope))).astype(np.float16)
    assert np.array_equal(found, np.minimum(sloped, np.float16(ceiling)))
    assert not np.signbit(found).any()
    want = HardSigmoid(alpha=slope, beta=shift * slope, ceiling=ceiling).real(real, None)
    assert np.abs(found - want).max() <= np.abs(want).max() * 2**-10 + 1e-3
