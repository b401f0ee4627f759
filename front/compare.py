"""Compares an imported network with its file, which onnxruntime runs."""

import numpy as np
import onnx
from concord.front.read import Imported
from concord.model.floating.run import run
from onnx import helper

SAMPLES = 8  #: Random inputs of a comparison.


def difference(imported: Imported, seed: int = 0) -> float:
    """Largest difference of an output on random inputs, relative to the largest output.

    Raises:
        ModuleNotFoundError: onnxruntime is not installed.
        ValueError: onnxruntime does not run the file.
    """
    import onnxruntime

    model = onnx.ModelProto()
    model.CopyFrom(imported.model)
    for node in model.graph.node:
        if node.op_type == "LinearClassifier" and imported.tensor in node.output:
            _leave_softmax(node)
    if imported.tensor not in {output.name for output in model.graph.output}:
        model.graph.output.append(onnx.ValueInfoProto(name=imported.tensor))
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's exceptions have no common class
        raise ValueError(f"onnxruntime cannot run it: {str(error).splitlines()[0]}") from error
    random = np.random.default_rng(seed)
    worst = largest = 0.0
    dtype = helper.tensor_dtype_to_np_dtype(imported.entry.kind)
    for _ in range(max(1, SAMPLES // imported.samples)):
        x = random.normal(size=imported.numbers.shape).astype(dtype)
        theirs = session.run([imported.tensor], {imported.entry.name: x})[0].astype(np.float64)
        ours = run(imported.network, imported.samples_of(x))
        worst = max(worst, float(np.abs(ours.reshape(-1)[imported.places] - theirs).max()))
        largest = max(largest, float(np.abs(theirs).max()))
    return worst / largest if largest else worst


def _leave_softmax(node: onnx.NodeProto):
    """Without the softmax that the import leaves to the host."""
    for attribute in node.attribute:
        if attribute.name == "post_transform" and attribute.s == b"SOFTMAX":
            attribute.s = b"NONE"
