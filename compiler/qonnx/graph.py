"""Convert a quantised model to a QONNX graph that returns the machine's bits.

Integers come from `Quant` nodes of scale 1, products of integers are exact, and each operation on binary16 rounds once,
in the order in which `net.network` computes. Bits may differ for an input that leads to a NaN.
"""

import json
from dataclasses import asdict

import onnx
from concord.compiler.qonnx.form import AddForm, ConcatForm, MaxPoolForm, QonnxForm, QonnxTensor, SoftmaxForm, shaped
from concord.compiler.qonnx.nodes import DOMAIN, QonnxNodes, quant_function
from concord.compiler.qonnx.product import ConvolutionForm, ProductForm
from concord.net.layers.convolution import Conv
from concord.net.layers.dense import Dense
from concord.net.layers.joins import Add, Concat, Softmax
from concord.net.layers.layer import Layer
from concord.net.layers.pooling import Average, MaxPool
from concord.net.model import INPUT, Model
from onnx import ModelProto, TensorProto, helper

#: The form of each class of layers.
FORMS: dict[type[Layer], QonnxForm] = {
    Dense: ProductForm(),
    Conv: ConvolutionForm(),
    Average: ConvolutionForm(),
    MaxPool: MaxPoolForm(),
    Add: AddForm(),
    Concat: ConcatForm(),
    Softmax: SoftmaxForm(),
}


def qonnx_graph(model: Model, batch: int = 1) -> ModelProto:
    """Make the QONNX graph of a model.

    Args:
        model: Model of dense layers and convolutions in integer mode, pooling, sums, concatenations and a softmax.
        batch: Number of samples that one run takes.

    Raises:
        ValueError: a layer has no QONNX form.
    """
    for layer in model.layers:
        if type(layer) not in FORMS:
            raise ValueError(
                f"layer {layer.name!r} ({layer.title}) has no QONNX form: dense layers, convolutions, pooling, sums, "
                "concatenations and a softmax of integer mode have one; hand over the model file instead: "
                "`nnp export MODEL DESTINATION`")
        FORMS[type(layer)].check(layer)
    nodes, shape = QonnxNodes(), model.layers[0].entering
    entry = nodes.add("Cast", "input.float32", "input", to=TensorProto.FLOAT)
    made = {INPUT: QonnxTensor(name=entry, shape=shape, minus_zero=True)}
    for layer in model.layers:
        sources = [made[name] for name in model.sources_of(layer)]
        made[layer.name] = FORMS[type(layer)].add(nodes, layer, sources)
    last = shaped(nodes, "output.vector", made[model.layers[-1].name], (model.outputs,))
    nodes.add("Cast", "output", last.name, to=TensorProto.FLOAT16)
    ends = (helper.make_tensor_value_info(name, TensorProto.FLOAT16, (batch, *size))
            for name, size in (("input", shape), ("output", last.shape)))
    return _packed(model, nodes, *ends)


def _packed(model: Model, nodes: QonnxNodes, entry, result) -> ModelProto:
    """The complete file with the shapes of all tensors, after onnx has checked it."""
    graph = helper.make_graph(
        nodes.nodes, model.name, [entry], [result], list(nodes.constants.values()),
        doc_string=f"{model.preprocessing}; binary16 in, binary16 out")
    opsets = [helper.make_opsetid("", nodes.opset), helper.make_opsetid(DOMAIN, 1)]
    made = helper.make_model(
        graph, opset_imports=opsets, functions=[quant_function(nodes.opset)], producer_name="concord",
        ir_version=helper.find_min_ir_version_for(opsets[:1]))
    helper.set_model_props(made, {
        "name": model.name,
        "data": model.data,
        "preprocessing": model.preprocessing,
        "classes": json.dumps(model.classes),
        "provenance": json.dumps(asdict(model.provenance)),
    })
    made = onnx.shape_inference.infer_shapes(made, check_type=True, strict_mode=True)
    onnx.checker.check_model(made)
    return made

