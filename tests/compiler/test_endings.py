"""Ends of networks that firmware gives as the model does, and sums behind functions that take several operations."""

import concord
import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
from concord.campaigns.makers.onnx_graphs import OnnxGraph, written


def models(tmp_path, graph: OnnxGraph, samples: np.ndarray):
    """The network of a graph, and its model for `vision`."""
    network = concord.load(written(tmp_path, graph))
    return network, concord.quantize(network, (samples, concord.run(network, samples).numbers), preset="vision")


def residual(kind: str) -> OnnxGraph:
    """The sum of a tensor and a function of a layer that reads it."""
    graph = OnnxGraph((1, 3, 6, 5) if kind == "LeakyRelu" else (1, 20))
    if kind == "LeakyRelu":
        start = graph.add("Relu", first=graph.add("Conv", graph.weight(8, 3, 3, 3), pads=[1] * 4))
        graph.add("Conv", graph.weight(8, 8, 3, 3), pads=[1] * 4)
    else:
        start = graph.add("Relu", first=graph.add("Gemm", graph.weight(20, 16)))
        graph.add("Gemm", graph.weight(16, 16))
    graph.add("Add", graph.add(kind), first=start)
    graph.add("Flatten")
    graph.add("Gemm", graph.weight(240 if kind == "LeakyRelu" else 16, 4))
    return graph


@pytest.mark.parametrize(("kind", "opset"), [("LeakyRelu", 17), ("Gelu", 20)])
def test_sums_behind_functions_of_several_operations(tmp_path, kind, opset):
    """As Darknet has them, and transformers without attention."""
    graph = residual(kind)
    shape = (32, 3, 6, 5) if kind == "LeakyRelu" else (32, 20)
    samples = graph.random.normal(size=shape).astype(np.float32)
    network, model = models(tmp_path, graph.model(opset), samples)
    golden = concord.run(concord.compile(model, preset="vision"), samples[:4]).numbers
    assert np.array_equal(golden, concord.run(model, samples[:4]).numbers)
    real = concord.run(network, samples[:4]).numbers
    assert np.abs(golden - real).max() < np.abs(real).max() / 20


def test_an_image_beside_a_vector_is_refused(tmp_path):
    """The machine sends an image pixel by pixel, and the vector of all outputs has it channel by channel."""
    graph = OnnxGraph((1, 3, 4, 4))
    image = graph.add("Relu", first=graph.add("Conv", graph.weight(16, 3, 3, 3), pads=[1] * 4))
    vector = graph.add("Gemm", graph.weight(16, 3), first=graph.add("Flatten", first=graph.add("GlobalAveragePool")))
    samples = graph.random.normal(size=(16, 3, 4, 4)).astype(np.float32)
    _, model = models(tmp_path, graph.model(17, image, vector), samples)
    with pytest.raises(ValueError, match="it has the elements of an image beside others"):
        concord.compile(model, preset="vision")


@pytest.mark.parametrize(("first", "second"), [(True, True), (False, True), (True, False)])
def test_recurrent_layers_in_both_directions_one_after_the_other(tmp_path, first, second):
    """The file fixes the number of time steps, and the network ends with the last hidden vectors."""
    torch = pytest.importorskip("torch", reason="PyTorch is in the dependency group `train`")

    class Stacked(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.one = torch.nn.LSTM(6, 8, bidirectional=first, batch_first=True)
            self.two = torch.nn.GRU(8 << first, 5, bidirectional=second, batch_first=True)
            self.end = torch.nn.Linear(5 << second, 3)

        def forward(self, x):
            return self.end(self.two(self.one(x)[0])[1].transpose(0, 1).flatten(1))

    torch.manual_seed(0)
    samples = np.random.default_rng(0).normal(size=(32, 9, 6)).astype(np.float32)
    network = concord.load(Stacked(), torch.zeros(1, 9, 6))
    model = concord.quantize(network, (samples, concord.run(network, samples).numbers), preset="vision")
    golden = concord.run(concord.compile(model, preset="vision"), samples[:4]).numbers
    assert np.array_equal(golden, concord.run(model, samples[:4]).numbers)
    real = concord.run(network, samples[:4]).numbers
    assert np.abs(golden - real).max() < np.abs(real).max() / 20
