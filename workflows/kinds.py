"""What a file holds: a network in float32, a quantised model, or firmware."""

from enum import StrEnum
from pathlib import Path

from concord.firmware import firmware_file
from concord.lib.tensor_file import holds
from concord.net import graph_file as float_file
from concord.net import model_file


class FileKind(StrEnum):
    """What a file holds."""

    NETWORK = "network"  #: a network in float32: an ONNX file, or what `nnp import` wrote
    MODEL = "model"  #: a quantised model
    FIRMWARE = "firmware"
    CASCADE = "cascade"  #: firmware of several machines


_OURS = {FileKind.NETWORK: float_file.KIND, FileKind.MODEL: model_file.KIND, FileKind.FIRMWARE: firmware_file.KIND,
         FileKind.CASCADE: firmware_file.SEVERAL}


def kind_of(path: Path) -> FileKind:
    """What a file holds; a file that is none of ours is a network of another tool, or a model if its name says so."""
    for kind, form in _OURS.items():
        if holds(form, path):
            return kind
    return FileKind.MODEL if path.suffix.lower() in ("", ".safetensors") or path.is_dir() else FileKind.NETWORK
