"""Compares an imported network with its file, which onnxruntime runs."""

from collections.abc import Callable

import numpy as np
import onnx
from concord.frontends.onnx.lib.step import QONNX
from concord.frontends.onnx.read import Imported
from concord.net.graph import INPUT
from concord.net.ops.grid import Quantize
from concord.net.ops.scale import Affine
from onnx import helper

SAMPLES = 8  #: Random inputs of a comparison.
HALVES = {onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16}  #: Floats of 16 bits.


def difference(imported: Imported, seed: int = 0) -> float:
    """Largest difference of an output on random inputs, relative to the largest output.

    Where results are rounded to integers, float32 may round one to the neighbouring integer. The difference is then the
    median over samples, because a wrong import differs in most of them.

    Raises:
        ModuleNotFoundError: onnxruntime is not installed.
        ValueError: onnxruntime does not run the file, or gives no numbers.
    """
    execute = _runner(imported)
    random = np.random.default_rng(seed)
    apart, largest = [], 0.0
    dtype = helper.tensor_dtype_to_np_dtype(imported.entry.kind)
    for _ in range(max(1, SAMPLES // imported.samples)):
        x = _inputs(imported, random).astype(dtype)
        theirs = execute(imported.tensor_of(x)).astype(np.float64)
        ours = imported.network.run(x).reshape(-1)[imported.indices]
        if not np.isfinite(theirs).all():
            raise ValueError("outputs for random inputs are infinite, or not numbers")
        if theirs.shape != ours.shape or not np.isfinite(ours).all():
            return np.inf
        apart += [float(np.abs(a - b).max()) for a, b in zip(ours, theirs, strict=True)]
        largest = max(largest, float(np.abs(theirs).max()))
    rounds = imported.network.has(Quantize)
    found = float(np.median(apart)) if rounds else max(apart)
    return found / largest if largest else found


def outputs(imported: Imported, samples: np.ndarray, given: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What onnxruntime gives for samples, and given outputs of the network in its order: float64[samples, ...] each.

    Args:
        samples: Real numbers [samples, *shape of the network]; those that fill no run of the graph are left out.
        given:   The outputs to be compared, real numbers [samples, outputs].

    Raises:
        ModuleNotFoundError: onnxruntime is not installed.
        ValueError: onnxruntime does not run the file.
    """
    execute, each = _runner(imported), imported.samples
    dtype = helper.tensor_dtype_to_np_dtype(imported.entry.kind)
    starts = range(0, len(samples) // each * each, each)
    theirs = [execute(imported.tensor_of(samples[at:at + each].astype(dtype))) for at in starts]
    ours = [given[at:at + each].reshape(-1)[imported.indices] for at in starts]
    return tuple(np.stack(parts).astype(np.float64) for parts in (theirs, ours))


def has_halves(imported: Imported) -> bool:
    """Whether the file computes with floats of 16 bits."""
    graph = imported.model.graph
    return imported.entry.kind in HALVES or any(tensor.data_type in HALVES for tensor in graph.initializer) or any(
        attribute.i in HALVES for node in graph.node if node.op_type == "Cast" for attribute in node.attribute)


def tool(imported: Imported) -> str:
    """Name of the tool that runs a file."""
    return "qonnx" if _needs_qonnx(imported.model) else "onnxruntime"


def whole_outputs(imported: Imported, tensor: np.ndarray) -> list[np.ndarray]:
    """All outputs of a file in onnxruntime, those that the host computes at its end too, for a tensor as it takes it.

    Raises:
        ModuleNotFoundError: onnxruntime is not installed.
    """
    import onnxruntime

    model, name = imported.model, imported.entry.name
    if imported.embedding and tensor.dtype.kind in "iu":
        model, name = imported.embedding.restored(model), imported.embedding.entry.name
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {name: tensor})


def run_file(imported: Imported, x: np.ndarray, lengths: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """What the tool gives for samples, float64[samples, outputs] in the order of the network and in that of the file.

    Args:
        x:       Real numbers [samples, *shape in the file], or [samples, time, ...] where the network takes sequences;
            or integers without the last axis, the token numbers of an embedding in the file.
        lengths: int[samples], time steps of each sequence; all time steps by default.

    Raises:
        ModuleNotFoundError: the tool is not installed.
        ValueError: it does not run the file.
    """
    whole = imported.embedding is not None and x.dtype.kind in "iu"
    execute = _runner(imported, whole=whole)
    dtype = imported.embedding.dtype if whole else helper.tensor_dtype_to_np_dtype(imported.entry.kind)
    return run_graph(imported, lambda tensor: execute(tensor.astype(dtype)), x, lengths)


def run_graph(imported: Imported, execute: Callable[[np.ndarray], np.ndarray], x: np.ndarray,
              lengths: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """The same by any function of a tensor as the graph takes it, which gives one as `Imported.tensor` is."""
    each, time, indices = imported.samples, imported.axes.time, imported.indices
    steps = np.full(len(x), x.shape[1] if time is not None else 0) if lengths is None else np.asarray(lengths)
    found = np.empty((len(x), indices.size // each))
    in_file = np.empty_like(found)
    for length in np.unique(steps):
        same = np.flatnonzero(steps == length)
        for at in range(0, len(same), each):
            chosen = same[at:at + each]
            filled = np.resize(chosen, each)  # the last run repeats some samples where the graph takes more
            made = np.asarray(execute(_tensor(imported, x[filled] if time is None else x[filled, :length])), np.float64)
            if made.shape != indices.shape:
                raise ValueError(f"its output has the shape {list(made.shape)}, not {list(indices.shape)}")
            flat = np.empty(made.size)
            flat[indices.reshape(-1)] = made.reshape(-1)
            found[chosen] = flat.reshape(each, -1)[:len(chosen)]
            rows = made.reshape(each, -1) if made.shape[0] == each else flat.reshape(each, -1)
            in_file[chosen] = rows[:len(chosen)]
    return found, in_file


def _tensor(imported: Imported, x: np.ndarray) -> np.ndarray:
    """Samples [samples, ...] or [samples, time, ...] as the graph takes them."""
    axes = imported.axes
    if axes.samples is None:
        return x[0] if axes.time is None else np.moveaxis(x[0], 0, axes.time)
    return x if axes.time is None else np.moveaxis(x, (0, 1), (axes.samples, axes.time))


def _needs_qonnx(model: onnx.ModelProto) -> bool:
    return not model.functions and any(node.domain in QONNX for node in model.graph.node)


def _runner(imported: Imported, *, whole: bool = False) -> Callable[[np.ndarray], np.ndarray]:
    """A function that runs the file's graph, with onnxruntime, or with qonnx if its operators need that.

    Args:
        imported: The network and its file.
        whole:    Whether the graph takes the token numbers of its embedding, instead of vectors.
    """
    model, name = onnx.ModelProto(), imported.entry.name
    model.CopyFrom(imported.model)
    if whole:
        model, name = imported.embedding.restored(model), imported.embedding.entry.name
    for node in model.graph.node:
        if node.op_type == "LinearClassifier" and imported.tensor in node.output:
            _leave_softmax(node)
    if imported.tensor not in {output.name for output in model.graph.output}:
        model.graph.output.append(onnx.ValueInfoProto(name=imported.tensor))
    if _needs_qonnx(model):
        return _with_qonnx(imported, model)
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's exceptions have no common class
        raise ValueError(f"onnxruntime cannot run it: {str(error).splitlines()[0]}") from error

    def execute(x: np.ndarray) -> np.ndarray:
        try:
            return session.run([imported.tensor], {name: x})[0]
        except Exception as error:  # onnxruntime's exceptions have no common class
            raise ValueError(f"onnxruntime cannot run it: {str(error).splitlines()[0]}") from error

    return execute


def _with_qonnx(imported: Imported, model: onnx.ModelProto) -> Callable[[np.ndarray], np.ndarray]:
    from qonnx.core.modelwrapper import ModelWrapper
    from qonnx.core.onnx_exec import execute_onnx
    from qonnx.transformation.infer_shapes import InferShapes

    def execute(x: np.ndarray) -> np.ndarray:
        try:
            return execute_onnx(wrapped, {imported.entry.name: x}, return_full_exec_context=True)[imported.tensor]
        except Exception as error:  # exceptions of qonnx and of onnxruntime have no common class
            said = str(error).splitlines() or [type(error).__name__]
            raise ValueError(f"qonnx cannot run it: {said[0]}") from error

    first = next(one for one in model.graph.input if one.name == imported.entry.name)
    for axis, size in zip(first.type.tensor_type.shape.dim, imported.numbers.shape, strict=True):
        axis.dim_value = size
    wrapped = ModelWrapper(model).transform(InferShapes())
    return execute


def _leave_softmax(node: onnx.NodeProto):
    """Without the softmax that the import leaves to the host."""
    for attribute in node.attribute:
        if attribute.name == "post_transform" and attribute.s == b"SOFTMAX":
            attribute.s = b"NONE"


def _inputs(imported: Imported, random: np.random.Generator) -> np.ndarray:
    """Random samples as the network takes them, of mean 0 and variance 1 after a scale and offset of its inputs."""
    network = imported.network
    times = (imported.time,) if network.sequence else ()
    x = random.normal(size=(imported.samples, *times, *network.shape))
    first = network.nodes[0]
    if isinstance(first.op, Affine) and first.sources == (INPUT,) and first.op.scale.all():
        beside = [1] * (len(network.shape) - 1)
        scale, offset = (value.reshape(-1, *beside) for value in (first.op.scale, first.op.offset))
        x = (x - offset) / scale
    return x
