"""Inputs for firmware: from the shipped test sets, or from a file."""

from pathlib import Path

import numpy as np
from concord.golden.host.firmware import Firmware
from concord.model import dataset
from concord.model.model import Model
from concord.model.npy_file import read_numbers
from concord.nnp.lib.options import sample_range
from concord.nnp.verify.batches import one_sample


def read_inputs(firmware: Firmware, path: Path | None, samples: str, first: int) -> list[tuple[int, np.ndarray]]:
    """Index and binary16 bit patterns of each input chosen.

    Args:
        path: A .npy file of real numbers [samples, inputs], or [samples, steps, inputs] where the network is recurrent;
            None for the firmware's own test set.

    Raises:
        ValueError: there are no such inputs, or they have another shape.
    """
    if path is None:
        data = dataset.load(firmware.data)
        chosen = sample_range(samples, first, len(data.labels))
        return [(index, one_sample(data, index)) for index in range(chosen.start, chosen.stop)]
    halves = read_array(firmware, path)
    chosen = sample_range(samples, first, len(halves))
    return [(index, halves[index]) for index in range(chosen.start, chosen.stop)]


def read_array(network: Firmware | Model, path: Path) -> np.ndarray:
    """Inputs for a network from a .npy file, as binary16 bit patterns.

    Raises:
        ValueError: there is no such file, or its numbers have another shape.
    """
    array = read_numbers(path)
    wanted = 3 if network.recurrent else 2
    if array.ndim != wanted or array.shape[-1] != network.inputs:
        shape = f"[samples, steps, {network.inputs}]" if network.recurrent else f"[samples, {network.inputs}]"
        raise ValueError(f"{path}: {network.name} takes numbers{shape}, not {array.dtype}{list(array.shape)}")
    with np.errstate(over="ignore"):
        return array.astype(np.float16).view(np.uint16)
