"""The instruction set: the one definition that assembler, golden machine, decoder and documents read."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum, IntEnum, unique
from itertools import product
from typing import Any

from concord.spec.isa.memories import ADDRESSED, OPERAND_MEMORIES, QUEUES, VRFS, Mem
from concord.spec.isa.operations import MFUS, Operation, Stage, position
from concord.spec.machine.config import Config

WORD = 64  #: Bits of one instruction.
LOOP_DEPTH = 4  #: Largest number of loops inside each other.
WRITES = 3  #: Largest number of `v_wr` in one chain.
STAGES = MFUS * len(Stage)  #: Number of stages that a chain runs through.


@unique
class Op(IntEnum):
    """Opcode. No instruction has opcode 0, so erased memory is an error."""

    _ignore_ = ["_mfu", "_operation"]

    V_RD = 1  #: Source: reads a vector word by word.
    M_RD = 2  #: Source: reads a native tile.
    MV_MUL = 3  #: Multiplies a matrix by the vector that the source reads.
    V_WR = 20  #: Writes the value and passes it on.
    M_WR = 21  #: Writes a native tile.
    END_CHAIN = 22  #: Ends a chain, which is now checked and run.
    S_WR = 23  #: Writes a scalar register.
    LOOP = 24  #: Repeats the chains up to `end_loop`.
    END_LOOP = 25  #: Ends the body of the innermost loop.
    END = 26  #: Ends the program.
    V_POOL_MAX = 27  #: Reduces each window of the source to its largest value.
    S_ADD = 28  #: Adds a signed number to a base register.
    V_SOFTMAX = 29  #: Replaces the elements of each iteration by their softmax, on the way to NetQ.

    # The operations of MFU 0, VV_ADD0 and so on, then those of MFU 1.
    for _mfu, _operation in product(range(MFUS), Operation):
        vars()[f"{_operation.name}{_mfu}"] = _operation.opcodes[_mfu]


class Reg(IntEnum):
    """Scalar register of `s_wr`."""

    ROWS = 1  #: Number of elements of the result; N after reset.
    COLUMNS = 2  #: Number of native vectors of the operand; 1 after reset.
    ITERATIONS = 3  #: Number of iterations of a chain; 1 after reset.
    ITERATIONS_X = 4  #: Number of iterations along x; 1 after reset.
    OUT_SCALE = 5  #: p of an integer-mode result, -32 to 31, two's complement in 16 bits; 0 after reset.
    STRIDE_X = 6  #: Words from the source of one iteration to the next along x; 0 after reset.
    STRIDE_Y = 7  #: Words from the source of one iteration to the next along y; 0 after reset.
    STRIDE_OUT = 8  #: Words from the operands and results of one iteration to the next; N/M after reset.
    WINDOW_VECTORS = 9  #: Entries of one pixel that a window reads; 1 after reset.
    WINDOW_X = 10  #: Pixels of a window along x; 1 after reset.
    WINDOW_Y = 11  #: Pixels of a window along y; 1 after reset.
    WINDOW_STEP = 12  #: Entries, or words of a vector memory, between pixels of a window along x; 1 after reset.
    WINDOW_PITCH = 13  #: Entries, or words of a vector memory, between pixels of a window along y; 0 after reset.
    WINDOW_GROUP = 14  #: Entries from the window of one row tile to that of the next; 0 after reset.
    STRIDE_VEC = 15  #: Entries from the results of one iteration to those of the next in VectorRf; 1 after reset.
    SKIP_VEC = 16  #: Entries added to a write of VectorRf after every IterationsX iterations; 0 after reset.
    BASE1 = 17  #: Words or entries added to the addresses of instructions that name this base; 0 after reset.
    BASE2 = 18  #: Words or entries added to the addresses of instructions that name this base; 0 after reset.
    BASE3 = 19  #: Words or entries added to the addresses of instructions that name this base; 0 after reset.


#: Names of registers in program text.
REGISTER_NAMES = {register: register.name.title().replace("_", "") for register in Reg}

#: The base registers. The field `base` of an instruction is 0, for none, or one more than an index in here.
BASES = (Reg.BASE1, Reg.BASE2, Reg.BASE3)


class Error(IntEnum):
    """Why a program stopped."""

    NONE = 0  #: No error.
    ILLEGAL = 1  #: The opcode is unknown, does not take one of its operands, or stands in the wrong order.
    ALIGN = 2  #: The source of a product does not start at a multiple of N/M words, or a tile's vectors lie askew.
    RANGE = 3  #: No such memory, an address or base register out of range, or a chain that overwrites its source.
    SIZE = 4  #: A number of rows, columns, iterations or pixels is zero, or too large for the product or tile.
    QUEUE = 5  #: MvmQ has too few words or too little space, or holds words when a product does not push.
    FORMAT = 6  #: Product and tile differ in mode, a flag lacks `integer`, or a product from VectorRf is `unsigned`.
    WINDOW = 7  #: IterationsX does not divide Iterations, or the window does not have Columns entries.
    LOOP = 8  #: A loop is nested too deep or repeats zero times, or `loop` and `end_loop` do not pair.
    END = 9  #: The program runs past the end of the instruction buffer.
    MESSAGE = 10  #: A message is damaged, malformed, or made for another machine.
    MEMORY = 11  #: An access to Dram was answered with an error, or with a wrong number of beats.


@dataclass(frozen=True, slots=True)
class Field:
    """Bits [lo, lo + width) of an instruction."""

    lo: int
    width: int

    def get(self, word: int) -> int:
        """This field of `word`."""
        return word >> self.lo & (1 << self.width) - 1

    def put(self, value: int) -> int:
        """`value`, shifted to the position of this field.

        Raises:
            ValueError: `value` does not fit this field.
        """
        if not 0 <= value < 1 << self.width:
            raise ValueError(f"{value} does not fit in {self.width} bits")
        return value << self.lo


#: Fields of the instruction word. Bits that an opcode does not use must be zero; otherwise it is ILLEGAL.
FIELDS = {
    "op": Field(0, 8),
    "inc": Field(8, 1),
    "integer": Field(9, 1),
    "bias": Field(10, 1),
    "unsigned": Field(11, 1),
    "window": Field(12, 1),
    "held": Field(13, 1),
    "base": Field(14, 2),
    "mem": Field(16, 8),
    "raw": Field(24, 1),
    "diagonal": Field(25, 1),
    "transposed": Field(26, 1),
    "a": Field(32, 16),
    "b": Field(48, 16),
}



#: Attribute of the configuration of machines that have a field; all machines have the others.
FIELD_NEEDS = {"held": "more_functions", "raw": "dram_words", "diagonal": "dram_words",
               "transposed": "dram_words"}


def fields_of(config: Config) -> dict[str, Field]:
    """The fields that instructions of a machine have, by name."""
    return {name: field for name, field in FIELDS.items()
            if name not in FIELD_NEEDS or getattr(config, FIELD_NEEDS[name])}


ADDRESS_BITS = FIELDS["a"].width  #: Bits of an address of a word, tile or instruction.
END_BITS = ADDRESS_BITS + 1  #: Bits of an end address, one past the last, and of a number of words.
REGISTER_BITS = FIELDS["a"].width  #: Bits of a scalar register, and of the count of a loop.
LONG_BITS = 2 * REGISTER_BITS  #: Bits of a base register on machines with Dram.


def base_bits(config: Config) -> int:
    """Number of bits of a base register."""
    return LONG_BITS if config.dram_words else REGISTER_BITS


class OperandKind(Enum):
    """Shape of an instruction's operands: the fields that it takes."""

    NONE = ""  #: The opcode takes no field.
    VECTOR = "mem a inc base integer unsigned raw"  #: A queue takes the memory only; VectorRf takes modes, Dram `raw`.
    MATRIX_SOURCE = "mem a inc base"  #: A queue takes the memory only.
    MATRIX_TARGET = "mem a base integer diagonal transposed"
    PRODUCT = "a b base integer bias unsigned window"  #: First tile, first word of BiasRf, modes.
    OPERAND = "a inc base held"  #: Address in the memory of the stage; `held`: its first element is for all elements.
    REGISTER = "mem a b"  #: Register code in `mem`, value in `a`, its high half in `b` for base registers.
    INCREMENT = "a b mem"  #: Code of a base register in `mem`, number in `a` in two's complement, plus `b` * 2**16.
    COUNT = "a"


