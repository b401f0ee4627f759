"""The control port: 32-bit registers at byte addresses, over AXI4-Lite or a serial link."""

from enum import IntEnum, IntFlag, unique

from concord.spec.isa.memories import Mem, MemoryKind, present

ADDRESSES = 0xFFC  #: Bits of a register's address that the control port looks at.


class Register(IntEnum):
    """Byte address. Writing a read-only register changes nothing."""

    CONTROL = 0x00  #: Takes the bits of `Control` when written; reads as 0.
    STATUS = 0x04  #: Holds the bits of `Status`.
    ERROR = 0x08  #: Holds a code of `spec.isa.instructions.Error` until reset or start.
    ERROR_ADDRESS = 0x0C  #: Address of the instruction at which the program stopped.
    DIGEST = 0x10  #: Digest of the configuration.
    NATIVE_DIM = 0x14  #: Native dimension N.
    LANES = 0x18  #: Number of products per row, tile engine and cycle.
    TILE_ENGINES = 0x1C  #: Number of tile engines.
    MFU_LANES = 0x20  #: Number of MFU lanes M.
    MATRIX_TILES = 0x24  #: Number of native tiles of MatrixRf.
    INSTRUCTIONS = 0x28  #: Number of instructions that the instruction buffer holds.
    COUNTER_COUNT = 0x2C  #: Number of counters.
    PEER = 0x30  #: Digest of the machine that takes the results, as INPUT messages; 0: the host, as OUTPUT messages.
    DRAM_BASE = 0x34  #: Byte address of word 0 of Dram, on machines with it; its low 12 bits do not count.
    COUNTERS = 0x100  #: First counter; counter k has the address COUNTERS + 4*k, in the order of `Counter`.

    @property
    def access(self) -> str:
        """What the host may do: "write", "read" or "read, write"."""
        return _ACCESS.get(self, "read")


_ACCESS = {Register.CONTROL: "write", Register.PEER: "read, write", Register.DRAM_BASE: "read, write"}


class Control(IntFlag):
    """Commands; writing a 1 runs the command once."""

    START = 1  #: Runs the program from instruction 0; beside RESET it does nothing.
    RESET = 2  #: Resets everything except memories and this port.
    CLEAR = 4  #: Clears the counters.


class Status(IntFlag):
    """State of the machine."""

    RUNNING = 1  #: A program is running.
    DONE = 2  #: A program has ended, with or without an error, since the last start or reset.
    WAIT_INPUT = 4  #: A chain waits for a word of NetQ.
    WAIT_OUTPUT = 8  #: A chain waits for space in NetQ.
    INVALID_VECTOR = 16  #: The vector quantiser has met a NaN or an infinity; sticky until reset.
    INVALID_MATRIX = 32  #: The matrix quantiser has met a NaN or an infinity; sticky until reset.
    DRAM_BUSY = 64  #: Accesses to Dram are under way, or words on their way there. A start waits; a reset drops words.


_WORDS = "Number of words that programs read from {}, as source or operand."
_OF_WORDS = (MemoryKind.VECTOR, MemoryKind.QUEUE, MemoryKind.OUTSIDE)
#: Meanings of the counters of memories.
_READ = {
    **dict.fromkeys(_OF_WORDS, _WORDS),
    MemoryKind.ENTRIES: "Number of entries that products read from {}, plus number of words that other chains read.",
}
_WRITTEN = dict.fromkeys(_OF_WORDS, "Number of words that programs wrote to {}.")
_WRITTEN[MemoryKind.ENTRIES] = "Number of entries that programs wrote to {}."


class Time(int):
    """Number of a counter of clock cycles, which only hardware has."""


