"""Which Concord this is: a digest of its files, by which computers and results are told apart."""

import hashlib
import os
import platform
from functools import cache
from pathlib import Path

#: Folders of the package that decide nothing of a result.
LEFT_OUT = ("tests", "data", "__pycache__")


@cache
def edition() -> str:
    """A digest of all files of the package but tests and data, and the version of Python."""
    digest = hashlib.sha256()
    for folder, folders, files in os.walk(Path(__file__).parents[1], followlinks=True):
        folders[:] = sorted(name for name in folders if name not in LEFT_OUT)
        for name in sorted(files):
            digest.update(name.encode() + Path(folder, name).read_bytes())
    return f"{digest.hexdigest()[:12]}, Python {platform.python_version()}"