#: Fields of operands that only machines with Dram have.
_DRAM_FIELDS = {OperandKind.VECTOR: ("raw",), OperandKind.MATRIX_SOURCE: ("a", "inc", "base"),
                OperandKind.MATRIX_TARGET: ("base", "diagonal", "transposed"), OperandKind.PRODUCT: ("base",),
                OperandKind.REGISTER: ("b",), OperandKind.INCREMENT: ("b",)}


@dataclass(frozen=True, slots=True)
class Spec:
    """The operands of an opcode, and its point-wise operation, if it has one.

    Attributes:
        kind:      Shape of the operands.
        mems:      Memories that the opcode can name.
        operation: The point-wise operation, None for other instructions.
        mfu:       Number of the MFU that computes the operation.
        operand:   Memory of the second operand, or None where the operation has none.
        needs:     Attribute of the configuration of machines that have the opcode; empty if all machines have it.
    """

    kind: OperandKind
    mems: tuple[Mem, ...] = ()
    operation: Operation | None = None
    mfu: int = 0
    operand: Mem | None = None
    needs: str = ""

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of the fields that may differ from zero."""
        return tuple(self.kind.value.split())

    def fields_on(self, memories: Collection[Mem]) -> tuple[str, ...]:
        """Names of the fields that may differ from zero on a machine with these memories."""
        missing = () if Mem.DRAM in memories else _DRAM_FIELDS.get(self.kind, ())
        return tuple(name for name in self.fields if name not in missing)

    def mems_on(self, memories: Collection[Mem]) -> tuple[Mem, ...]:
        """Memories that the opcode can name on a machine with these memories.

        Only words of Dram go to BiasRf, and only machines with Dram make tiles of vectors.
        """
        missing = () if Mem.DRAM in memories else (Mem.DRAM, Mem.BIAS_RF)
        if self.kind is OperandKind.MATRIX_SOURCE:
            missing += () if Mem.DRAM in memories else VRFS
        return tuple(mem for mem in self.mems if mem not in missing)

    @property
    def stage(self) -> Stage | None:
        """Stage of the operation within its MFU."""
        return None if self.operation is None else self.operation.stage

    @property
    def position(self) -> int:
        """Number of stages before this operation's stage; the operations of a chain have rising positions."""
        assert self.stage is not None  # it has an operation
        return position(self.stage, self.mfu)

    @property
    def stage_name(self) -> str:
        """Name of the stage and MFU, as the counters call it: ADD0 to MUL1."""
        assert self.stage is not None  # it has an operation
        return f"{self.stage.name}{self.mfu}"


