"""Model files: safetensors with a JSON header, without pickle."""

from dataclasses import MISSING, asdict, fields
from enum import StrEnum
from pathlib import Path
from types import UnionType
from typing import get_args

import numpy as np
from concord.datasets.samples import Task
from concord.lib import tensor_file
from concord.lib.input_axes import InputAxes
from concord.lib.names import cleaned
from concord.net.float_network import separated
from concord.net.graph_file import packed, unpacked
from concord.net.layers.layer import Layer, Unknown
from concord.net.layers.registry import KINDS, kind_of
from concord.net.model import Model, Provenance
from concord.spec.numbers.formats import Format

KIND = tensor_file.TensorFileKind(
    key="concord quantised model", version=1, name="model", remedy="copy it again, or train again",
    command="`nnp train`")
#: Fields that hold several arrays by name, and the prefix of their names in a file.
GROUPS = {"real": "real.", "initial": "initial_", "vectors": "vectors."}
#: Beginning of the names of the float network's arrays, which no layer has.
FLOAT = "float network."
#: Names in files of earlier versions, and those that they have here.
_EARLIER = {"qat_accuracy": "quantized_accuracy", "quantised_accuracy": "quantized_accuracy",
            "predictions.qat": "predictions.quantized", "predictions.quantised": "predictions.quantized",
            "quantise_input": "quantize_input"}


def save_model(model: Model, path: Path):
    """Write a model with its float network; the file appears whole or not at all."""
    model = separated(model)
    arrays = {"predictions.fp32": model.fp32_predictions, "predictions.quantized": model.quantized_predictions}
    layers = []
    for layer in model.layers:
        kind = kind_of(layer)
        record, tensors = _pack(layer, set(KINDS[kind].fixed))
        layers.append({"kind": kind, **record})
        arrays |= {f"{layer.name}.{key}": value for key, value in tensors.items()}
    graph = None
    if model.graph is not None:
        graph, tensors = packed(model.graph)
        arrays |= {f"{FLOAT}{key}": value for key, value in tensors.items()}
    header = {
        "name": model.name,
        "data": model.data,
        "preprocessing": model.preprocessing,
        "classes": list(model.classes),
        "provenance": asdict(model.provenance),
        "layers": layers,
        **({"sources": model.sources} if model.sources else {}),
        **({"task": model.task} if model.task is not Task.CLASSIFICATION else {}),
        **({"description": model.description} if model.description else {}),
        **({"axes": model.axes.record} if model.axes else {}),
        **({"float_network": graph} if graph else {}),
    }
    tensor_file.write(KIND, path, header, {name: _stored(array) for name, array in arrays.items()})


def load_model(path: Path) -> Model:
    """Read a model and check all of it.

    Raises:
        ValueError: the file is missing, truncated, or of another kind; a layer's field is missing, of the wrong type or
            shape, out of the range of its format, or not finite.
    """
    header, arrays = tensor_file.read(KIND, path)
    arrays = {name: array.view(np.uint16) if array.dtype == np.float16 else array for name, array in arrays.items()}
    try:
        return _unpack_model(header, arrays)
    except (ValueError, TypeError, KeyError, AttributeError, IndexError, ArithmeticError) as error:
        reason = f"the header lacks {error}" if isinstance(error, KeyError) else str(error)
        raise ValueError(f"{path}: {reason}") from error


def _renamed(record: dict) -> dict:
    """A record with the names of this version."""
    return {_EARLIER.get(name, name): value for name, value in record.items()}


