"""Reads ONNX files and checks them before anything is computed.

Weights may lie in other files, in the folder of the file or below it. Files of other tools are refused, and the
sentence says how each becomes an ONNX file.
"""

from collections import Counter
from pathlib import Path

import onnx
from concord.frontends.onnx.lib.step import QONNX, STANDARD
from google.protobuf.message import DecodeError
from onnx import checker, defs, inliner, shape_inference, version_converter
from onnx.external_data_helper import ExternalDataInfo, load_external_data_for_tensor, uses_external_data

LARGEST = 1 << 30  #: Bytes of a file with its external data.
OLDEST = 7  #: Operator sets before this one are converted, or refused.
CONVERTED = 13  #: Operator set that older ones are converted to.
_TF = "python -m tf2onnx.convert"
_TORCH = "write an ONNX file in PyTorch: torch.onnx.export(network.eval(), (example,), 'network.onnx', dynamo=True)"
#: What to do with a file that is no ONNX file.
ADVICE = {
    ".pt2": "a program of torch.export, which PyTorch reads with pickle, so it is not opened here; write an ONNX file "
            "in PyTorch: torch.onnx.export(torch.export.load('{name}'), (), 'network.onnx', dynamo=True)",
    **dict.fromkeys((".pt", ".pth", ".ckpt", ".bin"),
                    f"a file of PyTorch, which may hold pickled code, so it is not opened here; {_TORCH}"),
    **dict.fromkeys((".h5", ".hdf5", ".keras"),
                    f"a file of Keras; convert it: {_TF} --keras {{name}} --output network.onnx"),
    ".tflite": f"a file of TensorFlow Lite; convert it: {_TF} --tflite {{name}} --output network.onnx",
    ".pb": f"a graph of TensorFlow; convert its folder: {_TF} --saved-model FOLDER --output network.onnx",
    **dict.fromkeys((".pkl", ".pickle", ".joblib"),
                    "a pickled file, which is not opened here; write an ONNX file: skl2onnx.to_onnx(model, example)"),
    **dict.fromkeys((".npz", ".npy", ".csv", ".tsv", ".toml"),
                    "data or a description, not a network; name it with --data, after the ONNX file of the network"),
    ".data": "weights of an ONNX file; name that file itself, whose name lacks .data",
}


def read_onnx(path: Path) -> onnx.ModelProto:
    """The model of an ONNX file, with its external data, sorted, in an operator set that the importer knows.

    Raises:
        ValueError: the file is missing, too large, truncated, no ONNX file, cyclic, of an unknown operator set, or its
            external data are missing or lie outside its folder.
    """
    check_kind(path)
    if (size := path.stat().st_size) > LARGEST:
        raise ValueError(f"{path}: {size:,} bytes; networks of more than {LARGEST:,} bytes are not imported")
    try:
        model = onnx.load_model(path, format="protobuf", load_external_data=False)
    except (DecodeError, ValueError) as error:
        raise ValueError(f"{path}: not a whole ONNX file ({error}); copy it again") from error
    if not model.graph.node or not model.opset_import:
        raise ValueError(f"{path}: not an ONNX file, or one without nodes; export the network again")
    _check_names(path, model.graph)
    _check_opset(path, model)
    load_external(path, model, LARGEST)
    try:
        if model.functions:
            model = inliner.inline_selected_functions(
                model, [(function.domain, function.name) for function in model.functions if function.domain in QONNX],
                exclude=True)
        _sort(model.graph)
        _complete(model)
        checker.check_model(model)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    except (checker.ValidationError, RuntimeError) as error:
        raise ValueError(f"{path}: not a valid ONNX file ({_first_line(error)}); export it again") from error
    return _converted(path, model)


def opset(model: onnx.ModelProto, domain: str) -> int:
    """Version of the operator set of a domain; 1 if the model does not import it."""
    same = STANDARD if domain in STANDARD else (domain,)
    return next((entry.version for entry in model.opset_import if entry.domain in same), 1)


def _check_names(path: Path, graph: onnx.GraphProto):
    """Refuse names that are not text, which protobuf gives as bytes."""
    names = [name for node in graph.node for name in (node.name, node.op_type, node.domain, *node.input, *node.output)]
    names += [entry.name for entry in (*graph.initializer, *graph.input, *graph.output)]
    if bad := [name for name in names if not isinstance(name, str)]:
        raise ValueError(f"{path}: it holds the name {bad[0]!r}, which is not text; copy it again")


def _check_opset(path: Path, model: onnx.ModelProto):
    version, newest = opset(model, ""), defs.onnx_opset_version()
    if version > newest:
        raise ValueError(f"{path}: operator set {version}, but the installed onnx {onnx.__version__} knows those up to "
                         f"{newest}; export with opset_version={newest}")
    if version < 1:
        raise ValueError(f"{path}: operator set {version}; there is none before 1: export with opset_version=17")


def _converted(path: Path, model: onnx.ModelProto) -> onnx.ModelProto:
    """The model in a later operator set, if its own is an early one."""
    version = opset(model, "")
    if version >= CONVERTED:
        return model
    try:
        return version_converter.convert_version(model, CONVERTED)
    except Exception as error:  # the converter has exceptions of its own
        if version >= OLDEST:
            return model
        raise ValueError(f"{path}: operator set {version} is older than {OLDEST}, and onnx cannot convert it "
                         f"({_first_line(error)}); export with opset_version=17") from error


