"""Arrays of numbers in .npy files, of which nothing is unpickled."""

from pathlib import Path

import numpy as np


def read_numbers(path: Path) -> np.ndarray:
    """The array of a file.

    Raises:
        ValueError: there is no such file, or it holds no numbers.
    """
    if not path.is_file():
        raise ValueError(f"{path}: there is no such file")
    try:
        array = np.load(path, allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise ValueError(f"{path}: not a whole .npy file of numbers ({error})") from error
    if array.dtype.kind not in "fiu" or not array.size:
        raise ValueError(f"{path}: numbers are needed, not {array.dtype}{list(array.shape)}")
    return array