def _unpack_model(header: dict, arrays: dict[str, np.ndarray]) -> Model:
    arrays = _renamed(arrays)
    layers = tuple(_unpack(record, arrays) for record in header["layers"])
    task, description = Task(header.get("task", Task.CLASSIFICATION)), header.get("description", "")
    if not isinstance(description, str):
        raise ValueError(f"description: {description!r} is of the wrong type; train again")
    graph = header.get("float_network") and unpacked(header["float_network"], {
        name.removeprefix(FLOAT): value for name, value in arrays.items() if name.startswith(FLOAT)})
    model = Model(
        task=task,
        description=description,
        name=cleaned(header["name"]),
        data=cleaned(header["data"]),
        preprocessing=header["preprocessing"],
        classes=tuple(map(cleaned, header["classes"])),
        layers=layers,
        provenance=Provenance(**_renamed(header["provenance"])),
        fp32_predictions=_predictions("fp32", arrays, task),
        quantized_predictions=_predictions("quantized", arrays, task),
        sources={name: tuple(sources) for name, sources in header.get("sources", {}).items()},
        axes=InputAxes.from_record(header.get("axes")),
        graph=graph or None,
    )
    return separated(model)  # files of earlier versions hold the float network in their layers


def _predictions(key: str, arrays: dict[str, np.ndarray], task: Task) -> np.ndarray:
    """What a float network gives for the test set, in the form that `Model` has for the task."""
    found = arrays.get(f"predictions.{key}")
    form = None if found is None else (str(found.dtype), found.ndim)
    classes = form in (("uint8", 1), ("int32", 1), ("uint8", 2), ("int32", 2))
    if not (classes if task is Task.CLASSIFICATION else form == ("float32", 2) or classes and not len(found)):
        needed = "uint8[samples], or [samples, time]," if task is Task.CLASSIFICATION else "float32[samples, outputs]"
        raise ValueError(f"predictions.{key}: {needed} is needed; train again")
    return found


def _pack(layer: Layer, fixed: set[str]) -> tuple[dict, dict[str, np.ndarray]]:
    """JSON values and arrays of a layer, without the fields that its kind determines."""
    record, tensors = {}, {}
    for item in fields(layer):
        value = getattr(layer, item.name)
        if item.name == "float_operator":  # the graph beside the layers has it
            continue
        if item.name in GROUPS:
            tensors |= {f"{GROUPS[item.name]}{key}": array for key, array in value.items()}
        elif isinstance(value, np.ndarray):
            tensors[item.name] = value
        elif isinstance(value, Format):
            record[item.name] = asdict(value)
        elif item.name == "ranges":
            record["ranges"] = {key: [float(bound) for bound in bounds] for key, bounds in value.items()}
        elif value is not None and item.name not in fixed:
            record[item.name] = value
    return record, tensors


def _unpack(record: dict, arrays: dict[str, np.ndarray]) -> Layer:
    record = _renamed(record)
    name, kind = record["name"], KINDS.get(record["kind"])
    if kind is None:
        return Unknown(name=name, kind=record["kind"])
    prefix, values = f"{name}.", dict(kind.fixed)
    tensors = {key.removeprefix(prefix): value for key, value in arrays.items() if key.startswith(prefix)}
    for item in fields(kind.layer):
        if item.name in GROUPS:
            start = GROUPS[item.name]
            values[item.name] = {key.removeprefix(start): v for key, v in tensors.items() if key.startswith(start)}
        elif item.name in tensors:
            values[item.name] = tensors[item.name]
        elif item.name in record:
            values[item.name] = _parse(f"layer {name!r}, {item.name}", item.type, record[item.name])
        elif item.type == np.ndarray | None:
            values[item.name] = None
        elif item.name not in values and item.default is MISSING and item.default_factory is MISSING:
            raise ValueError(f"layer {name!r}, {item.name}: missing from the file; export the model again")
    return kind.layer(**values)


def _parse(where: str, kind: type, value):
    """A JSON value, converted to the type of its field."""
    if kind in (Format, Format | None) and isinstance(value, dict):
        return Format.from_record(value)
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return kind(value)
    if isinstance(value, list) and all(type(item) is int for item in value):
        return tuple(value)
    if isinstance(value, dict):
        return {key: (float(low), float(high)) for key, (low, high) in value.items()}
    if type(value) not in (get_args(kind) if isinstance(kind, UnionType) else (kind,)):
        raise ValueError(f"{where}: {value!r} is of the wrong type; export the model again")
    return value


def _stored(array: np.ndarray) -> np.ndarray:
    """An array as it is stored; binary16 patterns are stored as F16."""
    return array.view(np.float16) if array.dtype == np.uint16 else array

