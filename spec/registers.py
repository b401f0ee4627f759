"""The control port: 32-bit registers at byte addresses, over AXI4-Lite or a serial link."""

from enum import IntEnum, IntFlag, unique

from concord.spec.memories import Mem


class Register(IntEnum):
    """Byte address. Writing a read-only register changes nothing."""

    CONTROL = 0x00  #: Write: bits of `Control`. Reads 0.
    STATUS = 0x04  #: Bits of `Status`.
    ERROR = 0x08  #: Code of `spec.isa.Error`; stays until reset or start.
    ERROR_ADDRESS = 0x0C  #: Instruction at which the program stopped.
    DIGEST = 0x10  #: Configuration digest.
    NATIVE_DIM = 0x14  #: N.
    LANES = 0x18  #: Products per row, tile engine and cycle.
    TILE_ENGINES = 0x1C  #: Tile engines.
    MFU_LANES = 0x20  #: M.
    MATRIX_TILES = 0x24  #: Native tiles of MatrixRf.
    INSTRUCTIONS = 0x28  #: Instructions of the instruction buffer.
    COUNTER_COUNT = 0x2C  #: Counters at COUNTERS and above.
    COUNTERS = 0x100  #: First counter; counter k lies at COUNTERS + 4*k, in the order of `Counter`.

    @property
    def access(self) -> str:
        """What the host may do: "write" or "read"."""
        return "write" if self is Register.CONTROL else "read"


class Control(IntFlag):
    """Commands, each done once by writing 1."""

    START = 1  #: Run the program from instruction 0.
    RESET = 2  #: Reset everything but memories and this port.
    CLEAR = 4  #: Clear the counters.


class Status(IntFlag):
    """State of the machine."""

    RUNNING = 1  #: A program runs.
    DONE = 2  #: A program has ended, with or without an error, since the last start or reset.
    WAIT_INPUT = 4  #: A chain waits for a word of NetQ.
    WAIT_OUTPUT = 8  #: A chain waits for space in NetQ.
    INVALID_VECTOR = 16  #: The vector quantiser has met a NaN or an infinity; sticky until reset.
    INVALID_MATRIX = 32  #: The matrix quantiser has; sticky until reset.


@unique
class Counter(IntEnum):
    """Counters, 32 bits, saturating: events, equal in golden and hardware, and `TIMES`.

    Attributes:
        meaning: What the counter of a memory counts; empty where the comment beside a counter says it.
    """

    _ignore_ = ("_members", "_memory")

    INSTRUCTIONS = 0  #: Instructions executed.
    CHAINS = 1  #: Chains executed.
    # The counters of each memory: READ_INITIAL_VRF and so on, then WRITE_INITIAL_VRF and so on.
    _members = vars()
    for _memory in Mem:
        if _memory.counters:
            _members[f"READ_{_memory.name}"] = (
                _memory.counters[0], f"Words of {_memory.title} read by programs, one for each source or operand word.")
    for _memory in Mem:
        if _memory.counters:
            _members[f"WRITE_{_memory.name}"] = (
                _memory.counters[1], f"Words of {_memory.title} written by programs.")
    ADD0 = 16  #: Words through a stage that was not bypassed.
    ACT0 = 17
    MUL0 = 18
    ADD1 = 19
    ACT1 = 20
    MUL1 = 21
    BEATS = 22  #: Lane groups multiplied, each by one tile engine.
    TILES = 23  #: Native tiles multiplied, zero tiles too.
    VECTORS = 24  #: Native vectors quantised.
    ROWS_LOADED = 25  #: Rows of native tiles quantised by `m_rd`.
    OVERFLOW_PARTIAL = 26  #: Overflow events; 0 where the configuration does not count.
    OVERFLOW_PRODUCT = 27
    OVERFLOW_OUTPUT = 28
    EXCESS_PARTIAL = 29  #: Largest excess of such an event, in bits beyond the range.
    EXCESS_PRODUCT = 30
    EXCESS_OUTPUT = 31
    LAZY_STEPS = 32  #: Lazy updates that stand: mantissas that moved.
    LAZY_CHANGES = 33  #: Exponents of blocks that changed.
    LAZY_ROUNDED = 34  #: Values that a change of exponent rounded.
    LAZY_SATURATIONS = 35  #: Elements whose update or mantissa was limited.
    CYCLES = 36  #: Clock cycles from the first instruction decoded to done.
    FETCH_BUSY = 37  #: Operand fetch moves a word.
    FETCH_WAIT = 38  #: Operand fetch has a chain and waits for a word or an older write.
    MVM_BUSY = 39  #: Tile engines multiply.
    MVM_WAIT_OPERAND = 40  #: They have a product and wait for a native vector or a tile.
    MVM_WAIT_OUTPUT = 41  #: They have a product and wait for room behind them.
    MFU_BUSY = 42  #: The multi-function units take a word.
    MFU_WAIT_OPERAND = 43  #: They have a chain and wait for a word or an older write.
    MFU_WAIT_OUTPUT = 44  #: They have a chain and wait for room in NetQ.
    COPY_BUSY = 45  #: The copy pipeline moves a word.
    COPY_WAIT = 46  #: It has a chain and waits.

    def __new__(cls, number: int, meaning: str = ""):
        member = int.__new__(cls, number)
        member._value_, member.meaning = number, meaning
        return member


#: Counters of words that programs read from a memory, and of words that they write to it.
READS, WRITES = ({mem: Counter(mem.counters[k]) for mem in Mem if mem.counters} for k in range(2))
#: Counters of clock cycles, which only hardware has.
TIMES = tuple(Counter(k) for k in range(Counter.CYCLES, Counter.COPY_WAIT + 1))
EVENTS = tuple(counter for counter in sorted(Counter) if counter not in TIMES)  #: Equal in golden and hardware.
