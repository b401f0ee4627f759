"""Operations that stay on one device, for tests."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class OneDevice(TorchDispatchMode):
    """Refuses operations that read or make a tensor on another device.

    PyTorch's own device `meta` computes shapes alone, and some operations take a tensor of the CPU beside one of it
    (products, tables that are indexed) where a GPU refuses. Numbers without axes may lie anywhere: a GPU takes them.

    Args:
        device: Type of the device.
    """

    def __init__(self, device: str):
        super().__init__()
        self.device, self.operations = device, set()

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        results = operation(*args, **(kwargs or {}))
        self.operations.add(operation.overloadpacket.__name__)
        for each in tree_leaves((args, kwargs, results)):
            if isinstance(each, torch.Tensor) and each.ndim and each.device.type != self.device:
                raise RuntimeError(f"{operation} has a tensor of shape {tuple(each.shape)} on {each.device} instead of "
                                   f"{self.device}")
        return results
