"""Turns the names of imported nodes into names of layers: in modules of PyTorch, model files and options."""

from collections.abc import Iterable

from concord.net import names as floating
from torch import nn

#: Names that a container of modules has already.
_TAKEN = frozenset(dir(nn.ModuleDict()))


def layer_names(names: Iterable[str]) -> dict[str, str]:
    """The names of `net.names`, without those of the attributes of a module."""
    return floating.layer_names(names, _TAKEN)
