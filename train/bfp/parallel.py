"""Data parallel training: several processes share each training tensor, and have the bits of one process.

The exponent of a tensor is measured over all processes. Gradients are exchanged as exact integers in one unit, so that
no order of arrival can change a bit.

Source: S2.i.
"""

import torch
from torch import distributed


class Alone:
    """Training in one process, which shares nothing."""

    size, rank = 1, 0

    @staticmethod
    def largest(value: int) -> int:
        """The largest value over all processes."""
        return value

    @staticmethod
    def total(sums: torch.Tensor) -> torch.Tensor:
        """int64[...]: the exact sum over all processes."""
        return sums

    @staticmethod
    def total_float(value: float) -> float:
        """The sum over all processes of a number that is only reported."""
        return value


class ProcessGroup:
    """The processes of `torch.distributed`, which must have been initialised: gloo on CPUs, nccl on GPUs.

    Args:
        device: Device on which tensors are exchanged.

    Raises:
        RuntimeError: `torch.distributed` has not been initialised.
    """

    def __init__(self, device: str = "cpu"):
        if not distributed.is_initialized():
            raise RuntimeError("no group of processes: start under torchrun and call init_process_group first")
        self.device, self.size, self.rank = device, distributed.get_world_size(), distributed.get_rank()

    def largest(self, value: int) -> int:
        return int(self._reduced(torch.tensor(value, dtype=torch.int64), distributed.ReduceOp.MAX).item())

    def total(self, sums: torch.Tensor) -> torch.Tensor:
        return self._reduced(sums.clone(), distributed.ReduceOp.SUM)

    def total_float(self, value: float) -> float:
        return self._reduced(torch.tensor(value, dtype=torch.float64), distributed.ReduceOp.SUM).item()

    def _reduced(self, tensor: torch.Tensor, op) -> torch.Tensor:
        tensor = tensor.to(self.device)
        distributed.all_reduce(tensor, op)
        return tensor
