"""Files at paths and URLs, and what they hold.

fsspec, which reads `https://`, `s3://` and others, is imported only for a URL.
"""

import re
import shlex
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from concord.lib.extras import needing

if TYPE_CHECKING:
    from concord.lib.tensor_file import TensorFileKind


def is_url(location: str) -> bool:
    """Whether a location is a URL, not a path on this computer."""
    return "://" in location


def file_name(location: str) -> str:
    """The last part of a path or URL, as a legal file name."""
    if not is_url(location):
        return Path(location).name
    parts = urlsplit(location)
    server = parts.scheme in ("http", "https")  # its name is no file's; in s3://bucket/model it is part of the path
    return PurePosixPath(parts.path if server else location.partition("?")[0]).name.lstrip(".") or "file"


def legal(name: str) -> str:
    """A name as the stem of a file: whatever is no letter, digit, point, hyphen or underscore becomes an underscore."""
    return re.sub(r"[^\w.-]", "_", name, flags=re.ASCII).lstrip(".") or "network"


@contextmanager
def fetched(location: str) -> Iterator[Path]:
    """A context that gives a path to read: the path itself, or a copy of a URL that is removed at the end.

    Raises:
        ValueError: the URL cannot be read.
    """
    if not is_url(location):
        yield Path(location)
        return
    with tempfile.TemporaryDirectory(prefix="nnp-") as folder:
        path = Path(folder, file_name(location))
        with _sentences(location):
            files, where = _file_system(location)
            files.get_file(where, str(path))
        try:
            yield path
        except ValueError as error:
            raise ValueError(str(error).replace(str(path), location)) from error


@contextmanager
def written(location: str) -> Iterator[Path]:
    """A context that gives a path to write: the path itself, or a file that is sent to the URL, as a whole, at the end.

    Raises:
        ValueError: the location cannot be written; if this is known beforehand, it is raised before the context begins.
    """
    if not is_url(location):
        if Path(location).is_dir():
            raise ValueError(f"{location}: it is a folder; name the file, too")
        yield Path(location)
        return
    with _sentences(location):
        if location.endswith("/"):
            raise ValueError("name the file, too")
        files, where = _file_system(location)
        if location.startswith(("http://", "https://")):
            raise NotImplementedError
    folder = Path(tempfile.mkdtemp(prefix="nnp-"))
    path = folder / file_name(location)
    try:
        yield path
    except BaseException:
        shutil.rmtree(folder)
        raise
    # The file gets its name when the transaction ends, not earlier.
    with (_sentences(location, f"; {path} holds what was to be there"), path.open("rb") as source, files.transaction,
          files.open(where, "wb") as target):
        shutil.copyfileobj(source, target)
    shutil.rmtree(folder)


def read_model(location: str, preset: str = ""):
    """Load the model at a path or URL, as `net.model_file.load_model` does, or make that of a training checkpoint.

    Args:
        location: Path or URL.
        preset:   Machine whose formats the model of a checkpoint gets; empty for those that take its mantissas.

    Raises:
        ValueError: it cannot be read, or is a network in float32, which is not a model yet.
    """
    from concord.net.model_file import load_model

    with fetched(location) as path:
        if path.is_file() and kind_of(path) is FileKind.NETWORK:
            raise ValueError(f"{location}: not a quantised model; `nnp quantize {shlex.quote(location)} --preset "
                             "MACHINE --data LOCATION` makes one of a network in float32")
        if kind_of(path) is FileKind.CHECKPOINT:
            return needing("train", "concord.train.runs.lazy_checkpoint").checkpoint_model(path, preset)
        return load_model(path)


def _file_system(location: str):
    """The file system of a URL, and the path of the file in it."""
    from fsspec.core import url_to_fs

    return url_to_fs(location)


@contextmanager
def _sentences(location: str, more: str = ""):
    """A context that turns errors of file systems, which are of any class, into sentences about a location."""
    try:
        yield
    except FileNotFoundError as error:
        raise ValueError(f"{location}: there is no such file or folder{more}") from error
    except ImportError as error:
        raise ValueError(f"{location}: this kind of URL needs one more package: {error}{more}") from error
    except NotImplementedError as error:
        raise ValueError(f"{location}: URLs of this kind cannot be written to; use s3:// or file://, or a path{more}"
                         ) from error
    except Exception as error:
        raise ValueError(f"{location}: {error or type(error).__name__}{more}") from error


class FileKind(StrEnum):
    """What a file holds."""

    NETWORK = "network"  #: a network in float32: an ONNX file, or what `nnp import` wrote
    MODEL = "model"  #: a quantised model
    FIRMWARE = "firmware"
    CASCADE = "cascade"  #: firmware of several machines
    CHECKPOINT = "checkpoint"  #: a checkpoint of training by lazy update


def kind_of(path: Path) -> FileKind:
    """What a file holds; a file that is none of ours is a network of another tool, or a model if its name says so."""
    from concord.lib.tensor_file import holds

    for kind, form in _forms():
        if holds(form, path):
            return kind
    return FileKind.MODEL if path.suffix.lower() in ("", ".safetensors") or path.is_dir() else FileKind.NETWORK


def _forms() -> Iterator[tuple[FileKind, "TensorFileKind"]]:
    """Each kind of file with its form; what writes it is imported only where the file is none of those before."""
    from concord.net import model_file

    yield FileKind.MODEL, model_file.KIND
    from concord.firmware import firmware_file

    yield FileKind.FIRMWARE, firmware_file.KIND
    yield FileKind.CASCADE, firmware_file.SEVERAL
    from concord.net import graph_file

    yield FileKind.NETWORK, graph_file.KIND
    from concord.train.bfp.options import CHECKPOINT

    yield FileKind.CHECKPOINT, CHECKPOINT
