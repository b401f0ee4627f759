"""Networks by name: those of `networks`, and a user's own by module and function."""

from pathlib import Path

import torch
from concord.lib.names import callable_of, called
from concord.train.lib.networks import NETWORKS
from torch import nn


def build(name: str, seed: int = 0) -> nn.Module:
    """Builds the untrained FP32 network of a name.

    Args:
        name: A name in `networks.NETWORKS`, or module:callable, where the callable takes no arguments and returns an
            nn.Module. The current folder is searched first.
        seed: Seed of the random weights.

    Raises:
        ValueError: there is no such network, or the callable fails.
    """
    made = NETWORKS.get(name) or _own(name)
    torch.manual_seed(seed)
    net = called(f"network {name!r}", made)
    if not isinstance(net, nn.Module):
        raise ValueError(f"network {name!r}: it returns {type(net).__name__}, but a torch.nn.Module is needed")
    return net


def _own(name: str):
    """The callable that a name of the form module:callable stands for.

    Raises:
        ValueError: there is no such module or callable.
    """
    module, _, member = name.partition(":")
    if not (module and member):
        raise ValueError(f"there is no network {name!r}: choose one of {', '.join(NETWORKS)}, or name your own as "
                         "module:callable, such as my_nets:build")
    return callable_of(f"network {name!r}", name, Path.cwd())
