"""Graph convolutions of a fixed graph: imported, quantised, trained for narrow accumulators, and run on a machine."""

import numpy as np
import pytest
from concord.compiler.network import compile_network
from concord.datasets.samples import DataSet, Samples, Task
from concord.firmware.session import Session
from concord.net import network as golden
from concord.net.layer_overflow import Widths, dry_run
from concord.net.ops.weighted import NodeLinear
from concord.net.quantize.choices import BlockRecipe, Choices
from concord.sim.machines.host import machine
from concord.spec.machine.config import preset

onnx = pytest.importorskip("onnx", reason="onnx is in the dependency group `test`")
torch = pytest.importorskip("torch", reason="PyTorch is in the dependency group `train`")
from concord.frontends.onnx.read import read
from concord.train.network.quantized_network import behind_quantizers
from concord.train.overflow.options import OverflowOptions
from concord.train.overflow.predictor import Predictor, kind
from concord.train.overflow.record import STEPS, NetworkKind
from concord.train.runs.imported import train_imported
from onnx import TensorProto, helper, numpy_helper

pytestmark = pytest.mark.usefixtures("seeded")
NODES, FEATURES, CLASSES = 5, 4, 3


def numbers() -> dict[str, np.ndarray]:
    """A ring of nodes, each of which reads itself and its neighbours, and random weights."""
    rng = np.random.default_rng(3)
    ring = sum(np.roll(np.eye(NODES), shift, axis=1) for shift in (-1, 0, 1)) / 3
    return {"ring": ring, "one": rng.normal(size=(FEATURES, 6)), "bias": rng.normal(size=6),
            "two": rng.normal(size=(6, 4)), "last": rng.normal(size=(NODES * 4, CLASSES))}


