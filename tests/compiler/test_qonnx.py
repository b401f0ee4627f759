"""QONNX graphs return golden's bits in qonnx's executor and in onnxruntime; layers without a QONNX form are named."""

import json
from dataclasses import replace

import numpy as np
import onnxruntime
import pytest
from concord.campaigns.makers import networks
from concord.compiler.qonnx.graph import qonnx_graph
from concord.compiler.qonnx.nodes import OPSET, QonnxNodes
from concord.datasets import dataset
from concord.golden.lib import float16
from concord.net import network
from concord.net.layers.joins import Add, Concat, Softmax
from concord.net.layers.layer import Layer
from concord.net.layers.pooling import MaxPool
from concord.net.lowering import image_lowering, lowering
from concord.net.lowering.rounding import binary16
from concord.net.model import INPUT, Model
from concord.net.model_file import load_model
from concord.spec.numbers.activation import Activation
from concord.spec.numbers.formats import Format
from onnx import TensorProto, helper
from qonnx.core.modelwrapper import ModelWrapper
from qonnx.core.onnx_exec import execute_onnx
from qonnx.transformation.infer_datatypes import InferDataTypes
from qonnx.util.cleanup import cleanup_model

MLP = dataset.DATA / "models" / "fashion-mlp-w4a4.safetensors"
RNG = np.random.default_rng(11)
#: Patterns of zeros and subnormals of both signs, the extremes, and infinities.
CORNERS = np.array([0x0000, 0x8000, 0x0001, 0x8001, 0x03FF, 0x83FF, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00], np.uint16)


def halves(*shape, scale=3.0, corners=()):
    """Random binary16 numbers, an eighth of which are `corners`."""
    x = networks.inputs(RNG, *shape).view(np.float16) * np.float16(scale)
    return np.where(RNG.random(shape) < 1 / 8, RNG.choice(corners, shape), x.view(np.uint16)) if len(corners) else (
        x.view(np.uint16))


def dense(name, inputs, outputs, *, bits=4, symmetric=True, **options):
    """A dense layer of random integers."""
    fmt = Format(bits=bits, symmetric=symmetric)
    return lowering.dense(**{
        "name": name, "codes": RNG.integers(fmt.lowest, fmt.highest + 1, (outputs, inputs)),
        "gain": RNG.uniform(0.5, 1.5, outputs) / np.sqrt(inputs) / fmt.highest, "constant": RNG.normal(size=outputs),
        "weights_format": fmt, "input_format": fmt, "unsigned": True, "s_in": 6 / fmt.levels, "quantize_input": True,
        **options})


def conv(name, shape, outputs, *, size=(3, 3), stride=(1, 1), padding=(1, 1, 1, 1), dilation=(1, 1), groups=1, bits=4,
         symmetric=True, bias=0, border=0, **options):
    """A convolution whose parameters are those of a dense layer on one patch."""
    each = shape[0] // groups
    patch = dense(name, each * size[0] * size[1], outputs, bits=bits, symmetric=symmetric, **options)
    real = patch.quant_scale is not None
    made = image_lowering.convolution(
        patch, shape=shape, kernels=(outputs, each, *size), stride=stride, padding=padding, dilation=dilation,
        groups=groups)
    return replace(
        made, border=border, start=patch.start + bias,
        quant_scale=binary16(RNG.uniform(1, 2, shape[0])) if real else None,
        quant_offset=halves(shape[0], scale=1) if real else None)


def pool(shape=(2, 6, 6), **options):
    return MaxPool(**{"name": "pool", "shape": shape, "size": (3, 3), "stride": (2, 2), **options})


def mean(shape=(2, 6, 6), *, bits=4, **options):
    fmt = Format(bits=bits, symmetric=True)
    return image_lowering.average(**{
        "name": "mean", "shape": shape, "size": (3, 3), "stride": (2, 2), "input_format": fmt, "unsigned": True,
        "s_in": 6 / fmt.levels, "m_in": -0.25, "quantize_input": True, **options})


def residual() -> Model:
    """A model of two residual blocks, one with a convolution in its shortcut, parallel branches and a dense layer."""
    relu, image = {"activation": Activation.RELU}, (8, 6, 6)
    layers = [
        conv("stem", (2, 12, 12), 8, stride=(2, 2), unsigned=False, border=0x3800, **relu),
        conv("a1", image, 8, groups=4, s_out=0.2, **relu), conv("a2", image, 8, quantize_input=False),
        Add(name="a", inputs=288, activation=Activation.RELU),
        conv("b1", image, 6, size=(3, 2), stride=(2, 2), symmetric=False, bias=5),
        conv("b2", image, 6, size=(3, 2), stride=(2, 2)),
        Add(name="b", inputs=72), pool(image, padding=(1, 1, 1, 1)), mean(image),
        Concat(name="short", sizes=(72, 72, 32)), dense("last", 176, 5)]
    return networks.model(layers, sources={
        "a": ("a2", "stem"), "b2": ("a",), "b": ("b1", "b2"), "pool": ("a",), "mean": ("a",),
        "short": ("b", "pool", "mean")})


