"""Small ONNX files, made by hand, and the comparison of an import with onnxruntime."""

from pathlib import Path

import numpy as np
import onnx
from concord.frontends.onnx.compare import difference
from concord.frontends.onnx.read import Imported, read
from onnx import TensorProto, helper, numpy_helper

CLOSE = 1e-5  #: Largest difference from onnxruntime, relative to the largest output.
#: Gates of recurrent layers, by their kinds; numbers of inputs and of hidden elements of a layer.
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
INPUTS, HIDDEN = 3, 4


class OnnxGraph:
    """An ONNX graph that grows node by node; the last node gives its output.

    Args:
        shape: Shape of the input "x"; a text is an open axis.
        seed:  Seed of the weights.
    """

    def __init__(self, shape: tuple, seed: int = 0):
        self.random = np.random.default_rng(seed)
        self.inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
        self.nodes, self.tensors, self.at = [], [], "x"

    def weight(self, *shape: int, scale: float = 0.5, above: float | None = None) -> str:
        """A constant of random numbers, larger than `above` if that is given."""
        values = self.random.normal(size=shape) * scale
        return self.constant((values if above is None else above + np.abs(values)).astype(np.float32))

    def constant(self, value) -> str:
        """A constant tensor."""
        name = f"c{len(self.tensors)}"
        self.tensors.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def add(self, kind: str, *others: str, first: str | None = None, outputs: int = 1, domain: str = "",
            **attributes) -> str:
        """A node that takes the result of the last one, or of `first`, and constants; gives the name of its result."""
        name = f"n{len(self.nodes)}"
        names = [f"{name}_{index}" if index else f"{name}_y" for index in range(outputs)]
        self.nodes.append(helper.make_node(
            kind, [self.at if first is None else first, *others], names, name=f"{name}_{kind}", domain=domain,
            **attributes))
        self.at = names[0]
        return self.at

    def model(self, opset: int = 17, *outputs: str) -> onnx.ModelProto:
        """The whole model."""
        ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in (outputs or [self.at])]
        graph = helper.make_graph(self.nodes, "graph", self.inputs, ends, self.tensors)
        sets = [helper.make_opsetid(domain, version) for domain, version in (
            ("", opset), ("ai.onnx.ml", 3), ("qonnx.custom_op.general", 1))]
        return onnx.shape_inference.infer_shapes(helper.make_model(graph, opset_imports=sets, ir_version=8))


def written(folder: Path, model: onnx.ModelProto | OnnxGraph, name: str = "network.onnx") -> Path:
    """The file of a model."""
    path = folder / name
    onnx.save(model.model() if isinstance(model, OnnxGraph) else model, path)
    return path


def equal(path: Path, **options) -> Imported:
    """The import of a file, which gives what onnxruntime gives."""
    imported = read(path, **options)
    assert difference(imported) < CLOSE
    return imported


def layer(graph: OnnxGraph, kind: str, directions: int, inputs: int = INPUTS, **attributes) -> str:
    """A recurrent layer with weights of a graph; its hidden vectors of all time steps."""
    gates = GATES[kind] * HIDDEN
    weights = [graph.weight(directions, gates, size) for size in (inputs, HIDDEN)]
    return graph.add(kind, *weights, graph.weight(directions, 2 * gates), hidden_size=HIDDEN, outputs=2,
                     direction="bidirectional" if directions == 2 else "forward", **attributes)


def network(kind: str) -> OnnxGraph:
    """A graph of float layers: "dense" or "image"."""
    if kind == "dense":
        graph = OnnxGraph(("batch", 12))
        for size, inputs in ((10, 12), (6, 10)):
            graph.add("Gemm", graph.weight(size, inputs), graph.weight(size), transB=1)
            graph.add("Relu")
        graph.add("MatMul", graph.weight(6, 3))
        return graph
    graph = OnnxGraph(("batch", 3, 8, 8))
    graph.add("Conv", graph.weight(6, 3, 3, 3), graph.weight(6), pads=[1, 1, 1, 1])
    graph.add("Relu")
    graph.add("MaxPool", kernel_shape=[2, 2], strides=[2, 2])
    graph.add("Conv", graph.weight(6, 1, 3, 3), graph.weight(6), group=6)
    graph.add("GlobalAveragePool")
    graph.add("Flatten")
    graph.add("Gemm", graph.weight(4, 6), graph.weight(4), transB=1)
    return graph


def sequences() -> OnnxGraph:
    graph = OnnxGraph(("time", "batch", INPUTS))
    layer(graph, "LSTM", 2)
    graph.at = graph.nodes[-1].output[1]
    graph.add("Transpose", perm=[1, 0, 2])
    graph.add("Reshape", graph.constant(np.array([-1, 2 * HIDDEN])))
    return graph
