"""Names of imported nodes as those of layers: in modules of PyTorch, model files and options."""

import re
from collections.abc import Iterable

from torch import nn

#: Names that a container of modules has already.
_TAKEN = frozenset(dir(nn.ModuleDict()))


def layer_names(names: Iterable[str]) -> dict[str, str]:
    """A name of word characters alone for each name of a node: `conv1_Conv` for `/conv1/Conv`.

    TensorFlow Lite joins the names of all operations that it fuses by semicolons; the first one is kept.
    """
    found = {}
    for name in names:
        plain = base = re.sub(r"\W+", "_", name.split(";")[0]).strip("_") or "layer"
        count = 1
        while plain in _TAKEN or plain in found.values():
            count += 1
            plain = f"{base}_{count}"
        found[name] = plain
    return found
