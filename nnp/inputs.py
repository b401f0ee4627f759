"""Inputs for firmware: from the shipped test sets, or from a file."""

from pathlib import Path

import numpy as np

from golden import dataset
from golden.firmware import Firmware
from nnp.batches import one_sample
from nnp.options import sample_range


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
    if not path.is_file():
        raise ValueError(f"{path}: there is no such file")
    try:
        array = np.load(path, allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise ValueError(f"{path}: not a whole .npy file of numbers ({error})") from error
    wanted = 3 if firmware.recurrent else 2
    if array.ndim != wanted or array.shape[-1] != firmware.inputs or array.dtype.kind not in "fiu" or 0 in array.shape:
        shape = f"[samples, steps, {firmware.inputs}]" if firmware.recurrent else f"[samples, {firmware.inputs}]"
        raise ValueError(f"{path}: {firmware.name} takes numbers{shape}, not {array.dtype}{list(array.shape)}")
    chosen = sample_range(samples, first, len(array))
    with np.errstate(over="ignore"):
        halves = array.astype(np.float16).view(np.uint16)
    return [(index, halves[index]) for index in range(chosen.start, chosen.stop)]
