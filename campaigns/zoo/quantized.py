"""ONNX files of networks that are quantised already: QDQ by onnxruntime, QONNX by hand and by Brevitas."""

from functools import partial
from pathlib import Path

import numpy as np
import onnx
from concord.campaigns.makers.onnx_graphs import network


def by_onnxruntime(path: Path, kind: str, quant_format: str = "QDQ", **options):
    """Static quantisation by onnxruntime; "dynamic" gives each input a scale of its own."""
    from onnxruntime import quantization
    from onnxruntime.quantization import shape_inference

    class Reader(quantization.CalibrationDataReader):
        def __init__(self, shape):
            random = np.random.default_rng(0)
            self.batches = iter([{"x": random.normal(size=shape).astype(np.float32)} for _ in range(4)])

        def get_next(self):
            return next(self.batches, None)

    first, ready = path.with_suffix(".float.onnx"), path.with_suffix(".ready.onnx")
    onnx.save(network(kind).model(21), first)  # 16 bits are of ONNX since opset 21
    shape_inference.quant_pre_process(str(first), str(ready))
    if quant_format == "dynamic":
        quantization.quantize_dynamic(str(ready), str(path))
        return
    shape = (4, 12) if kind == "dense" else (4, 3, 8, 8)
    quantization.quantize_static(str(ready), str(path), Reader(shape),
                                 quant_format=getattr(quantization.QuantFormat, quant_format), **options)


def types(activations: str, weights: str) -> dict:
    """Options for the types of integers."""
    from onnxruntime.quantization import QuantType

    return {"activation_type": getattr(QuantType, activations), "weight_type": getattr(QuantType, weights)}


def with_types(path: Path, kind: str, activations: str, weights: str, **options):
    by_onnxruntime(path, kind, **types(activations, weights), **options)


def by_hand(path: Path, *, mode: str = "ROUND", bipolar: bool = False, signs: bool = False, after: int = 6):
    """Quant around the inputs and the weights of dense layers, in integers of 4 bits; `after` bits after each layer."""
    from concord.campaigns.makers.onnx_graphs import OnnxGraph
    from concord.compiler.qonnx.nodes import DOMAIN, quant_function

    graph = OnnxGraph(("batch", 12))

    def quant(first: str, scale, signed: bool, bits: int = 4) -> str:
        return graph.add("Quant", graph.constant(np.float32(scale)), graph.constant(np.float32(0)), graph.constant(
            np.float32(bits)), first=first, domain=DOMAIN, signed=int(signed), narrow=0, rounding_mode=mode)

    at = quant("x", 0.25, True)
    for size, inputs in ((10, 12), (3, 10)):
        scale = np.linspace(0.05, 0.2, size)[:, None]
        if bipolar:
            weight = graph.add("BipolarQuant", graph.constant(np.float32(0.3)), first=graph.weight(size, inputs),
                               domain=DOMAIN)
        else:
            weight = quant(graph.weight(size, inputs), scale, True)
        weight = graph.add("Transpose", first=weight, perm=[1, 0])
        graph.add("MatMul", weight, first=at)
        if signs:
            graph.add("BipolarQuant", graph.constant(np.float32(1)), domain=DOMAIN)
        else:
            graph.add("Relu")
        at = quant(graph.at, 0.125, False, after)
    model = graph.model()
    # Shapes after operators of QONNX are not inferred.
    model.graph.output[0].CopyFrom(onnx.helper.make_tensor_value_info(graph.at, onnx.TensorProto.FLOAT, ("batch", 3)))
    if not bipolar and not signs:
        model.functions.append(quant_function(17))  # onnxruntime knows Quant only by this description
    onnx.save(model, path)


def by_brevitas(path: Path, kind: str = "dense", clips: bool = False):
    """A small network of Brevitas, as QONNX, or as QCDQ: QuantizeLinear, Clip and DequantizeLinear."""
    import torch
    from brevitas import nn as quantized
    from brevitas.export import export_onnx_qcdq, export_qonnx

    torch.manual_seed(0)
    if kind == "dense":
        shape, layers = (12,), (
            quantized.QuantLinear(12, 8, bias=True, weight_bit_width=4), quantized.QuantReLU(bit_width=4),
            quantized.QuantLinear(8, 3, bias=True, weight_bit_width=4))
    else:
        shape, layers = (2, 8, 8), (
            quantized.QuantConv2d(2, 4, 3, padding=1, bias=True, weight_bit_width=8), quantized.QuantReLU(bit_width=7),
            torch.nn.MaxPool2d(2), quantized.QuantConv2d(4, 4, 3, bias=True, weight_bit_width=8),
            quantized.QuantReLU(bit_width=7), torch.nn.MaxPool2d(2), torch.nn.Flatten(),
            quantized.QuantLinear(4, 3, bias=True, weight_bit_width=8))
    model = torch.nn.Sequential(quantized.QuantIdentity(bit_width=8), *layers)
    model(torch.randn(64, *shape))
    export = export_onnx_qcdq if clips else export_qonnx
    export(model.eval(), args=torch.randn(2 if kind == "dense" else 1, *shape), export_path=str(path))


#: What writes each file, and the refusal that it must get.
ENTRIES = {
    "qdq_dense": (partial(by_onnxruntime, kind="dense"), ""),
    "qdq_dense_channels": (partial(by_onnxruntime, kind="dense", per_channel=True), ""),
    "qdq_image": (partial(by_onnxruntime, kind="image"), ""),
    "qdq_image_channels": (partial(with_types, kind="image", activations="QInt8", weights="QInt8", per_channel=True),
                           ""),
    "qdq_image_16": (partial(with_types, kind="image", activations="QUInt16", weights="QInt8"), ""),
    "qoperator": (partial(by_onnxruntime, kind="image", quant_format="QOperator"), "computes with integers itself"),
    "dynamic": (partial(by_onnxruntime, kind="dense", quant_format="dynamic"), "depends on each input"),
    "qonnx_dense": (by_hand, ""),
    "qonnx_bipolar": (partial(by_hand, bipolar=True), ""),
    "qonnx_floor": (partial(by_hand, mode="FLOOR"), "it rounds by FLOOR"),
    "qonnx_signs": (partial(by_hand, signs=True), "it gives the sign"),
    "brevitas": (by_brevitas, ""),
    "brevitas_clips": (partial(by_brevitas, clips=True), ""),
    "brevitas_image": (partial(by_brevitas, kind="image"), ""),
    "brevitas_image_clips": (partial(by_brevitas, kind="image", clips=True), ""),
}
