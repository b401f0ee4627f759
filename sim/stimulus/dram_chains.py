"""Random chains that load tiles from Dram or make them of vectors, and move words, entries and integers there.

Chains of all other kinds may write there, too: `program_generator` has these.
"""

from collections.abc import Callable

import numpy as np
from concord.sim.stimulus.dram_region import holds_any_bits
from concord.sim.stimulus.placement import changed
from concord.spec.isa.dram import bias_words, entries_words
from concord.spec.isa.instructions import Instruction, Op
from concord.spec.isa.memories import MEMORY_NAMES, VRFS, Mem, depth
from concord.spec.machine.config import Config

_HOT = 10  #: Most tiles, entries and integers lie below this one.


class DramChains:
    """The kinds of chains of a program generator, of a machine with Dram, that name Dram.

    Args:
        generator: The `ProgramGenerator`, whose shapes, operations and writes the chains have.
    """

    def __init__(self, generator):
        self.generator, self.config, self.rng = generator, generator.config, generator.rng
        self.placement, self.outside = generator.placement, generator.placement.outside
        self._built: Instruction | None = None  # a product of the last tile that was made of vectors

    def kinds(self) -> dict[Callable[[], list[int]], int]:
        """Functions that make the words of a chain, with their weights."""
        entries = bool(self.config.vector_rf)
        return {self._words: 3, self.load: 3, self.build: 4, self.multiply: 3 * bool(self._built),
                self._entries_in: 2 * entries, self._entries_out: 2 * entries, self._biases: 1}

    def _words(self) -> list[int]:
        """Binary16 words, with point-wise operations or straight to memories."""
        shape, generator = self.placement.shape(12), self.generator
        source = self.placement.source(shape, Mem.DRAM)
        copies = self.rng.random() < 0.5
        operations = [] if copies else generator.operations(shape)
        return generator.whole(shape, [source], operations, entries=1 if copies else 3)

    def load(self) -> list[int]:
        """Packed tiles, one in each iteration."""
        config, rng = self.config, self.rng
        shape = self.placement.shape(1)
        shape = changed(shape, iterations=min(int(rng.choice((1, 2, 3))), config.matrix_tiles), iterations_x=1)
        integer, diagonal = (int(flag) for flag in rng.integers(0, 2, 2))
        inc = int(rng.random() < (0.8 if shape.iterations > 1 else 0.2))
        slots = self.outside.tiles[bool(integer), bool(diagonal)]
        address = self.outside.packed_address(slots, shape.iterations if inc else 1,
                                              any_bits=holds_any_bits(config.weights))
        tile = int(rng.integers(min(config.matrix_tiles - shape.iterations, _HOT) + 1))
        return self.generator.close(shape, [
            Instruction(op=Op.M_RD, mem=Mem.DRAM, a=address, inc=inc),
            Instruction(op=Op.M_WR, mem=Mem.MATRIX_RF, a=tile, integer=integer, diagonal=diagonal)])

    def build(self) -> list[int]:
        """Tiles of vectors: whole ones or less, in memories that other chains read and write."""
        config, rng, size = self.config, self.rng, self.config.vector_words
        vectors = config.native_dim if rng.random() < 0.5 else int(rng.integers(1, config.native_dim + 1))
        count = min(int(rng.choice((1, 1, 2, 3))), config.matrix_tiles)
        stride_x, stride_y = (size * int(rng.choice(steps)) for steps in ((0, 1, 1, 1, 2), (0, 1, 1, vectors)))
        shape = changed(self.placement.shape(size), iterations=vectors * count, iterations_x=vectors, stride_x=stride_x,
                        stride_y=stride_y)
        shape = changed(shape, rows=min(shape.rows, config.native_dim))
        first = int(rng.integers(size - config.words_of(shape.rows) + 1))
        mem, inc = VRFS[rng.integers(len(VRFS))], int(rng.random() < 0.85)
        reach = (vectors - 1) * stride_x + (count - 1) * stride_y
        inc *= reach + size <= depth(config, mem)
        room = (depth(config, mem) - reach * inc) // size - 1
        address = first + size * int(rng.integers(min(room, 1 if rng.random() < 0.6 else room) + 1))
        tile = int(rng.integers(min(config.matrix_tiles - count, _HOT) + 1))
        integer, transposed = (int(flag) for flag in rng.integers(0, 2, 2))
        self._built = Instruction(op=Op.MV_MUL, a=tile, integer=integer)
        return self.generator.close(shape, [
            Instruction(op=Op.M_RD, mem=mem, a=address, inc=inc),
            Instruction(op=Op.M_WR, mem=Mem.MATRIX_RF, a=tile, integer=integer, transposed=transposed)])

    def multiply(self) -> list[int]:
        """A product of the last tile that was made of vectors."""
        size, product = self.config.vector_words, self._built
        shape = changed(self.placement.shape(size, size), columns=1)
        shape = changed(shape, rows=min(shape.rows, self.config.native_dim))
        source = self.placement.source(shape, VRFS[self.rng.integers(len(VRFS))], product, size)
        return self.generator.whole(shape, [source, product], self.generator.operations(shape))

    def _entries_in(self) -> list[int]:
        """Packed entries to VectorRf, as they are."""
        config, rng = self.config, self.rng
        shape, integer = self.placement.shape(12), int(rng.integers(2))
        entries = config.vectors_of(shape.rows)
        slots = self.outside.entries[entries, bool(integer)]
        shape = changed(shape, iterations=min(shape.iterations, slots.count), iterations_x=1)
        inc = int(rng.random() < 0.7)
        shape = changed(shape, stride_y=slots.words, stride_x=slots.words) if inc else shape
        address = self.outside.packed_address(slots, shape.iterations if inc else 1,
                                              any_bits=holds_any_bits(config.activations))
        target = Instruction(op=Op.V_WR, mem=Mem.VECTOR_RF, integer=integer)
        return self.generator.close(shape, [
            Instruction(op=Op.V_RD, mem=Mem.DRAM, a=address, inc=inc, raw=1), self.placement.addressed(shape, target)])

    def _entries_out(self) -> list[int]:
        """Entries of VectorRf to Dram, as they are."""
        config, rng = self.config, self.rng
        shape, integer = self.placement.shape(12), int(rng.integers(2))
        entries = config.vectors_of(shape.rows)
        shape = self.placement.entry_strides(shape, entries)
        words = entries_words(config, entries, integer=bool(integer))
        shape = changed(shape, stride_out=int(rng.choice((0, words, words, words + 1))))
        inc = int(rng.random() < 0.7)
        address = self.outside.address(words + (shape.iterations - 1) * shape.stride_out * inc)
        source = Instruction(op=Op.V_RD, mem=Mem.VECTOR_RF, integer=integer)
        return self.generator.close(shape, [
            self.placement.addressed(shape, source), Instruction(op=Op.V_WR, mem=Mem.DRAM, a=address, inc=inc, raw=1)])

    def _biases(self) -> list[int]:
        """Integers to BiasRf."""
        config, rng = self.config, self.rng
        shape = self.placement.shape(min(12, config.bias_words))
        words = config.words_of(shape.rows)
        size = bias_words(words)
        moves, inc = (int(rng.random() < 0.6) for _ in range(2))
        shape = changed(shape, stride_x=int(rng.choice((0, size, size + 1))), stride_y=int(rng.choice((0, size, 1))))
        reach = (shape.iterations - 1) * max(shape.stride_x, shape.stride_y) * moves
        last = config.bias_words - words - (shape.iterations - 1) * shape.stride_out * inc
        return self.generator.close(shape, [
            Instruction(op=Op.V_RD, mem=Mem.DRAM, a=self.outside.address(size + reach), inc=moves, raw=1),
            Instruction(op=Op.V_WR, mem=Mem.BIAS_RF, a=int(rng.integers(max(0, last) + 1)), inc=inc)])


