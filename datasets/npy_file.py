"""Reads arrays of numbers from .npy files, or from .npz files with one array, without pickle."""

import zipfile
from pathlib import Path

import numpy as np
from concord.datasets import arrays

_ADVICE = "save one array with numpy.save('inputs.npy', array), and name that file"


def read_numbers(path: Path) -> np.ndarray:
    """Read the array of a file.

    Raises:
        ValueError: there is no such file, or it does not hold exactly one array of numbers.
    """
    path = Path(path)
    loaded = _only(path) if zipfile.is_zipfile(path) else arrays.npy(path)
    if loaded.dtype.kind not in "fiu" or not loaded.size:
        needed = "numbers are" if loaded.size else "at least one number is"
        raise ValueError(f"{path}: {needed} needed, not {loaded.dtype}{list(loaded.shape)}")
    return loaded


def _only(path: Path) -> np.ndarray:
    """The only array of an archive."""
    names = arrays.npy_names(path)
    if not names:
        raise ValueError(f"{path}: a zip archive without arrays of numpy, such as PyTorch writes; {_ADVICE}")
    if len(names) > 1:
        raise ValueError(f"{path}: it holds {len(names)} arrays, {', '.join(sorted(names))}; {_ADVICE}")
    return arrays.npz(path).read(names[0])
