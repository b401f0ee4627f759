"""A chain together with the scalar registers that it runs under."""

from dataclasses import dataclass, replace

from concord.spec.isa.dram import bias_words, entries_words, tile_words
from concord.spec.isa.instructions import BASES, SPECS, Instruction, Op, Reg, out_scale
from concord.spec.isa.memories import ENTRY_MEMORIES, VRFS, Mem
from concord.spec.machine.config import Config

NO_BASES = (0,) * (1 + len(BASES))  #: Base registers after a start, following a 0 for instructions that name none.


@dataclass(frozen=True, slots=True, kw_only=True)
class Registers:
    """The scalar registers of chains: all but the base registers; `spec.isa.instructions.Reg` describes them."""

    rows: int
    columns: int = 1
    iterations: int = 1
    iterations_x: int = 1
    out_scale: int = 0
    stride_x: int = 0
    stride_y: int = 0
    stride_out: int
    window_vectors: int = 1
    window_x: int = 1
    window_y: int = 1
    window_step: int = 1
    window_pitch: int = 0
    window_group: int = 0
    stride_vec: int = 1
    skip_vec: int = 0

    @classmethod
    def reset(cls, config: Config) -> "Registers":
        """The registers after a start."""
        return cls(rows=config.native_dim, stride_out=config.vector_words)

    def written(self, register: int, value: int) -> "Registers":
        """The registers after `s_wr register, value`; `value` holds the 16 bits of the register."""
        name = Reg(register).name.lower()
        values = {field: getattr(self, field) for field in self.__slots__}
        return Registers(**values | {name: out_scale(value) if register == Reg.OUT_SCALE else value})


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Chain:
    """One chain as it runs. Two chains are equal only when they are the same object.

    Attributes:
        address:      Address of the source instruction; the other instructions follow it directly.
        instructions: Source and operations, without `end_chain`; base registers are added to their addresses.
        registers:    Scalar registers that the chain runs under.
        source_words: Words that the source supplies for each iteration, before the pooling unit reduces them.
        result_words: Words of each iteration after the source, or after `mv_mul`: operations and writes see these.
        entries:      Entries of each iteration that a `v_wr VectorRf` writes, or that `v_rd VectorRf` reads as numbers.
        outside:      Words of Dram of each iteration of packed tiles, entries or integers; 0 in other chains.
        row_tiles:    Rows of native tiles of the product, which has row_tiles * Columns tiles; 0 without `mv_mul`.
        last_lanes:   Number of lanes of the last word of each iteration that lie within Rows.
    """

    address: int
    instructions: tuple[Instruction, ...]
    registers: Registers
    source_words: int
    result_words: int
    entries: int
    outside: int
    row_tiles: int
    last_lanes: int

    @classmethod
    def resolve(cls, config: Config, address: int, instructions: tuple[Instruction, ...],
                registers: Registers, bases: tuple[int, ...] = NO_BASES) -> "Chain":
        """Make the chain of these instructions under these registers.

        Args:
            bases: Base registers by the field `base` of instructions, of which 0 is none and adds 0.
        """
        instructions = tuple(replace(i, a=i.a + bases[i.base], base=0) if i.base else i for i in instructions)
        rows = registers.rows
        if instructions[0].op == Op.M_RD and instructions[0].mem not in VRFS:
            rows = config.native_dim ** 2
        words = source_words = config.words_of(rows)
        row_tiles = 0
        if instructions[1].op == Op.MV_MUL:
            source_words = registers.columns * config.vector_words
            row_tiles = config.vectors_of(rows)
        elif instructions[1].op == Op.V_POOL_MAX:
            source_words = words * registers.window_x * registers.window_y
        entries = config.vectors_of(rows)
        return cls(address=address, instructions=instructions, registers=registers, source_words=source_words,
                   result_words=words, entries=entries, outside=_outside(config, instructions, words, entries),
                   row_tiles=row_tiles, last_lanes=rows - (words - 1) * config.mfu_lanes)

    @property
    def source(self) -> Instruction:
        """The first instruction, a `v_rd` or `m_rd`."""
        return self.instructions[0]

    @property
    def product(self) -> Instruction | None:
        """The `mv_mul`, if there is one."""
        return self.instructions[1] if self.instructions[1].op == Op.MV_MUL else None

    @property
    def from_entries(self) -> bool:
        """Whether the source holds entries."""
        return self.source.mem in ENTRY_MEMORIES

    @property
    def pools(self) -> bool:
        """Whether the pooling unit reduces windows of the source."""
        return self.instructions[1].op == Op.V_POOL_MAX

    @property
    def gathers(self) -> bool:
        """Whether the gather unit reads the source: entries of VectorRf as numbers, or windows."""
        return self.pools or (self.from_entries and not self.product)

    @property
    def normalises(self) -> bool:
        """Whether the softmax unit takes each iteration's words on their way to NetQ."""
        return self.instructions[-2].op == Op.V_SOFTMAX

    @property
    def reduces(self) -> bool:
        """Whether an operation sees all words of an iteration."""
        return any(spec.operation and spec.operation.reduces for spec in (SPECS[i.op] for i in self.instructions))

    @property
    def windowed(self) -> bool:
        """Whether the columns of the product lie in a window of VectorRf."""
        return bool(self.product and self.product.window)

    @property
    def loads(self) -> bool:
        """Whether the chain loads native tiles."""
        return self.source.op == Op.M_RD

    @property
    def builds(self) -> bool:
        """Whether the chain makes these tiles of vectors, one of each iteration."""
        return self.loads and self.random_source

    @property
    def moves(self) -> bool:
        """Whether the chain moves entries or integers between Dram and the chip as they are."""
        return bool(self.source.raw or self.target.raw)

    @property
    def pops(self) -> int:
        """Number of words that the chain takes from MvmQ."""
        return self.result_words * self.registers.iterations if self.source.mem == Mem.MVM_Q else 0

    @property
    def pushes(self) -> int:
        """Number of words that the chain puts into MvmQ."""
        return self.result_words * self.registers.iterations if self.target.mem == Mem.MVM_Q else 0

    @property
    def target(self) -> Instruction:
        """The last instruction, a write."""
        return self.instructions[-1]

    @property
    def end(self) -> int:
        """Address of `end_chain`."""
        return self.address + len(self.instructions)

    @property
    def tiles(self) -> range:
        """Tiles of MatrixRf that the chain multiplies or loads."""
        if self.loads:
            return range(self.target.a, self.target.a + self.registers.iterations // self.tile_iterations)
        first = self.product.a if self.product else 0
        return range(first, first + self.row_tiles * self.registers.columns)

    @property
    def tile_iterations(self) -> int:
        """Number of iterations that load one tile: one, or as many as the tile has vectors."""
        return max(1, self.registers.iterations_x) if self.builds else 1

    def source_offset(self, iteration: int) -> int:
        """Distance in words from the source of the first iteration to the source of this one."""
        if not self.source.inc:
            return 0
        if self.loads and not self.builds:
            return iteration * self.outside
        y, x = divmod(iteration, self.registers.iterations_x)
        return x * self.registers.stride_x + y * self.registers.stride_y

    def offset(self, instruction: Instruction, iteration: int) -> int:
        """Distance in words, or entries, from an operand or result of the first iteration to that of this one."""
        if not instruction.inc:
            return 0
        if instruction.op == Op.V_WR and instruction.mem == Mem.VECTOR_RF:
            return (iteration * self.registers.stride_vec
                    + iteration // self.registers.iterations_x * self.registers.skip_vec)
        return iteration * self.registers.stride_out

    def pixel_offset(self, x: int, y: int) -> int:
        """Distance in entries, or words, from the first pixel of a window to the one at x and y."""
        return x * self.registers.window_step + y * self.registers.window_pitch

    def column_offset(self, row_tile: int, column: int) -> int:
        """Distance in entries from the first address of an iteration of a product to a column that a row tile reads."""
        if not self.windowed:
            return column
        registers = self.registers
        pixel, vector = divmod(column, registers.window_vectors)
        y, x = divmod(pixel, registers.window_x)
        return vector + self.pixel_offset(x, y) + row_tile * registers.window_group

    @property
    def source_extent(self) -> int:
        """Number of words, or entries, from the first to the last that an iteration of the source reads."""
        registers = self.registers
        if self.source.mem == Mem.DRAM and self.outside:
            return self.outside
        last_pixel = self.pixel_offset(registers.window_x - 1, registers.window_y - 1)
        if self.windowed:
            return last_pixel + (self.row_tiles - 1) * registers.window_group + registers.window_vectors
        if self.product:
            return registers.columns if self.from_entries else self.source_words
        return last_pixel * self.pools + (self.entries if self.from_entries else self.result_words)

    def source_span(self) -> range:
        """The words, or entries, from the first to the last that all iterations of a source with addresses read."""
        registers = self.registers
        reach = self.source_offset(registers.iterations - 1)
        return range(self.source.a, self.source.a + reach + self.source_extent)

    def result_span(self, instruction: Instruction) -> range:
        """The words, or entries, from the first to the last of an operand, or of a write with addresses."""
        count = self.entries if instruction.mem == Mem.VECTOR_RF else self.result_words
        count = self.outside if instruction.raw else 1 if instruction.held else count
        return range(instruction.a, instruction.a + self.offset(instruction, self.registers.iterations - 1) + count)

    @property
    def random_source(self) -> bool:
        """Whether the source is a random-access vector memory."""
        return self.source.mem in VRFS


def _outside(config, instructions, words, entries) -> int:
    """Words of Dram of each iteration of a chain that loads or moves what is packed there; 0 for other chains."""
    source, target = instructions[0], instructions[-1]
    if source.op == Op.M_RD and source.mem == Mem.DRAM:
        return tile_words(config, integer=bool(target.integer), diagonal=bool(target.diagonal))
    if target.raw:
        return entries_words(config, entries, integer=bool(source.integer))
    if source.raw:
        return bias_words(words) if target.mem == Mem.BIAS_RF else entries_words(
            config, entries, integer=bool(target.integer))
    return 0
