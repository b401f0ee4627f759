"""The two files of a twin: source, and tensors in safetensors."""

import re
from collections.abc import Mapping
from pathlib import Path

from concord.lib import files
from concord.twin.lib.script import Script
from concord.twin.source.frameworks import FORMS, Framework
from concord.twin.source.trained import Rounding
from concord.twin.source.writer import source, tensors
from safetensors.numpy import save

_LONGEST = 100  #: Most characters of the name of a module; file systems allow about 255.


def module_name(name: str) -> str:
    """A name as the beginning of that of a module of Python; what follows it is `_numpy` and the like."""
    name = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_")[:_LONGEST]
    return name if name[:1].isalpha() else f"twin_{name}"


def write_twin(script: Script, framework: Framework, folder: Path, stem: str,
               trained: Mapping[str, Rounding] | None = None) -> Path:
    """Write `stem`.py and `stem`.safetensors, or `stem`.onnx, and return the path of the source or of the graph.

    Args:
        script:    What the twin computes.
        framework: What it runs in.
        folder:    Where the files are to be.
        stem:      Their name.
        trained:   How each tensor that can be trained is rounded; None for a twin that is not trained.

    Raises:
        ValueError: two names are the same in a source, or the framework cannot say something that the script says.
    """
    if framework not in FORMS:
        from concord.twin.source.onnx_graph import onnx_graph

        files.write(folder / f"{stem}.onnx", onnx_graph(script).SerializeToString())
        return folder / f"{stem}.onnx"
    text, stored = source(script, framework, stem, trained), save(tensors(script), {"twin": script.name})
    files.write_all(folder, {f"{stem}.py": text, f"{stem}.safetensors": stored})
    return folder / f"{stem}.py"