def write(path, *, graph_first: bool, **more: np.ndarray):
    """A file of two graph convolutions and a dense layer."""
    tensors = {name: value.astype(np.float32) for name, value in (numbers() | more).items()}

    def convolution(x, weights, out):
        first, second = (("ring", x), (f"{out} a", weights)) if graph_first else ((x, weights), ("ring", f"{out} a"))
        return [helper.make_node("MatMul", first, [f"{out} a"]), helper.make_node("MatMul", second, [f"{out} b"])]

    nodes = [
        *convolution("x", "one", "c1"), helper.make_node("Add", ["c1 b", "bias"], ["sum"]),
        helper.make_node("Relu", ["sum"], ["r"]), *convolution("r", "two", "c2"),
        helper.make_node("Relu", ["c2 b"], ["s"]), helper.make_node("Flatten", ["s"], ["flat"]),
        helper.make_node("MatMul", ["flat", "last"], ["y"])]
    graph = helper.make_graph(
        nodes, "graph", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", NODES, FEATURES])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", CLASSES])],
        [numpy_helper.from_array(value, name) for name, value in tensors.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def formula(x: np.ndarray, graph_first: bool) -> np.ndarray:
    """The network of the file in numpy, for x[samples, nodes, features]."""
    n = numbers()
    r = np.maximum(n["ring"] @ x @ n["one"] + n["bias"], 0)
    return np.maximum(n["ring"] @ r @ n["two"], 0).reshape(len(x), -1) @ n["last"]


def as_network(imported, x: np.ndarray) -> np.ndarray:
    """Samples [samples, nodes, features] in the order in which the network takes them."""
    made = np.empty((len(x), x[0].size), np.float32)
    made[:, imported.numbers[0].reshape(-1)] = x.reshape(len(x), -1)
    return made.reshape(-1, *imported.network.shape)


@pytest.mark.parametrize("graph_first", [True, False])
def test_a_file_is_folded_to_products_of_whole_samples(tmp_path, graph_first):
    write(tmp_path / "g.onnx", graph_first=graph_first)
    imported = read(tmp_path / "g.onnx")
    ops = [node.op for node in imported.network.nodes if isinstance(node.op, NodeLinear)]
    assert [op.constant for op in ops] == ([True, False] * 2 if graph_first else [True, False, True])
    x = np.random.default_rng(0).normal(size=(4, NODES, FEATURES)).astype(np.float32)
    np.testing.assert_allclose(imported.network.run(as_network(imported, x)), formula(x, graph_first), rtol=1e-4,
                               atol=1e-5)


def test_a_constant_of_another_shape_is_refused(tmp_path):
    write(tmp_path / "g.onnx", graph_first=True, ring=np.ones((NODES, NODES + 1)))
    with pytest.raises(ValueError, match=r"it multiplies a constant \[5, 6\] by the input \[2, 5, 4\]"):
        read(tmp_path / "g.onnx")


@pytest.mark.parametrize("graph_first", [True, False])
def test_training_keeps_the_graph_and_no_sum_overflows(tmp_path, graph_first):
    write(tmp_path / "g.onnx", graph_first=graph_first)
    imported = read(tmp_path / "g.onnx")
    x = np.random.default_rng(0).normal(size=(60, NODES, FEATURES)).astype(np.float32)
    x = x.astype(np.float16)
    samples = Samples(inputs=x.reshape(60, -1).view(np.uint16), lengths=None,
                      labels=formula(x, graph_first).argmax(1).astype(np.uint8), classes=())
    inputs = as_network(imported, x).reshape(60, -1).astype(np.float16).view(np.uint16)
    data = DataSet(name="graph", task=Task.CLASSIFICATION, shape=(NODES, FEATURES), train=samples,
                   test=samples.first(20), calibration=None, description="data = \"graph\"")
    model = train_imported(tmp_path / "m", network=imported.network, data=data, choices=Choices(), epochs=(3, 1),
                           rate=0.01, overflow=OverflowOptions(accumulator=13))
    assert [use.count.number for use in dry_run(model, inputs, None, Widths(sum_bits=13))] == [0] * len(
        model.layers)
    assert model.provenance.golden_accuracy > 0.7
    first = {node.name: node.op for node in imported.network.nodes if isinstance(node.op, NodeLinear)}
    layers = dict(zip(first, [layer for layer in model.layers if "MatMul" in layer.name or layer.name in first],
                      strict=False))
    assert len(layers) == len(first)
    for name, op in first.items():
        weights = layers[name].weights
        assert (weights[op.weight == 0] == 0).all()
        assert weights.any()
    config = preset("vision")
    session = Session(machine("golden", config), compile_network(model, config).firmware)
    outputs = golden.outputs(model, inputs[:3])
    assert np.array_equal([session.infer(sample) for sample in inputs[:3]], outputs)
    assert (outputs != outputs[0]).any()


def test_the_graphs_own_weights_stay_and_its_kind_has_defaults(tmp_path):
    write(tmp_path / "g.onnx", graph_first=True)
    network = read(tmp_path / "g.onnx").network
    x = torch.rand(20, NODES * FEATURES).half().float()
    for recipe in (Choices(), BlockRecipe()):
        net = behind_quantizers(network, x, recipe)
        trained = [[] for _ in range(2)]
        net(x).square().sum().backward()
        for part in net.plan.parts:
            if isinstance(part.op, NodeLinear):
                layer = net.layers[part.name]
                weight = layer.weight if hasattr(layer, "weight") else layer.weights.weight
                trained[part.op.constant].append(weight.requires_grad)
                if part.op.constant:
                    scales = layer.parameters() if recipe != Choices() else layer.weights.parameters()
                    assert not any(one.requires_grad for one in scales)
                if weight.requires_grad:
                    assert (weight.grad[torch.from_numpy(part.op.weight == 0)] == 0).all()
                    assert weight.grad.any()
        assert trained == [[True, True], [False, False]]
    assert kind(behind_quantizers(network, x, Choices())) is NetworkKind.GCN


def test_graph_convolutions_in_coarse_steps_are_trained_more_slowly(tmp_path):
    write(tmp_path / "g.onnx", graph_first=True)
    x = torch.rand(20, NODES * FEATURES).half().float()
    made = Predictor(behind_quantizers(read(tmp_path / "g.onnx").network, x, Choices()), x, Widths(sum_bits=40),
                     STEPS[NetworkKind.GCN])
    for grown, rate in (1.0, 0.01), (2.9, 0.01), (3.1, 0.001):
        for found in made.factors.values():
            found.parameters[:] = grown
        assert made.rate(0.01) == rate
