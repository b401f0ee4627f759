"""A chain with its registers: what one `end_chain` sets going."""

from dataclasses import dataclass

from concord.spec.config import Config
from concord.spec.isa import Instruction, Op, Reg, out_scale
from concord.spec.memories import VRFS, Mem


@dataclass(frozen=True, slots=True, kw_only=True)
class Registers:
    """The scalar registers, as `spec.isa.Reg` describes them."""

    rows: int
    columns: int = 1
    iterations: int = 1
    iterations_x: int = 1
    out_scale: int = 0
    stride_x: int = 0
    stride_y: int = 0
    stride_out: int

    @classmethod
    def reset(cls, config: Config) -> "Registers":
        """What `start` sets."""
        return cls(rows=config.native_dim, stride_out=config.words)

    def written(self, register: int, value: int) -> "Registers":
        """These registers after `s_wr register, value`, the value in its 16 bits."""
        name = Reg(register).name.lower()
        values = {field: getattr(self, field) for field in self.__slots__}
        return Registers(**values | {name: out_scale(value) if register == Reg.OUT_SCALE else value})


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Chain:
    """One chain as it runs. Two chains are equal only when they are the same object.

    Attributes:
        address:      Instruction address of the source; the others follow without a gap.
        instructions: Source and operations, without `end_chain`.
        registers:    Scalar registers in force.
        source_words: Words that the source supplies for each iteration.
        words:        Words that everything after the source, or after `mv_mul`, sees for each iteration.
        row_tiles:    Native row tiles of the product: its tiles are row_tiles * Columns. 0 without `mv_mul`.
        last_lanes:   Lanes of an iteration's last word that lie within Rows.
    """

    address: int
    instructions: tuple[Instruction, ...]
    registers: Registers
    source_words: int
    words: int
    row_tiles: int
    last_lanes: int

    @classmethod
    def resolve(cls, config: Config, address: int, instructions: tuple[Instruction, ...],
                registers: Registers) -> "Chain":
        """The chain that these instructions mean under these registers."""
        rows = registers.rows
        if instructions[0].op == Op.M_RD:
            rows = config.native_dim ** 2
        words = source_words = config.words_of(rows)
        row_tiles = 0
        if instructions[1].op == Op.MV_MUL:
            source_words = registers.columns * config.words
            row_tiles = config.vectors_of(rows)
        return cls(address=address, instructions=instructions, registers=registers, source_words=source_words,
                   words=words, row_tiles=row_tiles, last_lanes=rows - (words - 1) * config.mfu_lanes)

    @property
    def source(self) -> Instruction:
        """`v_rd` or `m_rd`."""
        return self.instructions[0]

    @property
    def product(self) -> Instruction | None:
        """The `mv_mul`, if there is one."""
        return self.instructions[1] if self.instructions[1].op == Op.MV_MUL else None

    @property
    def loads(self) -> bool:
        """It loads native tiles."""
        return self.source.op == Op.M_RD

    @property
    def pops(self) -> int:
        """Words it takes from MvmQ."""
        return self.words * self.registers.iterations if self.source.mem == Mem.MVM_Q else 0

    @property
    def pushes(self) -> int:
        """Words it puts into MvmQ."""
        return self.words * self.registers.iterations if self.target.mem == Mem.MVM_Q else 0

    @property
    def target(self) -> Instruction:
        """The last write."""
        return self.instructions[-1]

    @property
    def end(self) -> int:
        """Address of `end_chain`."""
        return self.address + len(self.instructions)

    @property
    def tiles(self) -> range:
        """Tiles of MatrixRf that it multiplies or loads."""
        if self.loads:
            return range(self.target.a, self.target.a + self.registers.iterations)
        first = self.product.a if self.product else 0
        return range(first, first + self.row_tiles * self.registers.columns)

    def source_offset(self, iteration: int) -> int:
        """Words by which the source of an iteration lies behind its first."""
        if not self.source.inc:
            return 0
        y, x = divmod(iteration, self.registers.iterations_x)
        return x * self.registers.stride_x + y * self.registers.stride_y

    def offset(self, instruction: Instruction, iteration: int) -> int:
        """Words by which an operand or a result of an iteration lies behind its first."""
        return iteration * self.registers.stride_out if instruction.inc else 0

    @property
    def random_source(self) -> bool:
        """The source is a random-access memory."""
        return self.source.mem in VRFS
