"""Reads arrays of numbers from .npy files, or from .npz files with one array, without pickle."""

from pathlib import Path

import numpy as np


def read_numbers(path: Path) -> np.ndarray:
    """Read the array of a file.

    Raises:
        ValueError: there is no such file, or it does not hold exactly one array of numbers.
    """
    if not path.is_file():
        raise ValueError(f"{path}: there is no such file")
    try:
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.lib.npyio.NpzFile):
            with loaded:
                loaded = _only(loaded, path)
    except (ValueError, EOFError, OSError) as error:
        if str(error).startswith(str(path)):
            raise
        raise ValueError(f"{path}: not a whole .npy file of numbers ({error})") from error
    if loaded.dtype.kind not in "fiu" or not loaded.size:
        needed = "numbers are" if loaded.size else "at least one number is"
        raise ValueError(f"{path}: {needed} needed, not {loaded.dtype}{list(loaded.shape)}")
    return loaded


def _only(archive: np.lib.npyio.NpzFile, path: Path) -> np.ndarray:
    """The only array of an archive."""
    arrays = {name.removesuffix(".npy") for name in archive.zip.namelist() if name.endswith(".npy")}
    if len(arrays) == 1 == len(archive.files):
        return archive[arrays.pop()]
    advice = "save one array with numpy.save('inputs.npy', array), and name that file"
    if not arrays:
        raise ValueError(f"{path}: a zip archive without arrays of numpy, such as PyTorch writes; {advice}")
    raise ValueError(f"{path}: it holds {len(archive.files)} arrays, {', '.join(sorted(archive.files))}; {advice}")
