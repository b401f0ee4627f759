"""Networks by name: those of `networks`, and a user's own by module and function."""

import importlib
import sys
from pathlib import Path

import torch
from concord.train.lib.networks import NETWORKS
from torch import nn


def build(name: str, seed: int = 0) -> nn.Module:
    """The FP32 network of a name, before training.

    Args:
        name: A name in `networks.NETWORKS`, or module:callable, where the callable takes no arguments and returns an
            nn.Module. The current folder is searched first.
        seed: Seed of the random weights.

    Raises:
        ValueError: there is no such network, or the callable fails.
    """
    made = NETWORKS.get(name) or _found(name)
    torch.manual_seed(seed)
    try:
        net = made()
    except Exception as error:
        raise ValueError(f"network {name!r}: calling it fails with {type(error).__name__} ({error}); it is called "
                         "without arguments") from error
    if not isinstance(net, nn.Module):
        raise ValueError(f"network {name!r}: it returns {type(net).__name__}, but a torch.nn.Module is needed")
    return net


def _found(name: str):
    """The callable that a name of the form module:callable stands for.

    Raises:
        ValueError: there is no such module or callable.
    """
    module, _, member = name.partition(":")
    if not (module and member):
        raise ValueError(f"there is no network {name!r}: choose one of {', '.join(NETWORKS)}, or name your own as "
                         "module:callable, such as my_nets:build")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        made = getattr(importlib.import_module(module), member, None)
    except Exception as error:
        raise ValueError(f"network {name!r}: module {module!r} cannot be imported: {error}; it is looked for in "
                         f"{here} and where Python looks") from error
    if not callable(made):
        raise ValueError(f"network {name!r}: module {module!r} has no function or class {member!r}")
    return made
