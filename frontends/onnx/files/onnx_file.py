"""Reads ONNX files and checks them before anything is computed."""

from collections import Counter
from pathlib import Path

import onnx
from concord.frontends.onnx.files import external_data
from concord.frontends.onnx.files.kinds import check_kind
from concord.frontends.onnx.lib.domains import QONNX, STANDARD
from google.protobuf.message import DecodeError
from onnx import checker, defs, inliner, version_converter

LARGEST = 1 << 30  #: Bytes of a file with its external data.
OLDEST = 7  #: Operator sets before this one are converted, or refused.
CONVERTED = 13  #: Operator set that older ones are converted to.


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
    external_data.load(path, model, LARGEST)
    try:
        if model.functions:
            model = inliner.inline_selected_functions(
                model, [(function.domain, function.name) for function in model.functions if function.domain in QONNX],
                exclude=True)
        _sort(model.graph)
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


def _sort(graph: onnx.GraphProto):
    """Put nodes behind those whose results they take.

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
