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
