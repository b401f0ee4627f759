"""Text files that are read, files that appear whole or not at all, and a check of paths before slow work."""

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path


def read_text(path: Path) -> str:
    """The text of a file.

    Raises:
        ValueError: there is no such file, or it is not text.
    """
    if not path.is_file():
        raise ValueError(f"{path}: there is no such file")
    try:
        return path.read_text()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not a text file; a program's text is needed") from error


def check_writable(path: Path, folder: bool = False):
    """Refuse a path that cannot be written, before slow work begins; nothing is created.

    Args:
        path:   Path that will be written.
        folder: Whether `path` will be a folder, not a file.

    Raises:
        ValueError: something that exists at `path` or above it prevents writing.
    """
    if path.exists() and path.is_dir() != folder:
        raise ValueError(f"{path}: it is a {'folder' if path.is_dir() else 'file'}; name another path")
    near = path if path.exists() else next(parent for parent in path.absolute().parents if parent.exists())
    if near != path and not near.is_dir():
        raise ValueError(f"{near}: it is a file, so {path} cannot be written into it; name another path")
    try:
        if not os.access(near, os.W_OK):
            raise PermissionError
        # Permissions alone do not tell: the file system may be read-only, for example.
        tempfile.TemporaryFile(dir=near if near.is_dir() else near.parent).close()
    except OSError as error:
        raise ValueError(f"{path}: {near} cannot be written; name another path") from error


def write_all(folder: Path, contents: Mapping[str, str | bytes]):
    """Write files into `folder`, which is made if need be; none gets its name before all are written.

    Args:
        folder:   Where the files are to be.
        contents: Text or bytes of each file by its name.
    """
    folder.mkdir(parents=True, exist_ok=True)
    # Another process may be writing the same files.
    parts = {name: folder / f"{name}.{os.getpid()}.part" for name in contents}
    try:
        for name, content in contents.items():
            parts[name].write_bytes(content if isinstance(content, bytes) else content.encode())
        for name, part in parts.items():
            part.replace(folder / name)
    except OSError:
        for part in parts.values():
            part.unlink(missing_ok=True)
        raise


def write(path: Path, content: str | bytes):
    """Write one file; it appears whole or not at all."""
    write_all(Path(path).parent, {Path(path).name: content})
