"""Functions with limits as layers of their own: hard swish and tanh, hard sigmoids of gates, a relu6 at the end."""

import concord
import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
from concord.campaigns.makers.onnx_graphs import OnnxGraph, equal, written
from concord.frontends.torch.read import graph_of
from concord.golden.lib.float16 import to_bits
from concord.net.layers.curves import ClippedLine, Limited
from concord.net.ops.pointwise import HardSigmoid
from concord.sim.machines.host import machine
from concord.spec.machine.config import preset
from concord.tests.compiled import machines_agree
from concord.tests.twin import recovered
from torch import nn

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


@pytest.mark.parametrize("arithmetic", ["integer", "bfp"])
def test_limits_inside_a_network(tmp_path, arithmetic):
    graph = OnnxGraph((1, 2, 4, 6))
    graph.add("Conv", graph.weight(8, 2, 3, 3), graph.weight(8))
    graph.add("Clip", graph.constant(np.float32(-0.7)), graph.constant(np.float32(1.1)))
    graph.add("Conv", graph.weight(5, 8, 1, 1), graph.weight(5))
    graph.add("Max", graph.constant(np.float32(-0.25)))
    graph.add("Flatten")
    graph.add("Gemm", graph.weight(40, 7), graph.weight(7))
    graph.add("Min", graph.constant(np.float32(0.4)))
    path = written(tmp_path, graph)
    equal(path)
    samples = graph.random.normal(size=(32, 2, 4, 6)).astype(np.float32)
    network = concord.load(path)
    real = concord.run(network, samples).numbers
    model = concord.quantize(network, (samples, real), preset="vision", arithmetic=arithmetic)
    assert sum(isinstance(layer, Limited) for layer in model.quantized.layers) == 3
    found = concord.run(model, samples).numbers
    assert found.max() == np.float16(0.4)
    assert np.abs(found - real).max() < np.ptp(real) / 20
    bits = to_bits(samples[:2].reshape(2, -1))
    with machine("golden", VISION) as golden, machine("library", VISION) as library:
        machines_agree(golden, library, VISION, model.quantized, bits)
    recovered.agree(VISION, model.quantized, bits)


@pytest.mark.parametrize(("lowest", "highest"), [(-1.0, 1.0), (0.1, None), (None, -0.3), (-70.0, 0.0)])
def test_limits_round_nothing(lowest, highest):
    """For all numbers of binary16 and infinities."""
    x = np.arange(1 << 16, dtype=np.uint16)
    x = x[~np.isnan(x.view(np.float16))]
    found = Limited(name="layer", inputs=1, lowest=lowest, highest=highest).run([x[:, None]], None).outputs[:, 0]
    low, high = (None if limit is None else np.float16(limit) for limit in (lowest, highest))
    assert np.array_equal(found.view(np.float16), np.clip(x.view(np.float16), low, high))


@pytest.mark.parametrize(("lowest", "highest"), [(None, None), (1.0, 1.0), (1e-9, 1e-8), (-1e6, 0.0)])
def test_limits_that_leave_no_range_are_refused(lowest, highest):
    with pytest.raises(ValueError, match="must be numbers of binary16, the lower one below the upper one"):
        Limited(name="layer", inputs=1, lowest=lowest, highest=highest)


@pytest.mark.parametrize("call", [nn.Hardtanh(-0.5, 0.75), nn.functional.hardtanh, lambda x: x.clamp(max=0.5),
                                  lambda x: torch.clip(x, -0.5), lambda x: x.clamp(-1, 1e9),
                                  lambda x: torch.clamp(x, 0.0, 0.5)])
def test_limits_of_pytorch(call):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.call = nn.Linear(6, 5), call

        def forward(self, x):
            return self.call(self.one(x))

    torch.manual_seed(0)
    net, x = Net().eval(), torch.randn(8, 6)
    found = graph_of(net, (6,)).run(x.numpy())
    assert np.allclose(found, net(x).detach().numpy(), atol=1e-6)


@pytest.mark.parametrize(("call", "sentence"), [
    (lambda x: x.clamp(-1e9, 1e9), "no number of binary16 is beyond its limits"),
    (lambda x: x.clamp(1e6), "leaves one number of binary16"),
    (lambda x: x.clamp(2.0, 1.0), "clamp")])
def test_limits_of_pytorch_that_are_refused(call, sentence):
    class Net(nn.Module):
        def forward(self, x):
            return call(x)

    with pytest.raises(ValueError, match=sentence):
        graph_of(Net(), (6,))


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
