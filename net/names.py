"""Names of nodes as those of layers."""

import re
from collections.abc import Container, Iterable


def layer_names(names: Iterable[str], taken: Container[str] = ()) -> dict[str, str]:
    """A name of word characters alone for each name of a node: `conv1_Conv` for `/conv1/Conv`.

    TensorFlow Lite joins the names of all operations that it fuses by semicolons; the first one is kept.

    Args:
        names: Names of the nodes.
        taken: Names that no layer may have.
    """
    found = {}
    for name in names:
        plain = base = re.sub(r"\W+", "_", name.split(";")[0]).strip("_") or "layer"
        count = 1
        while plain in taken or plain in found.values():
            count += 1
            plain = f"{base}_{count}"
        found[name] = plain
    return found
