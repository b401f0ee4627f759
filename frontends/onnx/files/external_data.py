"""Weights that an ONNX file keeps in other files, which must lie in its own folder or below it."""

from pathlib import Path

import onnx
from onnx.external_data_helper import ExternalDataInfo, load_external_data_for_tensor, uses_external_data


def load(path: Path, model: onnx.ModelProto, largest: int):
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
    place = (folder / info.location).resolve()
    if not info.location or not place.is_relative_to(folder):
        raise ValueError(f"{where} {info.location!r}, outside the folder of the model; put the file beside the model")
    if not place.is_file():
        raise ValueError(f"{where} {info.location!r}, which is missing; copy that file, too")
    size = place.stat().st_size
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
