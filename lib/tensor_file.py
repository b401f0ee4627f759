"""Files of tensors with a JSON header, as safetensors, without pickle."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from concord.lib import files
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

#: Beginning of the metadata keys of all kinds.
OURS = "concord "
#: What files of the kinds that are known hold, by key.
_HELD: dict[str, str] = {}


@dataclass(frozen=True, kw_only=True, slots=True)
class TensorFileKind:
    """A kind of file.

    Attributes:
        key:     Metadata key that identifies the kind; it begins with `OURS`.
        version: Version of the header.
        name:    Name of the kind in messages to users.
        remedy:  Advice that makes a good file.
        command: Command that makes such a file.
        holds:   What such a file holds, in messages to users; empty for `name`.
    """

    key: str
    version: int
    name: str
    remedy: str
    command: str
    holds: str = ""

    def __post_init__(self):
        _HELD[self.key] = self.holds or self.name


def write(kind: TensorFileKind, path: Path, header: dict, arrays: dict[str, np.ndarray]):
    """Write a file; it appears whole or not at all."""
    text = json.dumps({"version": kind.version, **header})
    content = save({name: np.ascontiguousarray(array) for name, array in arrays.items()}, {kind.key: text})
    files.write(path, content)


def read(kind: TensorFileKind, path: Path) -> tuple[dict, dict[str, np.ndarray]]:
    """The JSON header and every tensor.

    Raises:
        ValueError: the file is missing, truncated, of another kind or of another version.
    """
    if Path(path).is_dir():
        raise ValueError(f"{path}: it is a folder; name the {kind.name} file in it")
    if not Path(path).is_file():
        raise ValueError(f"{path}: there is no such {kind.name} file; {kind.command} makes one")
    if Path(path).suffix == ".onnx":
        raise ValueError(f"{path}: it is a network in ONNX, and a {kind.name} file is needed: `nnp quantize` makes a "
                         f"model of it, and `nnp compile` firmware of the model")
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            names = file.keys() if kind.key in metadata else ()
            arrays = {name: file.get_tensor(name) for name in names}
    except (SafetensorError, OSError, ValueError, TypeError) as error:
        raise ValueError(f"{path}: not a whole safetensors file ({error}); {kind.remedy}") from error
    if kind.key not in metadata:
        held = _held(metadata)
        what = f"it holds {held} and no {kind.name}" if held else f"a safetensors file, but no {kind.name}"
        raise ValueError(f"{path}: {what}; {kind.command} makes one")
    try:
        header = json.loads(metadata[kind.key])
        version = header.pop("version")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path}: its JSON header cannot be read ({error}); {kind.remedy}") from error
    if version != kind.version:
        raise ValueError(f"{path}: {kind.name} file version {version}, but this program reads version {kind.version}; "
                         f"{kind.remedy}")
    return header, arrays


def holds(kind: TensorFileKind, path: Path) -> bool:
    """Whether a file is of a kind, whatever its version; False where there is none, or it cannot be read."""
    try:
        with safe_open(path, framework="numpy") as file:
            return kind.key in (file.metadata() or {})
    except (SafetensorError, OSError, ValueError):
        return False


def read_arrays(path: Path, remedy: str) -> dict[str, np.ndarray]:
    """Every tensor of a safetensors file that is of none of these kinds.

    Args:
        path:   The file.
        remedy: Advice that makes a good file.

    Raises:
        ValueError: the file is missing, truncated, or of one of these kinds.
    """
    if not Path(path).is_file():
        raise ValueError(f"{path}: there is no such file; {remedy}")
    try:
        with safe_open(path, framework="numpy") as file:
            held = _held(file.metadata() or {})
            names = file.keys()
            arrays = {} if held else {name: file.get_tensor(name) for name in names}
    except TypeError as error:  # bfloat16, for example
        raise ValueError(f"{path}: a tensor has a type that numpy lacks ({error}); {remedy}") from error
    except (SafetensorError, OSError, ValueError) as error:
        raise ValueError(f"{path}: not a whole safetensors file ({error}); {remedy}") from error
    if held:
        raise ValueError(f"{path}: it holds {held}; {remedy}")
    return arrays


def _held(metadata: Mapping[str, str]) -> str:
    """What a file of one of these kinds holds, in words; empty for another file."""
    key = next((key for key in metadata if key.startswith(OURS)), "")
    held = _HELD.get(key, key.removeprefix(OURS))
    article = "" if not held or held.startswith("firmware") else "an " if held[0] in "aeiou" else "a "
    return article + held