def opcode(operation: Operation, mfu: int) -> Op:
    """Opcode of a point-wise operation in one MFU."""
    return Op(operation.opcodes[mfu])


def _pointwise(operation: Operation, mfu: int) -> Spec:
    if not operation.operand:
        return Spec(OperandKind.NONE, operation=operation, mfu=mfu, needs="more_functions" * operation.more)
    return Spec(OperandKind.OPERAND, operation=operation, mfu=mfu, operand=OPERAND_MEMORIES[operation.stage][mfu])


SPECS = {
    Op.V_RD: Spec(OperandKind.VECTOR, mems=ADDRESSED + QUEUES),
    Op.M_RD: Spec(OperandKind.MATRIX_SOURCE, mems=(Mem.NET_Q, Mem.DRAM, *VRFS)),
    Op.MV_MUL: Spec(OperandKind.PRODUCT),
    **{opcode(operation, mfu): _pointwise(operation, mfu) for mfu, operation in product(range(MFUS), Operation)},
    Op.V_WR: Spec(OperandKind.VECTOR, mems=(*ADDRESSED, *QUEUES, Mem.BIAS_RF)),
    Op.M_WR: Spec(OperandKind.MATRIX_TARGET, mems=(Mem.MATRIX_RF,)),
    Op.END_CHAIN: Spec(OperandKind.NONE),
    Op.S_WR: Spec(OperandKind.REGISTER),
    Op.LOOP: Spec(OperandKind.COUNT),
    Op.END_LOOP: Spec(OperandKind.NONE),
    Op.END: Spec(OperandKind.NONE),
    Op.V_POOL_MAX: Spec(OperandKind.NONE),
    Op.S_ADD: Spec(OperandKind.INCREMENT),
    Op.V_SOFTMAX: Spec(OperandKind.NONE, needs="softmax_words"),
}


