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


def heads(*ends: str) -> OnnxGraph:
    """A network with several outputs, named by `ends`: an image, a smaller image, a vector."""
    graph, made = OnnxGraph((1, 3, 8, 8)), []
    image = graph.add("Relu", first=graph.add("Conv", graph.weight(9, 3, 3, 3), pads=[1] * 4))
    small = graph.add("Relu", first=graph.add("Conv", graph.weight(5, 9, 3, 3), strides=[2, 2]))
    for end in ends:
        match end:
            case "image":
                made.append(graph.add("Conv", graph.weight(6, 9, 1, 1), first=image))
            case "small":
                made.append(graph.add("Conv", graph.weight(6, 5, 1, 1), first=small))
            case _:
                graph.add("Flatten", first=graph.add("GlobalAveragePool", first=small))
                made.append(graph.add("Gemm", graph.weight(5, 3)))
    graph.ends = made
    return graph


@pytest.mark.parametrize("ends", [("image", "small"), ("image", "vector"), ("vector", "small", "image")], ids="-".join)
def test_images_beside_other_outputs(tmp_path, ends):
    """The machine sends an image pixel by pixel, and the vector of all outputs has it channel by channel."""
    graph = heads(*ends)
    samples = graph.random.normal(size=(16, 3, 8, 8)).astype(np.float32)
    network = concord.load(written(tmp_path, graph.model(17, *graph.ends)))
    model = concord.quantize(network, (samples, concord.run(network, samples).numbers), preset="vision")
    golden = concord.run(concord.compile(model, preset="vision"), samples[:4]).numbers
    assert np.array_equal(golden, concord.run(model, samples[:4]).numbers)
    real = concord.run(network, samples[:4]).numbers
    assert np.abs(golden - real).max() < np.abs(real).max() / 20


@pytest.mark.parametrize("machine", ["speech", "tiny"])
def test_outputs_that_fill_no_words(tmp_path, machine):
    graph = OnnxGraph((1, 12))
    hidden = graph.add("Relu", first=graph.add("Gemm", graph.weight(12, 20)))
    ends = [graph.add("Gemm", graph.weight(20, size), first=hidden) for size in (10, 3, 5)]
    samples = graph.random.normal(size=(16, 12)).astype(np.float32)
    network = concord.load(written(tmp_path, graph.model(17, *ends)))
    model = concord.quantize(network, (samples, concord.run(network, samples).numbers), preset=machine)
    golden = concord.run(concord.compile(model, preset=machine), samples[:4]).numbers
    assert np.array_equal(golden, concord.run(model, samples[:4]).numbers)
    real = concord.run(network, samples[:4]).numbers
    assert np.abs(golden - real).max() < np.abs(real).max() / 20


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