def onnx_bits(model: Model, x, *, optimise: bool) -> np.ndarray:
    """The output bits of onnxruntime."""
    graph, options = qonnx_graph(model, len(x)), onnxruntime.SessionOptions()
    levels = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimise else levels.ORT_DISABLE_ALL
    options.log_severity_level, options.intra_op_num_threads = 3, 1
    session = onnxruntime.InferenceSession(graph.SerializeToString(), options)
    value = x.view(np.float16).reshape(session.get_inputs()[0].shape)
    return session.run(None, {"input": value})[0].view(np.uint16)


def qonnx_bits(model: Model, x, *, clean: bool) -> np.ndarray:
    """The output bits of qonnx's executor."""
    wrapper = ModelWrapper(qonnx_graph(model, 1 if clean else len(x)))
    if clean:
        wrapper = cleanup_model(wrapper, override_inpsize=len(x)).transform(InferDataTypes())
    entry, result = wrapper.graph.input[0].name, wrapper.graph.output[0].name
    value = x.view(np.float16).reshape(wrapper.get_tensor_shape(entry))
    return execute_onnx(wrapper, {entry: value})[result].view(np.uint16)


def differing(model: Model, x) -> list[int]:
    """The number of differing outputs for each way to run the graph."""
    want = network.outputs(model, x)
    assert not float16.is_nan(want).any()
    found = [run(model, x, **{option: value}) for run, option in ((onnx_bits, "optimise"), (qonnx_bits, "clean"))
             for value in (False, True)]
    return [int((bits != want).sum()) for bits in found]


def test_a_trained_mlp():
    model, data = load_model(MLP), dataset.load("fashion-mnist")
    assert differing(model, data.inputs[:300]) == [0, 0, 0, 0]


def test_a_residual_network():
    model = residual()
    assert differing(model, halves(20, 288, corners=CORNERS)) == [0, 0, 0, 0]


@pytest.mark.parametrize("layer", [
    dense("unsigned", 20, 30), dense("full", 20, 30, symmetric=False), dense("signed", 20, 30, unsigned=False),
    dense("steps", 20, 30, quantize_input=False), dense("offset", 20, 30, m_in=-0.5, activation=Activation.RELU),
    dense("small", 20, 30, gain=1e-6, constant=np.zeros(30)),
    dense("tanh", 20, 30, activation=Activation.TANH), dense("sigmoid", 20, 30, activation=Activation.SIGMOID),
    dense("wide", 20, 30, bits=16), dense("signed wide", 20, 30, bits=16, unsigned=False, symmetric=False),
    conv("wide convolution", (4, 5, 6), 6, bits=16, groups=2, stride=(2, 1), size=(3, 2), bias=1 << 30,
         dilation=(1, 2), padding=(0, 1, 2, 1)),
    conv("dilated", (4, 5, 6), 6, stride=(1, 2), dilation=(2, 3), padding=(2, 1, 0, 3), border=0x3C00),
    conv("depthwise", (4, 5, 6), 8, groups=4, activation=Activation.RELU, border=0x4000),
    mean(), mean(name="wide mean", bits=16), mean(name="signed mean", unsigned=False, activation=Activation.RELU),
    mean(name="padded mean", padding=(0, 1, 2, 0), quantize_input=False),
    pool(), pool(padding=(1, 0, 0, 1)), pool(size=(2, 3), dilation=(2, 1), activation=Activation.RELU),
], ids=lambda layer: layer.name)
def test_one_layer(layer: Layer):
    assert differing(networks.model([layer]), halves(40, layer.inputs, corners=CORNERS)) == [0, 0, 0, 0]


def test_joins_of_a_layer_and_the_input():
    layers = [dense("dense", 20, 20), Add(name="sum", inputs=20, activation=Activation.RELU),
              Concat(name="both", sizes=(20, 20))]
    model = networks.model(layers, sources={"sum": (INPUT, "dense"), "both": ("sum", INPUT)})
    assert differing(model, halves(40, 20, corners=CORNERS)) == [0, 0, 0, 0]


@pytest.mark.parametrize("elements", [1, 3, 40])
def test_a_softmax(elements):
    layers = [dense("dense", 20, elements), Softmax(name="softmax", inputs=elements)]
    assert differing(networks.model(layers), halves(60, 20)) == [0, 0, 0, 0]
    small = [halves(200, elements, scale=scale) for scale in (0.01, 1.0, 8.0)]
    x = np.concatenate([*small, halves(40, elements, corners=CORNERS[CORNERS != 0x7C00])])
    x = x[(x != 0xFC00).any(1)]
    assert differing(networks.model([Softmax(name="softmax", inputs=elements)]), x) == [0, 0, 0, 0]