def any_dram_chain(config: Config, rng: np.random.Generator) -> str:
    """Text of a random chain that names Dram; many are legal, and many just miss it. Addresses lie anywhere.

    Registers are set before it. Base1 mostly holds a low address, Base2 one near the end of Dram.
    """
    kind = str(rng.choice(("load", "words", "out", "in", "back", "biases")))
    wide = str(rng.choice(("", "", ", integer")))
    source = f"v_rd{_inc(rng)} Dram, {_address(rng)}"
    if kind == "load":
        tile = int(rng.integers(config.matrix_tiles))
        modes = wide + str(rng.choice(("", "", ", diagonal")))
        lines = [f"m_rd{_inc(rng)} Dram, {_address(rng)}", f"m_wr MatrixRf, {tile}{modes}"]
    elif kind == "in":
        lines = [f"{source}, raw", f"v_wr{_inc(rng)} VectorRf, {rng.integers(max(1, config.vector_rf))}{wide}"]
    elif kind == "biases":
        lines = [f"{source}, raw", f"v_wr{_inc(rng)} BiasRf, {rng.integers(config.bias_words)}"]
    elif kind == "back":
        lines = [f"v_rd{_inc(rng)} VectorRf, {rng.integers(max(1, config.vector_rf))}{wide}",
                 f"v_wr{_inc(rng)} Dram, {_address(rng)}, raw"]
    else:
        mem = VRFS[rng.integers(len(VRFS))]
        others = ["v_rd NetQ", f"v_rd{_inc(rng)} {MEMORY_NAMES[mem]}, {rng.integers(min(8, depth(config, mem)))}"]
        lines = [source if kind == "words" else str(rng.choice(others))]
        operations = ("vv_add0 0", "v_relu0", "vv_mul0_inc 1", "v_sigm1")
        store = f"v_wr{_inc(rng)} Dram, {_address(rng)}"
        writes = ["v_wr NetQ", f"v_wr{_inc(rng)} InitialVrf, {rng.integers(8)}", store]
        body = [operation for operation in operations if rng.random() < 0.3]
        if kind == "out":
            body.insert(int(rng.integers(len(body) + 1)), store)
            writes.pop()
        lines += body + [str(write) for write in rng.permutation(writes)[:rng.integers(1, 3)]]
    return "\n".join([*lines, "end_chain"])


def _inc(rng):
    return "_inc" if rng.random() < 0.7 else ""


def _address(rng):
    """A low address, mostly with a base register."""
    base = str(rng.choice(("", " + Base1", " + Base2", " + Base2", " + Base3")))
    return f"{rng.integers(1 << 16 if rng.random() < 0.1 else 30)}{base}"


def dram_bases(config: Config, rng: np.random.Generator) -> dict[str, int]:
    """Values of base registers, some of which reach the end of Dram."""
    near = max(0, config.dram_words - int(rng.integers(1, 90)))
    return {"Base1": int(rng.choice((0, 3, 70_000, 65_535))), "Base2": near,
            "Base3": int(rng.choice((1, 8, near, (1 << 32) - 1, rng.integers(1 << 32))))}
