"""Words of a memory."""

from typing import Any, Protocol

import numpy as np


class MemoryWords(Protocol):
    """Words [n, numbers of a word]: an array, or what is indexed as one is and has its length."""

    def __len__(self) -> int: ...

    def __getitem__(self, words: Any, /) -> np.ndarray: ...

    def __setitem__(self, words: Any, values: Any, /) -> None: ...
