"""Data parallel training: several processes share each training tensor, and have the bits of one process.

The exponent of a tensor is measured over all processes. Gradients are exchanged as exact integers in one unit, so that
no order of arrival can change a bit.

Source: S2.i.
"""

import os
import socket
import subprocess
import sys
import time

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


def joined(device: str = "cpu") -> type[Alone] | ProcessGroup:
    """The group of processes that the environment of torchrun names, or `Alone` without torchrun."""
    if "WORLD_SIZE" not in os.environ:
        return Alone
    if not distributed.is_initialized():
        distributed.init_process_group("nccl" if device.startswith("cuda") else "gloo")
    return ProcessGroup(device)


def leave():
    """Leave the group of processes, if there is one."""
    if distributed.is_initialized():
        distributed.destroy_process_group()


def started(count: int, words: list[str]) -> int:
    """Run a Python program in several processes of one group, as torchrun does on one computer, and return its status.

    The first process writes for all of them. If one fails, the others are ended.

    Args:
        count: Number of processes.
        words: The words of the program after that of Python.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(probe.getsockname()[1]), "WORLD_SIZE": str(count)}
    runs = [subprocess.Popen([sys.executable, *words], env=os.environ | shared | {"RANK": str(rank)},
                             **({"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL} if rank else {}))
            for rank in range(count)]
    try:
        while not any(run.poll() for run in runs) and any(run.poll() is None for run in runs):
            time.sleep(0.1)
        time.sleep(1 if any(run.poll() for run in runs) else 0)  # so that each can say why it fails
    finally:
        for run in runs:
            run.terminate()
        status = [run.wait() for run in runs]
    return next((found for found in status if found > 0), 0) or int(any(status))