@unique
class Counter(IntEnum):
    """Saturating counters of 32 bits: events, which are equal in golden and hardware, and times.

    Attributes:
        meaning: Meaning of the counter of a memory; empty for counters that a comment describes.
        time:    Whether it counts clock cycles.
    """

    _ignore_ = ["_memory"]
    meaning: str
    time: bool

    INSTRUCTIONS = 0  #: Number of instructions executed.
    CHAINS = 1  #: Number of chains executed.
    # The counters of each memory: READ_INITIAL_VRF and so on, then WRITE_INITIAL_VRF and so on.
    for _memory in Mem:
        if _memory.counters:
            vars()[f"READ_{_memory.name}"] = _memory.counters[0], _READ[_memory.kind].format(_memory.title)
    for _memory in Mem:
        if _memory.counters:
            vars()[f"WRITE_{_memory.name}"] = _memory.counters[1], _WRITTEN[_memory.kind].format(_memory.title)
    ADD0 = 16  #: Number of words that this stage processed; bypassed words do not count.
    ACT0 = 17
    MUL0 = 18
    ADD1 = 19
    ACT1 = 20
    MUL1 = 21
    BEATS = 22  #: Number of lane groups multiplied, by each tile engine.
    TILES = 23  #: Number of native tiles multiplied, including zero tiles.
    VECTORS = 24  #: Number of native vectors quantised.
    ROWS_LOADED = 25  #: Number of rows of native tiles that `m_rd` quantised.
    OVERFLOW_PARTIAL = 26  #: Number of overflow events; 0 if the configuration does not count them.
    OVERFLOW_PRODUCT = 27
    OVERFLOW_OUTPUT = 28
    EXCESS_PARTIAL = 29  #: Largest number of bits by which such an event exceeded its range.
    EXCESS_PRODUCT = 30
    EXCESS_OUTPUT = 31
    LAZY_STEPS = 32  #: Number of mantissas that final lazy updates changed.
    LAZY_CHANGES = 33  #: Number of exponents of training tensors that changed.
    LAZY_ROUNDED = 34  #: Number of values that a change of exponent rounded.
    LAZY_SATURATIONS = 35  #: Number of elements whose update or mantissa saturated.
    CYCLES = Time(36)  #: Clock cycles from the first decoded instruction to the end of the program.
    FETCH_BUSY = Time(37)  #: Cycles in which operand fetch moves a word.
    FETCH_WAIT = Time(38)  #: Cycles in which operand fetch has a chain and waits for a word or an older write.
    MVM_BUSY = Time(39)  #: Cycles in which the tile engines multiply.
    MVM_WAIT_OPERAND = Time(40)  #: Cycles in which the tile engines have a product and wait for a vector or a tile.
    MVM_WAIT_OUTPUT = Time(41)  #: Cycles in which the tile engines have a product and wait for space for its results.
    MFU_BUSY = Time(42)  #: Cycles in which the multi-function units take a word.
    MFU_WAIT_OPERAND = Time(43)  #: Cycles in which these units have a chain and wait for a word or an older write.
    MFU_WAIT_OUTPUT = Time(44)  #: Cycles in which these units have a chain and wait for space in NetQ.
    COPY_BUSY = Time(45)  #: Cycles in which the copy pipeline moves a word.
    COPY_WAIT = Time(46)  #: Cycles in which the copy pipeline has a chain and waits.
    POOL = 49  #: Number of words that the pooling unit made.
    MVM_CONFLICT = Time(50)  #: Additional cycles of products whose columns share a bank of VectorRf.
    GATHER_BUSY = Time(51)  #: Cycles in which the gather unit reads a word.
    GATHER_WAIT = Time(52)  #: Cycles in which the gather unit has a chain and waits for an older write, bank or space.

    def __new__(cls, number: int, meaning: str = ""):
        member = int.__new__(cls, number)
        member._value_, member.meaning, member.time = int(number), meaning, isinstance(number, Time)
        return member




def counters(config) -> tuple[Counter, ...]:
    """The counters of a machine: all but those of memories that it lacks."""
    absent = {number for mem in set(Mem) - set(present(config)) for number in mem.counters or ()}
    return tuple(counter for counter in Counter if counter not in absent)


#: Counters of words that programs read from a memory, and of words that they write to it.
READS, WRITES = ({mem: Counter(mem.counters[k]) for mem in Mem if mem.counters} for k in range(2))
#: Counters of clock cycles, which only hardware has, and of events, which are equal in golden and hardware.
TIMES, EVENTS = (tuple(counter for counter in sorted(Counter) if counter.time is time) for time in (True, False))
