"""The instruction set: the one definition that assembler, golden machine, decoder and documents read."""

from dataclasses import dataclass
from enum import Enum, IntEnum, unique
from itertools import product

from concord.spec.memories import OPERAND_MEMORIES, QUEUES, VRFS, Mem
from concord.spec.operations import MFUS, Operation, Stage

WORD = 64  #: Bits of one instruction.
LOOP_DEPTH = 2  #: Nested loops.
WRITES = 3  #: Most `v_wr` of one chain.
STAGES = MFUS * len(Stage)  #: Stages that a chain runs through.


@unique
class Op(IntEnum):
    """Opcode. 0 is none, so that erased memory is an error."""

    _ignore_ = ("_members", "_mfu", "_operation")

    V_RD = 1  #: Source: a vector, word by word.
    M_RD = 2  #: Source: a native tile.
    MV_MUL = 3  #: Matrix-vector product.
    V_WR = 20  #: Write the value and pass it on.
    M_WR = 21  #: Write a native tile.
    END_CHAIN = 22  #: The chain is complete: check it, run it.
    S_WR = 23  #: Write a scalar register.
    LOOP = 24  #: Repeat the chains up to `end_loop`.
    END_LOOP = 25  #: End of the innermost loop's body.
    END = 26  #: End of the program.

    # The operations of MFU 0, VV_ADD0 and so on, then those of MFU 1.
    _members = vars()
    for _mfu, _operation in product(range(MFUS), Operation):
        _members[f"{_operation.name}{_mfu}"] = _operation.opcodes[_mfu]


class Reg(IntEnum):
    """Scalar register of `s_wr`."""

    ROWS = 1  #: Elements of the result; reset: N.
    COLUMNS = 2  #: Native vectors of the operand; reset: 1.
    ITERATIONS = 3  #: Repetitions of a chain; reset: 1.
    ITERATIONS_X = 4  #: Iterations along x; reset: 1.
    OUT_SCALE = 5  #: p of an integer-mode result, -32 to 31, two's complement in 16 bits; reset: 0.
    STRIDE_X = 6  #: Words between iterations along x; reset: 0.
    STRIDE_Y = 7  #: Words between iterations along y; reset: 0.
    STRIDE_OUT = 8  #: Words between iterations of operands and results; reset: N/M.


#: Names of registers in program text.
REGISTER_NAMES = {
    Reg.ROWS: "Rows", Reg.COLUMNS: "Columns", Reg.ITERATIONS: "Iterations", Reg.ITERATIONS_X: "IterationsX",
    Reg.OUT_SCALE: "OutScale", Reg.STRIDE_X: "StrideX", Reg.STRIDE_Y: "StrideY", Reg.STRIDE_OUT: "StrideOut",
}


class Error(IntEnum):
    """Why a program stopped."""

    NONE = 0  #: No error.
    ILLEGAL = 1  #: Unknown opcode, an operand that the opcode does not take, or operations out of order.
    ALIGN = 2  #: The source of a product is not at a multiple of N/M.
    RANGE = 3  #: A word of some iteration lies outside its memory, or there is no such memory.
    SIZE = 4  #: Rows, Columns or Iterations is zero, or beyond accumulator_rows or operand_columns.
    QUEUE = 5  #: MvmQ holds too few words or has no room, or a product that is no push finds words in it.
    FORMAT = 6  #: Product and tile are of different modes, or `unsigned` or `bias` stands without `integer`.
    WINDOW = 7  #: IterationsX does not divide Iterations.
    LOOP = 8  #: Nested too deep, repeated zero times, or `loop` and `end_loop` do not pair.
    END = 9  #: The program runs off the instruction buffer.
    MESSAGE = 10  #: A message is damaged, malformed, or for another machine.


@dataclass(frozen=True, slots=True)
class Field:
    """Bits [lo, lo + width) of an instruction."""

    lo: int
    width: int

    def get(self, word: int) -> int:
        """This field of `word`."""
        return word >> self.lo & (1 << self.width) - 1

    def put(self, value: int) -> int:
        """`value` at this field's place.

        Raises:
            ValueError: it does not fit.
        """
        if not 0 <= value < 1 << self.width:
            raise ValueError(f"{value} does not fit in {self.width} bits")
        return value << self.lo


#: The instruction word. Bits that an opcode does not use are zero, else it is ILLEGAL.
FIELDS = {
    "op": Field(0, 8),
    "inc": Field(8, 1),
    "integer": Field(9, 1),
    "bias": Field(10, 1),
    "unsigned": Field(11, 1),
    "mem": Field(16, 8),
    "a": Field(32, 16),
    "b": Field(48, 16),
}

