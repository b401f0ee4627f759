"""Files that appear whole or not at all."""

import os
from collections.abc import Mapping
from pathlib import Path


def write_all(folder: Path, contents: Mapping[str, str | bytes]):
    """Write files into `folder`, which is made if need be; none takes its place before all are written.

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