def specs(config: Config) -> dict[Op, Spec]:
    """The opcodes that a machine has, in the order of SPECS."""
    return {op: spec for op, spec in SPECS.items() if not spec.needs or getattr(config, spec.needs)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Instruction:
    """One decoded instruction. A field that the opcode does not take is zero."""

    op: Op
    mem: int = 0
    a: int = 0
    b: int = 0
    inc: int = 0
    integer: int = 0
    bias: int = 0
    unsigned: int = 0
    window: int = 0
    held: int = 0
    base: int = 0
    raw: int = 0
    diagonal: int = 0
    transposed: int = 0


def encode(instruction: Instruction) -> int:
    """The 64-bit word of an instruction.

    Raises:
        ValueError: a field does not fit its bits, or the opcode does not take a field.
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
    """The instruction of a 64-bit word, or None where the word is ILLEGAL in every configuration."""
    fields = {name: field.get(word) for name, field in FIELDS.items()}
    if fields["op"] not in SPECS or sum(FIELDS[k].put(v) for k, v in fields.items()) != word:
        return None
    taken = ("op", *SPECS[Op(fields["op"])].fields)
    if any(value for name, value in fields.items() if name not in taken):
        return None
    made: dict[str, Any] = fields | {"op": Op(fields["op"])}
    return Instruction(**made)


def decoded(words: Iterable[int]) -> Iterator[Instruction]:
    """The instructions of a program.

    Raises:
        ValueError: a word is ILLEGAL in every configuration.
    """
    for word in words:
        if (instruction := decode(word)) is None:
            raise ValueError(f"{word:#018x} is the word of no instruction; compile again")
        yield instruction


def out_scale(value: int) -> int:
    """Value of OutScale from the bits of its register, which are two's complement."""
    return _signed(value)


def increment(instruction: Instruction) -> int:
    """Number that an `s_add` adds: 16 bits in two's complement, or 32 bits where `b` is not 0."""
    number = _signed(instruction.a) + (instruction.b << REGISTER_BITS)
    return _signed(number & (1 << LONG_BITS) - 1, LONG_BITS)


def increment_fields(number: int) -> dict[str, int]:
    """Fields of an `s_add` of a number of 32 bits, in two's complement."""
    low = number & (1 << REGISTER_BITS) - 1
    return {"a": low, "b": number - _signed(low) >> REGISTER_BITS & (1 << REGISTER_BITS) - 1}


def register_value(instruction: Instruction) -> int:
    """Number of 16 bits that an `s_wr` writes, or of 32 bits for a base register."""
    return instruction.a + (instruction.b << REGISTER_BITS)


def base_number(instruction: Instruction) -> int:
    """Number of the base register that an `s_wr` or `s_add` names, as in the field `base`."""
    return 1 + BASES.index(Reg(instruction.mem))


def _signed(value, bits=REGISTER_BITS):
    return value - (value >> bits - 1 << bits)