def _complete(model: onnx.ModelProto):
    """Give outputs without a shape the one that follows from the nodes, and drop other results without one."""
    def bare(one: onnx.ValueInfoProto) -> bool:
        return one.type.HasField("tensor_type") and not one.type.tensor_type.HasField("shape")

    if any(bare(one) for one in (*model.graph.output, *model.graph.value_info)):
        for one in [each for each in model.graph.value_info if bare(each)]:
            model.graph.value_info.remove(one)
        known = shape_inference.infer_shapes(model).graph.output
        for one, inferred in zip(model.graph.output, known, strict=True):
            if bare(one):
                one.CopyFrom(inferred)


def _sort(graph: onnx.GraphProto):
    """Put nodes after those whose results they take.

    Raises:
        ValueError: they wait for each other in a circle, or two give a result of one name.
    """
    written = Counter(name for node in graph.node for name in node.output if name)
    written.update(entry.name for entry in graph.initializer)
    if twice := [name for name, count in written.items() if count > 1]:
        raise ValueError(f"two nodes give the tensor {twice[0]!r}; export the network again")
    made = {name for node in graph.node for name in node.output}
    known = {entry.name for entry in graph.input} | {entry.name for entry in graph.initializer}
    left, ordered = list(graph.node), []
    while left:
        ready = [node for node in left if not ((set(node.input) & made) - known)]
        if not ready:
            names = ", ".join(repr(node.name or node.output[0]) for node in left[:3])
            raise ValueError(f"{len(left)} nodes, such as {names}, take each other's results in a circle; "
                             "a network must not be cyclic")
        for node in ready:
            known |= set(node.output)
        waiting = {id(node) for node in ready}
        left = [node for node in left if id(node) not in waiting]
        ordered += ready
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in ordered]
    del graph.node[:]
    graph.node.extend(copies)


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200].rstrip(".")


def load_external(path: Path, model: onnx.ModelProto, largest: int):
    """Bring external weights into a model.

    Args:
        path:    File of the model.
        model:   The model, whose tensors are filled.
        largest: Largest number of bytes of all weights together.

    Raises:
        ValueError: a file is missing, too short, too large, or lies outside the folder of the model.
    """
    folder, total = path.parent.resolve(), 0
    for tensor in _tensors(model):
        if not uses_external_data(tensor):
            continue
        total += _check(path, folder, tensor)
        if total > largest:
            raise ValueError(f"{path}: its external data have more than {largest:,} bytes; networks of that size are "
                             "not imported")
        try:
            load_external_data_for_tensor(tensor, str(folder))
        except Exception as error:  # onnx raises what its own checks raise
            raise ValueError(f"{path}: the external data of {tensor.name!r} cannot be read ({error})") from error
        tensor.data_location = onnx.TensorProto.DEFAULT
        del tensor.external_data[:]


def _check(path: Path, folder: Path, tensor: onnx.TensorProto) -> int:
    """Refuse external data that cannot be read, and return their bytes."""
    where = f"{path}: the weights {tensor.name!r} lie in"
    try:
        info = ExternalDataInfo(tensor)
        offset, length = int(info.offset or 0), int(info.length or 0)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{where} other data that are not described whole ({error}); export the network again"
                         ) from error
    file = (folder / info.location).resolve()
    if not info.location or not file.is_relative_to(folder):
        raise ValueError(f"{where} {info.location!r}, outside the folder of the model; put the file beside the model")
    if not file.is_file():
        raise ValueError(f"{where} {info.location!r}, which is missing; copy that file, too")
    size = file.stat().st_size
    if offset < 0 or length < 0 or offset + length > size:
        raise ValueError(f"{where} {info.location!r} at bytes {offset}..{offset + length}, but it has only {size}; "
                         "copy that file again")
    return length or size - offset


def _tensors(model: onnx.ModelProto) -> list[onnx.TensorProto]:
    """Every tensor of a model: weights, and constants in nodes."""
    found = list(model.graph.initializer)
    for node in [*model.graph.node, *(node for function in model.functions for node in function.node)]:
        for attribute in node.attribute:
            found += [attribute.t] if attribute.type == onnx.AttributeProto.TENSOR else list(attribute.tensors)
    return found


def check_kind(path: Path):
    """Refuse a file of another tool, and say how it becomes an ONNX file.

    Raises:
        ValueError: it is one, or a folder.
    """
    if path.is_dir():
        if (path / "saved_model.pb").is_file():
            raise ValueError(f"{path}: a model of TensorFlow; convert it: {_TF} --saved-model {path} --output "
                             "network.onnx")
        raise ValueError(f"{path}: it is a folder; name the ONNX file in it")
    if not path.is_file():
        raise ValueError(f"{path}: there is no such file")
    if path.suffix.lower() in ADVICE:
        raise ValueError(f"{path}: {ADVICE[path.suffix.lower()].format(name=path.name)}")
