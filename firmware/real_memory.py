"""The memories of a machine that computes in full precision."""

import numpy as np
from concord.firmware.full_precision import FullPrecision
from concord.golden.schedule.memory import Memory, Queue
from concord.golden.schedule.real_arithmetic import RealArithmetic
from concord.spec.isa.memories import VRFS, Mem, depth
from concord.spec.machine.config import Config


class RealVectorRf:
    """VectorRf in full precision.

    Attributes:
        values: float64[entries, N].
    """

    def __init__(self, config: Config, arithmetic: RealArithmetic):
        self._config, self._arithmetic = config, arithmetic
        self.values = np.zeros((config.vector_rf, config.native_dim))

    def store(self, addresses: np.ndarray, vectors: np.ndarray, **mode):
        """Write vectors float64[n, N] to entries, quantised where the arithmetic quantises vectors."""
        self.values[addresses] = self._arithmetic.quantized(vectors, **mode)

    def operands(self, addresses: np.ndarray) -> tuple[np.ndarray, None]:
        """Numbers float64[..., N] of entries, and nothing in place of exponents."""
        return self.values[addresses], None

    def numbers(self, words: np.ndarray, **_mode) -> np.ndarray:
        """Words float64[..., M] of entries; word k of entry a has the index a * N/M + k."""
        return self._arithmetic.rounded(self.values.reshape(-1, self._config.mfu_lanes)[words])


class RealMatrixRf:
    """MatrixRf in full precision.

    Attributes:
        values: float64[tiles, N, N].
        marks:  Zeros, because nothing counts the cycles of such a machine.
    """

    def __init__(self, config: Config):
        self.values = np.zeros((config.matrix_tiles, config.native_dim, config.native_dim))
        self.marks = np.zeros(config.matrix_tiles, np.int64)

    def load(self, tile: int, words: np.ndarray, *, integer: bool):
        """Store the rows float64[N, N] of one tile."""
        self.values[tile] = words

    def weights(self, tiles: range, row_tiles: int) -> tuple[np.ndarray, None]:
        """Weights float64[row_tiles, columns, N, N] of a product's tiles, and nothing in place of exponents."""
        n = self.values.shape[-1]
        return self.values[tiles.start:tiles.stop].reshape(row_tiles, -1, n, n), None


class RealMemory(Memory):
    """All memories of a machine, with words of float64.

    Args:
        config:     The machine.
        images:     What the memories hold at first.
        arithmetic: Arithmetic that quantises what VectorRf stores.
    """

    dtype = np.float64

    def __init__(self, config: Config, images: FullPrecision, arithmetic: RealArithmetic):
        lanes = config.mfu_lanes
        self.vectors = {mem: np.zeros((depth(config, mem), lanes)) for mem in VRFS}
        for mem, words in images.vectors.items():
            self.vectors[mem][:len(words)] = arithmetic.rounded(words)
        self.entries = RealVectorRf(config, arithmetic)
        for part in images.entries:
            chosen = slice(part.address, part.address + len(part.values))
            self.entries.values[chosen] = part.codes if arithmetic.activations else part.values
        self.matrix = RealMatrixRf(config)
        self.matrix.values[:len(images.tiles)] = images.tiles
        self.biases = np.zeros((depth(config, Mem.BIAS_RF), lanes))
        self.biases[:len(images.biases)] = images.biases
        self.net_in, self.mvm = Queue(lanes, self.dtype), Queue(lanes, self.dtype)