ADDRESS_BITS = FIELDS["a"].width  #: Bits of the address of a word, a tile or an instruction.
END_BITS = ADDRESS_BITS + 1  #: Bits of an address that may also lie one past the last, and of a number of words.
REGISTER_BITS = FIELDS["a"].width  #: Bits of a scalar register, and of the count of a loop.


class Kind(Enum):
    """Shape of an instruction's operands: the fields that it takes."""

    NONE = ""  #: Opcode alone.
    VECTOR = "mem a inc"  #: A vector memory; a queue takes neither address nor `inc`.
    MATRIX_SOURCE = "mem"
    MATRIX_TARGET = "mem a integer"
    PRODUCT = "a b integer bias unsigned"  #: Tile, BiasRf word, modes.
    OPERAND = "a inc"  #: Address in the stage's own memory.
    REGISTER = "mem a"  #: Register code in `mem`, value in `a`.
    COUNT = "a"


@dataclass(frozen=True, slots=True)
class Spec:
    """What an opcode takes, and for point-wise operations what they are.

    Attributes:
        kind:      Shape of its operands.
        mems:      Memories that it takes.
        operation: The point-wise operation, None for other instructions.
        mfu:       Number of the MFU that computes it.
        operand:   Memory of the second operand, None where there is none.
    """

    kind: Kind
    mems: tuple[Mem, ...] = ()
    operation: Operation | None = None
    mfu: int = 0
    operand: Mem | None = None

    @property
    def fields(self) -> tuple[str, ...]:
        """Fields that may be other than zero."""
        return tuple(self.kind.value.split())

    @property
    def stage(self) -> Stage | None:
        """Stage of the operation within its MFU."""
        return None if self.operation is None else self.operation.stage

    @property
    def position(self) -> int:
        """Stages of a chain that stand before this operation: the order in which a chain may have operations."""
        return self.mfu * len(Stage) + self.stage

    @property
    def place(self) -> str:
        """Name of the operation's stage in its MFU, as the counters have it: ADD0 to MUL1."""
        return f"{self.stage.name}{self.mfu}"


def opcode(operation: Operation, mfu: int) -> Op:
    """Opcode of a point-wise operation in one MFU."""
    return Op(operation.opcodes[mfu])


def _pointwise(operation: Operation, mfu: int) -> Spec:
    if not operation.operand:
        return Spec(Kind.NONE, operation=operation, mfu=mfu)
    return Spec(Kind.OPERAND, operation=operation, mfu=mfu, operand=OPERAND_MEMORIES[operation.stage][mfu])


SPECS = {
    Op.V_RD: Spec(Kind.VECTOR, mems=VRFS + QUEUES),
    Op.M_RD: Spec(Kind.MATRIX_SOURCE, mems=(Mem.NET_Q,)),
    Op.MV_MUL: Spec(Kind.PRODUCT),
    **{opcode(operation, mfu): _pointwise(operation, mfu) for mfu, operation in product(range(MFUS), Operation)},
    Op.V_WR: Spec(Kind.VECTOR, mems=VRFS + QUEUES),
    Op.M_WR: Spec(Kind.MATRIX_TARGET, mems=(Mem.MATRIX_RF,)),
    Op.END_CHAIN: Spec(Kind.NONE),
    Op.S_WR: Spec(Kind.REGISTER),
    Op.LOOP: Spec(Kind.COUNT),
    Op.END_LOOP: Spec(Kind.NONE),
    Op.END: Spec(Kind.NONE),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Instruction:
    """One decoded instruction; a field that the opcode does not take stays zero."""

    op: Op
    mem: int = 0
    a: int = 0
    b: int = 0
    inc: int = 0
    integer: int = 0
    bias: int = 0
    unsigned: int = 0


def encode(instruction: Instruction) -> int:
    """The 64-bit word of an instruction.

    Raises:
        ValueError: a field does not fit, or the opcode does not take it.
    """
    taken = ("op", *SPECS[instruction.op].fields)
    word = 0
    for name, field in FIELDS.items():
        value = int(getattr(instruction, name))
        if value and name not in taken:
            raise ValueError(f"{instruction.op.name.lower()} does not take {name}")
        word |= field.put(value)
    return word


def decode(word: int) -> Instruction | None:
    """The instruction of a 64-bit word, or None where opcode or operands are ILLEGAL whatever the configuration."""
    fields = {name: field.get(word) for name, field in FIELDS.items()}
    if fields["op"] not in SPECS or sum(FIELDS[k].put(v) for k, v in fields.items()) != word:
        return None
    taken = ("op", *SPECS[Op(fields["op"])].fields)
    if any(value for name, value in fields.items() if name not in taken):
        return None
    return Instruction(**(fields | {"op": Op(fields["op"])}))


def out_scale(value: int) -> int:
    """OutScale from its register's bits, two's complement."""
    return value - (value >> REGISTER_BITS - 1 << REGISTER_BITS)
