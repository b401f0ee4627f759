"""Files that appear whole or not at all."""

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


def write_all(folder: Path, contents: Mapping[str, str | bytes]):
    """Write files into `folder`, which is made if need be; none takes its place before all are written."""
    folder.mkdir(parents=True, exist_ok=True)
    parts = {}
    try:
        for name, content in contents.items():
            part = parts[name] = folder / f"{name}.part"
            part.write_bytes(content if isinstance(content, bytes) else content.encode())
    except OSError:
        for part in parts.values():
            part.unlink(missing_ok=True)
        raise
    for name, part in parts.items():
        part.replace(folder / name)