def test_zeros_through_joins():
    image = (2, 4, 5)
    layers = [pool(image, size=(1, 1), stride=(1, 1)), Add(name="sum", inputs=40, activation=Activation.RELU),
              Concat(name="both", sizes=(40, 40)), pool((4, 4, 5), name="largest")]
    x = RNG.choice(np.array([0x0000, 0x8000, 0xBC00], np.uint16), (60, 40), p=(0.1, 0.6, 0.3))
    for kind in Activation.RELU, Activation.NONE:
        layers[1] = replace(layers[1], activation=kind)
        sources = {"sum": (INPUT, "pool"), "both": (INPUT, "sum")}
        assert differing(networks.model(layers, sources=sources), x) == [0, 0, 0, 0]


def test_a_sum_of_minus_zeros():
    layers = [pool((1, 1, 1), size=(1, 1)), Add(name="sum", inputs=1, activation=Activation.RELU)]
    model = networks.model(layers, sources={"sum": (INPUT, "pool")})
    # The input is small: for many numbers at once, onnxruntime's Relu turns -0 into +0.
    assert differing(model, np.full((3, 1), 0x8000, np.uint16)) == [0, 0, 0, 0]


def test_maxima_of_zeros():
    x = RNG.choice(np.array([0x0000, 0x8000, 0x8001, 0xBC00], np.uint16), (60, 72), p=(0.1, 0.4, 0.25, 0.25))
    assert (network.outputs(networks.model([pool()]), x) == 0x8000).any()
    assert differing(networks.model([pool()]), x) == [0, 0, 0, 0]


def test_an_offset_of_minus_zero():
    layer = replace(dense("dense", 4, 3, gain=1e-9, constant=np.zeros(3)), offset=np.full(3, 0x8000, np.uint16))
    x = np.concatenate([halves(50, 4), np.zeros((3, 4), np.uint16)])
    for kind in Activation.NONE, Activation.RELU:
        model = networks.model([replace(layer, activation=kind)])
        assert (network.outputs(model, x) == 0x8000).any() == (kind == Activation.NONE)
        assert differing(model, x) == [0, 0, 0, 0]


@pytest.mark.parametrize("p", [-2, 0, 9, 31])
def test_sums_in_float64_round_once(p):
    significands = np.concatenate([np.arange(2048, 4096), RNG.integers(1 << 24, 1 << 25, 2000)])
    values = np.concatenate([(significands << shift) + low for shift in (0, 9, 13, 20, 22, 31) for low in (-1, 0, 1)])
    values = np.concatenate([values, -values])
    values = values[np.abs(values) < 1 << 53]
    largest = int(np.abs(values).max())
    nodes = QonnxNodes()
    moved = nodes.add("Mul", "moved", nodes.narrowed("narrow", "x", largest), nodes.constant("places", 2.0**-p))
    nodes.add("Cast", "y", moved, to=TensorProto.FLOAT16)
    ends = (helper.make_tensor_value_info(name, kind, [len(values)])
            for name, kind in (("x", TensorProto.DOUBLE), ("y", TensorProto.FLOAT16)))
    graph = helper.make_graph(nodes.nodes, "sums", *([end] for end in ends), list(nodes.constants.values()))
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)
    session = onnxruntime.InferenceSession(made.SerializeToString())
    got = session.run(None, {"x": values.astype(np.float64)})[0].view(np.uint16)
    assert (got == float16.from_integer(values, p)).all()


def test_the_file_says_where_it_comes_from():
    model = load_model(MLP)
    found = {item.key: item.value for item in qonnx_graph(model).metadata_props}
    assert tuple(json.loads(found["classes"])) == model.classes
    assert json.loads(found["provenance"])["command"] == model.provenance.command
    assert found["preprocessing"] == model.preprocessing


def test_weights_have_their_width():
    wrapper = ModelWrapper(qonnx_graph(load_model(MLP))).transform(InferDataTypes())
    kinds = {str(wrapper.get_tensor_datatype(node.output[0])) for node in wrapper.get_nodes_by_op_type("Quant")}
    assert kinds == {"INT4", "UINT4"}


def test_sums_beyond_float64_are_refused():
    layer = replace(dense("huge", 4, 3), start=np.full(3, 1 << 60))
    with pytest.raises(ValueError, match="layer 'huge': its sums need 61 bits, and float64 holds 53"):
        qonnx_graph(networks.model([layer]))


@pytest.mark.parametrize("name", ["vowels-lstm-w8", "fashion-mlp-bfp8"])
def test_what_has_no_such_form_is_named(name):
    model = load_model(MLP.with_name(f"{name}.safetensors"))
    first = model.layers[0]
    with pytest.raises(ValueError, match=rf"layer '{first.name}' \({first.title}\) has no QONNX form"):
        qonnx_graph(model)
