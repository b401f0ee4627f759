"""The firmware under construction: program, places, matrices, biases and bounds."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import numpy as np
from concord.compiler.lib import bounds, tiling
from concord.compiler.lib.allocation import Allocator, Place
from concord.compiler.lib.limits import Reason
from concord.compiler.lib.program import Program, read, write
from concord.firmware.firmware import Tiles
from concord.net.layers.layer import Layer
from concord.spec.isa.memories import Mem
from concord.spec.machine.config import Config


class Build:
    """Collects what the layers of one model need while they are compiled.

    Args:
        config: Configuration of the machine.
        short:  Whether the program must be short, even if that costs time.
        real:   Layers by name with the numbers that fill the memories, where these are not those of the model: float64
            in full precision. All else is decided by the layers of the model, so that the program is the same.
    """

    def __init__(self, config: Config, *, short: bool = False, real: Mapping[str, Layer] | None = None):
        self.config, self.short = config, short
        self.program = Program()
        self.allocator = Allocator(config, real=real is not None)
        self._real = None if real is None else dict(real)
        self.bounds: list[bounds.Bound] = []
        self.shortages: list[Reason] = []  #: What has no room, beside those of the allocator.
        self._matrices: list[tuple[int, np.ndarray, np.ndarray | None]] = []
        self._biases: list[tuple[int, np.ndarray]] = []

    @property
    def real(self) -> bool:
        """Whether the memories are filled with real numbers."""
        return self._real is not None

    def content(self, layer: Layer) -> Layer:
        """The layer whose numbers fill the memories for a layer of the model."""
        return layer if self._real is None else self._real[layer.name]

    def set_content(self, layer: Layer):
        """Replace the layer of this name whose numbers fill the memories, where these are real."""
        if self._real is not None:
            self._real[layer.name] = layer

    @contextmanager
    def part(self, part: Program) -> Iterator[Program]:
        """A context whose chains go to a part of the program, which is spliced into it later."""
        whole, self.program = self.program, part
        yield self.program
        self.program = whole

    def integer_matrix(self, name: str, weights: np.ndarray) -> int:
        """Store integer weights[rows, columns], and return the address of their first tile."""
        return self._matrix(name, weights, None)

    def block_matrix(self, name: str, mantissas: np.ndarray, exponents: np.ndarray) -> int:
        """Store mantissas[rows, columns] with exponents[rows, columns / N]; return the address of the first tile."""
        return self._matrix(name, mantissas, exponents)

    def bias(self, name: str, values: np.ndarray) -> int:
        """Store values[rows] in BiasRf, and return the address of their first word."""
        count = self.config.words_of(len(values))
        address = self.allocator.take(Mem.BIAS_RF, count, name)
        self._biases.append((address, values))
        return address

    def moved(self, source: Place, elements: int, name: str, *operations, target: Place | None = None) -> Place:
        """Emit a chain that applies point-wise operations to `source`, and return the place of the result.

        The operands of the operations must also cover the padding of a vector from NetQ.
        """
        target = target or self.allocator.vector(Mem.INITIAL_VRF, elements, f"{name}, input")
        # A vector comes from the host in whole native vectors, all of which must be taken.
        rows = target.words * self.config.mfu_lanes if source.mem == Mem.NET_Q else elements
        self.program.chain(read(source), *operations, write(target), rows=rows)
        return target

    def tiles(self) -> Tiles:
        """The contents of MatrixRf."""
        size, count = self.config.native_dim, self.allocator.used(Mem.MATRIX_RF)
        mantissas = np.zeros((count, size, size), self.config.weights.dtype)
        exponents = np.full((count, size), self.config.weights.e_min, np.int8)
        integer = np.zeros(count, bool)
        for address, matrix, blocks in self._matrices:
            tiled = tiling.tiles(self.config, matrix)
            span = slice(address, address + len(tiled))
            mantissas[span] = tiled
            integer[span] = blocks is None
            if blocks is not None:
                exponents[span] = tiling.tile_exponents(self.config, blocks)
        return Tiles(mantissas=mantissas, exponents=exponents, integer=integer)

    def real_tiles(self) -> np.ndarray:
        """The contents of MatrixRf as real numbers float64[tiles, N, N]: of integers, multiples of their step."""
        fmt, size = self.config.weights, self.config.native_dim
        result = np.zeros((self.allocator.used(Mem.MATRIX_RF), size, size))
        for address, matrix, blocks in self._matrices:
            tiled = tiling.tiles(self.config, matrix)
            if blocks is not None and matrix.dtype != np.float64:
                exponents = tiling.tile_exponents(self.config, blocks)
                tiled = np.ldexp(tiled.astype(np.float64), exponents[..., None].astype(int) - (fmt.bits - 1))
            result[address : address + len(tiled)] = tiled
        return result

    def biases(self) -> np.ndarray:
        """The contents of BiasRf, int32[words, M], in full precision float64[words, M]."""
        dtype = np.float64 if self.real else np.int32
        result = np.zeros((self.allocator.used(Mem.BIAS_RF), self.config.mfu_lanes), dtype)
        for address, values in self._biases:
            result[address:].reshape(-1)[: len(values)] = values
        return result

    def _matrix(self, name, weights, exponents):
        count = self.config.vectors_of(weights.shape[0]) * self.config.vectors_of(weights.shape[1])
        address = self.allocator.take(Mem.MATRIX_RF, count, name)
        self._matrices.append((address, weights, exponents))
        return address
