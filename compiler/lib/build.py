"""The firmware under construction: program, addresses in memories, matrices, biases and bounds."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
from concord.compiler.lib import tiling
from concord.compiler.lib.limits import Reason
from concord.compiler.lib.program import ProgramBuilder, Slot, read, write
from concord.compiler.lib.tile_store import Matrix, matrix_of
from concord.firmware.firmware import Tiles
from concord.golden.lib.float16 import to_real
from concord.golden.schedule.dram import pack_tile
from concord.net.layers.layer import Layer
from concord.spec.isa.memories import FILLED, MEMORY_NAMES, VRFS, Mem, depth
from concord.spec.machine.config import Config


class Allocator:
    """Allocates words from address 0 upwards. Nothing is allocated twice, so that padding that is zero stays zero.

    Allocation continues beyond the end of a memory; `shortages` then tells by how much.

    Args:
        config: The machine.
        real:   Whether constants are kept as real numbers.
    """

    def __init__(self, config: Config, *, real: bool = False):
        self._config, self._real = config, real
        self._next: dict[Mem, int] = defaultdict(int)
        self._names: dict[Mem, list[tuple[str, int]]] = defaultdict(list)
        self._constants: dict[Mem, list[tuple[int, np.ndarray]]] = defaultdict(list)

    def take(self, mem: Mem, count: int, name: str, align: int = 1) -> int:
        """Allocate `count` words or tiles of `mem`, and return their address, a multiple of `align`."""
        address = -(-self._next[mem] // align) * align
        self._next[mem] = address + count
        self._names[mem].append((name, count))
        return address

    def vector(self, mem: Mem, elements: int, name: str) -> Slot:
        """Allocate a vector for `mv_mul`: whole, aligned native vectors, in which unwritten elements stay +0."""
        words = self._config.vectors_of(elements) * self._config.vector_words
        return Slot(mem=mem, address=self.take(mem, words, name, self._config.vector_words), words=words)

    def constant(self, mem: Mem, values: np.ndarray, name: str) -> Slot:
        """Allocate constants uint16[elements], padded with +0 to whole words; the firmware contains them.

        In full precision they may be float64[elements] as well.
        """
        lanes, values = self._config.mfu_lanes, self.numbers(values)
        padded = np.zeros((self._config.words_of(values.size), lanes), values.dtype)
        padded.reshape(-1)[: values.size] = values.reshape(-1)
        slot = Slot(mem=mem, address=self.take(mem, len(padded), name), words=len(padded))
        self._constants[mem].append((slot.address, padded))
        return slot

    def numbers(self, values: np.ndarray) -> np.ndarray:
        """Constants as they are kept: binary16 patterns uint16[...], or in full precision float64[...]."""
        return to_real(values) if self._real and values.dtype == np.uint16 else values

    def used(self, mem: Mem) -> int:
        """Number of words or tiles allocated so far."""
        return self._next[mem]

    def images(self) -> dict[Mem, np.ndarray]:
        """Initial contents of each vector memory in use, the constants and +0 elsewhere.

        Returns:
            uint16[words, M], in full precision float64[words, M].
        """
        result = {}
        for mem in VRFS:
            if self._next[mem]:
                dtype = np.float64 if self._real else np.uint16
                result[mem] = np.zeros((self._next[mem], self._config.mfu_lanes), dtype)
                for address, values in self._constants[mem]:
                    result[mem][address : address + len(values)] = values
        return result

    def shortages(self, *, without: Sequence[Mem] = ()) -> list[Reason]:
        """A reason for each memory that is too small, but some."""
        found = []
        for mem in (mem for mem in (*FILLED, Mem.DRAM) if mem not in without):
            available, used = depth(self._config, mem), self._next[mem]
            if used > available:
                largest, count = max(self._names[mem], key=lambda item: item[1])
                found.append(Reason(
                    sentence=f"{MEMORY_NAMES[mem]} needs {used} {mem.kind.holds} and has {available}, "
                             f"{used - available} too few (the largest part is {largest}, {count})",
                    attribute=mem.size, needed=used, available=available))
        return found


class ModelBuild:
    """Collects what the layers of one model need while they are compiled.

    Args:
        config: Configuration of the machine.
        short:  Whether the program must be short, even if that costs time.
        real:   Layers by name with the numbers that fill the memories, where these are not those of the model: float64
            in full precision. All else is decided by the layers of the model, so that the program is the same.
        loads:  Number of products that fit MatrixRf at once, as tiles are loaded from Dram; 0 where none are.
        far:    Names of tensors that lie in Dram.
        waves:  Whether passes may take turns.
    """

    def __init__(self, config: Config, *, short: bool = False, real: Mapping[str, Layer] | None = None,
                 loads: int = 0, far: frozenset[str] = frozenset(), waves: bool = False):
        self.config, self.short, self.loads, self.far, self.waves = config, short, loads, far, waves
        self.program = ProgramBuilder()
        self.allocator = Allocator(config, real=real is not None)
        self._real = None if real is None else dict(real)
        self.bounds: list[tiling.Bound] = []
        self.shortages: list[Reason] = []  #: What has no room, beside those of the allocator.
        self._matrices: list[tuple[int, np.ndarray, np.ndarray | None]] = []
        self._biases: list[tuple[int, np.ndarray]] = []
        self._stored: dict[int, Matrix] = {}  # Matrices by their first tile, where some are loaded.

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
    def part(self, part: ProgramBuilder) -> Iterator[ProgramBuilder]:
        """A context whose chains go to a part of the program, which is spliced into it later."""
        whole, self.program = self.program, part
        yield self.program
        self.program = whole

    def matrix(self, name: str, mantissas: np.ndarray, exponents: np.ndarray | None = None) -> int:
        """Store integers[rows, columns], or mantissas with exponents[rows, columns / N], in native tiles.

        Returns:
            Address of the first tile.
        """
        count = self.config.vectors_of(mantissas.shape[0]) * self.config.vectors_of(mantissas.shape[1])
        address = self.allocator.take(Mem.MATRIX_RF, count, name)
        self._matrices.append((address, mantissas, exponents))
        return address

    def bias(self, name: str, values: np.ndarray) -> int:
        """Store values[rows] in BiasRf, and return the address of their first word."""
        count = self.config.words_of(len(values))
        address = self.allocator.take(Mem.BIAS_RF, count, name)
        self._biases.append((address, values))
        return address

    def moved(self, source: Slot, elements: int, name: str, *operations, target: Slot | None = None) -> Slot:
        """Emit a chain that applies point-wise operations to `source`, and return the slot of the result.

        The operands of the operations must also cover the padding of a vector from NetQ.
        """
        target = target or self.allocator.vector(Mem.INITIAL_VRF, elements, f"{name}, input")
        # A vector comes from the host in whole native vectors, all of which must be taken.
        rows = target.words * self.config.mfu_lanes if source.mem == Mem.NET_Q else elements
        self.program.chain(read(source), *operations, write(target), rows=rows)
        return target

    @property
    def most_tiles(self) -> int | None:
        """Most tiles of a product, if it can be cut; None for any number."""
        return self.config.matrix_tiles // self.loads if self.loads else None

    def matrices(self) -> list[Matrix]:
        """The matrices as `tile_store` has them, in the order of their tiles."""
        return [matrix_of(self.config, address, tiling.tiles(self.config, mantissas), integer=blocks is None)
                for address, mantissas, blocks in self._matrices]

    def used(self, mem: Mem) -> int:
        """Number of words, entries or tiles of a memory in use."""
        outside = [matrix for matrix in self._stored.values() if matrix.home is None]
        if mem is Mem.DRAM:
            return max(self.allocator.used(mem), sum(matrix.words for matrix in outside))
        if mem is Mem.MATRIX_RF and outside:
            return min(self.config.matrix_tiles, self.allocator.used(mem))
        return self.allocator.used(mem)

    def reserve_tiles(self):
        """Let the tensors in Dram lie after the tiles, of which there are no more than those of all matrices."""
        if self.loads and self.far:
            self.allocator.take(Mem.DRAM, sum(matrix.words for matrix in self.matrices()), "tiles")

    def store_matrices(self, matrices: Sequence[Matrix]):
        """Say where matrices lie: MatrixRf begins with those that have a home there, Dram with all others."""
        self._stored = {matrix.first: matrix for matrix in matrices}

    def outside(self) -> np.ndarray:
        """The contents of Dram, uint16[words, M]."""
        tiles, parts = self._all_tiles(), []
        for matrix in sorted(self._stored.values(), key=lambda one: one.address):
            if matrix.home is None:
                span = slice(matrix.first, matrix.first + matrix.count)
                stored = tiles.exponents[span].astype(np.int64) - self.config.weights.e_min
                parts += [pack_tile(self.config, *tile, integer=matrix.integer, diagonal=matrix.diagonal)
                          for tile in zip(tiles.mantissas[span], stored, strict=True)]
        return np.concatenate(parts)

    def tiles(self) -> Tiles:
        """The contents of MatrixRf."""
        tiles = self._all_tiles()
        if not self._stored:
            return tiles
        homes = sorted((one for one in self._stored.values() if one.home is not None), key=lambda one: one.home)
        chosen = np.concatenate([np.arange(0), *(one.first + np.arange(one.count) for one in homes)]).astype(int)
        return Tiles(mantissas=tiles.mantissas[chosen], exponents=tiles.exponents[chosen],
                     integer=tiles.integer[chosen])

    def _all_tiles(self) -> Tiles:
        """The tiles of all matrices."""
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
