"""The two files of a twin: source, and tensors in safetensors."""

import re
from pathlib import Path

from concord.golden.lib import atomic_files
from concord.twin.lib.script import Script
from concord.twin.source.frameworks import Framework
from concord.twin.source.writer import source, tensors
from safetensors.numpy import save


def module_name(name: str) -> str:
    """A name as that of a module of Python."""
    name = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_")
    return name if name[:1].isalpha() else f"twin_{name}"


def write_twin(script: Script, framework: Framework, folder: Path, stem: str) -> Path:
    """Write `stem`.py and `stem`.safetensors, and return the path of the source.

    Raises:
        ValueError: two names are the same in a source.
    """
    text, stored = source(script, framework, stem), tensors(script)
    atomic_files.write(folder / f"{stem}.safetensors", save(stored, {"twin": script.name}))
    path = folder / f"{stem}.py"
    atomic_files.write(path, text.encode())
    return path
