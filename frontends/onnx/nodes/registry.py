"""The operators that can be imported."""

from collections.abc import Callable

from concord.frontends.onnx.lib.builder import Builder
from concord.frontends.onnx.lib.step import QONNX, FileNode, Value
from concord.frontends.onnx.nodes import (
    activation,
    arithmetic,
    attention,
    convolution,
    dense,
    enlarging,
    layout,
    pooling,
    quantized,
    recurrent,
    reduction,
)

#: What makes nodes of an operator: from its step and where nodes go, to its results.
Handler = Callable[[FileNode, Builder], list[Value]]

HANDLERS: dict[str, Handler] = {
    **dict.fromkeys(activation.ACTIVATIONS, activation.activation),
    **dict.fromkeys(("Expand", "Flatten", "Gather", "Reshape", "Slice", "SpaceToDepth", "Split", "Squeeze", "Tile",
                     "Transpose", "Unsqueeze"), layout.move),
    **dict.fromkeys(("GRU", "LSTM", "RNN"), recurrent.recurrent),
    "Add": arithmetic.add,
    "Attention": attention.attention,
    "AveragePool": pooling.average_pool,
    "BatchNormalization": arithmetic.batch_norm,
    "Cast": layout.cast,
    "Clip": activation.clip,
    "Concat": arithmetic.concat,
    "Conv": convolution.conv,
    "ConvTranspose": enlarging.conv_transpose,
    "DepthToSpace": enlarging.depth_to_space,
    "DequantizeLinear": quantized.dequantize_linear,
    "Div": arithmetic.div,
    "Dropout": layout.same,
    "Gelu": activation.gelu,
    "Gemm": dense.gemm,
    "GlobalAveragePool": pooling.global_average,
    "GlobalMaxPool": pooling.global_max,
    "HardSigmoid": activation.hard_sigmoid,
    "Identity": layout.same,
    "LayerNormalization": reduction.normalization,
    "LeakyRelu": activation.leaky_relu,
    "MatMul": dense.matmul,
    "Max": activation.extreme,
    "MaxPool": pooling.max_pool,
    "Min": activation.extreme,
    "Mul": arithmetic.mul,
    "Neg": arithmetic.neg,
    "PRelu": activation.prelu,
    "Pad": layout.pad,
    "QuantizeLinear": quantized.quantize_linear,
    "ReduceMean": pooling.reduce_mean,
    "RMSNormalization": reduction.normalization,
    "Resize": enlarging.resize,
    "Shape": layout.shape,
    "SimplifiedLayerNormalization": reduction.normalization,
    "Size": layout.shape,
    "Sub": arithmetic.sub,
    "Sum": arithmetic.add,
    "Swish": arithmetic.swish,
    "Upsample": enlarging.resize,
    "ai.onnx.ml.LinearClassifier": dense.linear_classifier,
    "ai.onnx.ml.LinearRegressor": dense.linear_regressor,
    "ai.onnx.ml.Scaler": dense.scaler,
    **{f"{domain}.{kind}": handler for domain in QONNX
       for kind, handler in (("Quant", quantized.quant), ("IntQuant", quantized.quant),
                             ("BipolarQuant", quantized.bipolar))},
}

#: Operators that are refused, each with the reason and the advice of its own.
REFUSED = {
    **dict.fromkeys(("QLinearConv", "QLinearMatMul", "ConvInteger", "MatMulInteger"), (
        "it computes with integers itself", "write QuantizeLinear and DequantizeLinear instead (QuantFormat.QDQ)")),
    "DynamicQuantizeLinear": ("its scale depends on each input", "use scales from calibration (static quantisation)"),
    **dict.fromkeys(("Loop", "Scan"), (
        "it repeats a graph of its own",
        "write recurrent layers as LSTM, GRU or RNN (of Keras, tf2onnx does so for LSTM of one direction)")),
    "If": ("it chooses between graphs", "export the network with constant shapes, or with dynamo=True"),
    **{kind: ("the machine has no such activation function", f"use {other} and train on") for kind, other in (
        ("Elu", "Relu"), ("Softplus", "Relu"))},
    "InstanceNormalization": ("the machine has no means of each image", "use BatchNormalization and train on"),
    "GroupNormalization": ("the machine has no means of each image", "use BatchNormalization and train on"),
}


def advice(kind: str) -> tuple[str, str]:
    """Why an operator cannot be imported, and what to do."""
    return REFUSED.get(kind, ("there is no such operator on the machine, or it is not imported",
                              "leave it out, use other operators, or compute it on the host"))
