"""Tensors of PyTorch as bit patterns of the machine, and model files of trained networks."""

from pathlib import Path

import numpy as np
import torch
from concord.datasets.samples import Samples
from concord.net import finish as net
from concord.net.layers.layer import Layer
from concord.net.model import Model


def floats(bits: np.ndarray) -> torch.Tensor:
    """Bit patterns of binary16 numbers as float32 numbers."""
    return torch.from_numpy(bits.view(np.float16).astype(np.float32))


def patterns(values: torch.Tensor) -> np.ndarray:
    """Bit patterns of float32 numbers that are binary16 numbers already."""
    return values.numpy().astype(np.float16).view(np.uint16)


def finish(
    out: Path, layers: tuple[Layer, ...], test: Samples, *, fp32: torch.Tensor, quantized: torch.Tensor,
    lowered: torch.Tensor | None, **others,
) -> Model:
    """Measure a trained network on its test set and write it.

    Args:
        lowered: float32[samples, classes], the outputs of the lowered network in PyTorch, or None.
        Others:  As in `net.finish.finish`.
    """
    return net.finish(out, layers, test, fp32=fp32.numpy(), quantized=quantized.numpy(),
                      lowered=None if lowered is None else patterns(lowered), **others)
