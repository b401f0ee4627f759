"""The tiles of a matrix-vector multiplier."""

import numpy as np
from concord.golden.mvm.packing import marks
from concord.spec.config import Config


class Tiles:
    """The tiles that the register file holds."""

    def __init__(self, config: Config):
        n, tiles = config.native_dim, config.matrix_tiles
        self.config = config
        self.mantissas = np.zeros((tiles, n, n), np.int64)
        self.exponents = np.zeros((tiles, n), np.int64)
        self.marks = np.zeros(tiles, np.int64)

    def put(self, at: int, mantissas, exponents) -> None:
        """Note tiles from address `at` on."""
        where = slice(at, at + len(mantissas))
        self.mantissas[where], self.exponents[where] = mantissas, exponents
        self.marks[where] = marks(self.config, mantissas)


def sparse(rng, config, tiles):
    """Mask of elements that may be other than zero; some tiles lack their last columns, some are all zero."""
    keep = rng.choice([0, config.native_dim // 4, config.native_dim, config.native_dim], (tiles, 1, 1))
    return np.broadcast_to(np.arange(config.native_dim) < keep, (tiles, config.native_dim, config.native_dim))
