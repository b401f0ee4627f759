"""Networks by name: those of `networks`, and anybody's by the place of what makes them."""

import importlib
import sys
from pathlib import Path

import torch
from concord.train.lib.networks import NETWORKS
from torch import nn


def build(name: str, seed: int = 0) -> nn.Module:
    """The FP32 network of a name, before training.

    Args:
        name: Of `networks.NETWORKS`, or module:callable, where the callable takes nothing and returns an nn.Module; the
            folder that one works in is searched first.
        seed: Of its random weights.

    Raises:
        ValueError: there is no such network, or what should make it does not.
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
    """What `name` calls, from its module.

    Raises:
        ValueError: there is no such thing.
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
