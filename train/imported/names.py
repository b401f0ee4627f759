"""Names of imported nodes as those of layers: in modules of PyTorch, model files and options."""

from collections.abc import Iterable

from concord.model.floating import names as floating
from torch import nn

#: Names that a container of modules has already.
_TAKEN = frozenset(dir(nn.ModuleDict()))


def layer_names(names: Iterable[str]) -> dict[str, str]:
    """The names of `model.floating.names`, without those of the attributes of a module."""
    return floating.layer_names(names, _TAKEN)
