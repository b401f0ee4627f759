"""Imports of other tools' networks, which need packages that the rest of the program does not."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from concord.front.read import Imported
    from concord.model.floating.network import FloatNetwork

INSTALL = "pip install onnx==1.22.0 onnxruntime==1.31.1"


def needing_onnx(name: str):
    """A module of `concord.front`.

    Raises:
        ValueError: onnx is not installed.
    """
    from importlib import import_module

    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("onnx", "google"):
            raise
        raise ValueError(f"ONNX files need one more package: {INSTALL}") from error


def sizes(text: str | None) -> tuple[int, ...] | None:
    """Sizes that an option gives as "3,32,32".

    Raises:
        ValueError: these are no sizes.
    """
    if text is None:
        return None
    parts = text.replace("x", ",").split(",")
    if not all(part.strip().isdecimal() and int(part) for part in parts):
        raise ValueError(f"--shape {text}: sizes of 1 or more are needed, with commas between them, such as 3,32,32")
    return tuple(int(part) for part in parts)


def read_float(path: Path, shape: tuple[int, ...] | None = None, output: str | None = None):
    """The network in float32 of an ONNX file, or of a file that `nnp import` wrote.

    Raises:
        ValueError: the file cannot be read, or holds nodes that cannot be computed.
    """
    if Path(path).suffix == ".safetensors":
        from concord.model.floating.file import load

        return load(path)
    return needing_onnx("concord.front.read").read_network(path, shape, output)


def opened(file: Path) -> tuple["FloatNetwork", "Imported | None"]:
    """The network of a file, and the file itself if it is an ONNX file.

    Raises:
        ValueError: the file cannot be read, or holds nodes that cannot be computed.
    """
    if Path(file).suffix == ".safetensors":
        return read_float(file), None
    imported = needing_onnx("concord.front.read").read(file)
    return imported.network, imported
