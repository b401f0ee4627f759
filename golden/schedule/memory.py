"""The memories and queues of a machine."""

from typing import TYPE_CHECKING

import numpy as np
from concord.golden.mvm.elements import marks
from concord.golden.mvm.quantizer import quantize
from concord.golden.mvm.vector_rf import VectorRf
from concord.spec.isa.memories import VRFS, Mem, depth, present
from concord.spec.machine.config import Config

if TYPE_CHECKING:
    from concord.golden.lib.memory_words import MemoryWords


class WordQueue:
    """A first-in first-out queue of words."""

    def __init__(self, lanes: int, dtype: type = np.uint16):
        self._words = np.zeros((0, lanes), dtype)
        self._added: list[np.ndarray] = []
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def put(self, words: np.ndarray):
        """Add words [n, M]."""
        self._added.append(words)
        self._size += len(words)

    def take(self, count: int) -> np.ndarray:
        """Remove the first `count` words; the queue must hold them."""
        if len(self._words) < count:
            self._words = np.concatenate([self._words, *self._added])
            self._added.clear()
        taken, self._words = self._words[:count], self._words[count:]
        self._size -= count
        return taken

    def clear(self):
        """Remove all words."""
        self.take(len(self))


class MatrixRf:
    """The matrix register file: mantissas, exponents, modes and zero marks of native tiles.

    Attributes:
        mantissas: int16[tiles, N, N]; int64 of formats of more than 16 bits.
        exponents: int64[tiles, N], stored exponents.
        marks:     int64[tiles], zero marks: numbers of lane groups up to the last one that is not all zero.
        modes:     Whether each tile was loaded in integer mode.
    """

    def __init__(self, config: Config):
        tiles, n = config.matrix_tiles, config.native_dim
        self._config = config
        self.mantissas = np.zeros((tiles, n, n), config.weights.dtype)
        self.exponents = np.zeros((tiles, n), np.int64)
        self.marks = np.zeros(tiles, np.int64)
        self.modes = [False] * tiles
        self._products: dict[range, np.ndarray] = {}

    def store(self, first: int, mantissas: np.ndarray, exponents: np.ndarray):
        """Fill tiles from `first` up with mantissas[tiles, N, N] and stored exponents[tiles, N]."""
        tiles = slice(first, first + len(mantissas))
        self.mantissas[tiles], self.exponents[tiles] = mantissas, exponents
        self.marks[tiles] = marks(self._config, mantissas)
        self._products.clear()

    def load(self, tile: int, bits: np.ndarray, *, integer: bool, full: bool = False):
        """Quantise binary16 patterns uint16[N, N] and store them as one tile; `full`: it is marked so."""
        mantissas, exponents = quantize(bits, self._config.weights, integer=integer)
        self.store(tile, mantissas[None], exponents[None])
        if full:
            self.marks[tile] = self._config.groups

    def weights(self, tiles: range, row_tiles: int) -> tuple[np.ndarray, np.ndarray]:
        """Mantissas as float64[row_tiles, columns, N, N], and stored exponents, of a product's tiles."""
        if tiles not in self._products:
            self._products[tiles] = self.mantissas[tiles.start:tiles.stop].astype(np.float64)
        mantissas, exponents = self._products[tiles], self.exponents[tiles.start:tiles.stop]
        n = mantissas.shape[-1]
        return mantissas.reshape(row_tiles, -1, n, n), exponents.reshape(row_tiles, -1, n)


class MachineMemory:
    """All memories of a machine.

    Attributes:
        dtype:   Type of the elements of words.
        vectors: uint16[words, M], the content of each random-access vector memory, and of Dram.
        entries: The vector register file.
        matrix:  The matrix register file.
        biases:  int64[words, M], the content of BiasRf.
        program: Instruction words of the instruction buffer.
        net_in:  Queue from the host.
        mvm:     MvmQ.
    """

    dtype = np.uint16

    def __init__(self, config: Config):
        lanes, self.vectors = config.mfu_lanes, self.blank_vectors(config)
        self.entries = VectorRf(config)
        self.matrix = MatrixRf(config)
        self.biases = np.zeros((depth(config, Mem.BIAS_RF), lanes), np.int64)
        self.program = [0] * config.instructions
        self.net_in, self.mvm = WordQueue(lanes, self.dtype), WordQueue(lanes, self.dtype)

    @classmethod
    def blank_vectors(cls, config: Config) -> "dict[Mem, MemoryWords]":
        """Words of zeros for each random-access vector memory, and for Dram."""
        outside = (Mem.DRAM,) if Mem.DRAM in present(config) else ()
        return {mem: np.zeros((depth(config, mem), config.mfu_lanes), cls.dtype) for mem in (*VRFS, *outside)}
