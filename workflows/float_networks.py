"""Imports of other tools' networks, which need packages that the rest of the program does not."""

from pathlib import Path
from typing import TYPE_CHECKING

from concord.lib.extras import needing

if TYPE_CHECKING:
    from concord.frontends.onnx.read import Imported
    from concord.net.graph import Graph

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
        from concord.net.graph_file import load

        return load(path)
    return needing("front", "concord.frontends.onnx.read").read_network(path, shape, output)


def opened(
    file: Path, shape: tuple[int, ...] | None = None, output: str | None = None
) -> tuple["Graph", "Imported | None"]:
    """The network of a file, and the file itself if it is an ONNX file; arguments are those of `read_float`.

    Raises:
        ValueError: the file cannot be read, or holds nodes that cannot be computed.
    """
    if Path(file).suffix == ".safetensors":
        return read_float(file), None
    imported = needing("front", "concord.frontends.onnx.read").read(file, shape, output)
    return imported.network, imported
