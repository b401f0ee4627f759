"""The memories of the machine, in one table that all rooms read.

A new vector memory is one row here and one attribute of `spec.machine.config.Config`, which says how many words it has.
Instructions, assembler, checker, golden memory, wires, hardware, messages, counters, random programs, firmware and
pages follow from the row.
"""

from enum import Enum, IntEnum, StrEnum, unique
from functools import lru_cache

from concord.spec.isa.operations import MFUS, Stage


class Content(StrEnum):
    """What one address of a memory holds."""

    WORDS = "words"  #: M numbers.
    ENTRIES = "entries"  #: A quantised native vector.
    TILES = "tiles"  #: A native tile.


class MemoryKind(Enum):
    """Kind of access to a memory.

    Attributes:
        holds:     What one address holds.
        addressed: Whether `v_rd` and `v_wr` name an address.
        filled:    Whether firmware has an image of it, which messages bring.
        on_chip:   Whether it is a memory of the chip.
    """

    MATRIX = Content.TILES, False, True  #: Only `m_wr` and messages write to it; products read it.
    BIAS = Content.WORDS, False, True  #: It holds integers, which only messages write; products read them.
    VECTOR = Content.WORDS, True, True  #: `v_rd`, `v_wr` and messages access any address.
    ENTRIES = Content.ENTRIES, True, True  #: `v_rd`, `v_wr`, products and messages access any entry.
    QUEUE = Content.WORDS, False, False  #: Words lie in order of arrival; `v_rd` takes the oldest, `v_wr` adds one.
    OUTSIDE = Content.WORDS, True, True, False  #: `v_rd`, `v_wr`, `m_rd` and messages access any address.

    def __init__(self, holds: Content, addressed: bool, filled: bool, on_chip: bool = True):
        self.holds, self.addressed, self.filled, self.on_chip = holds, addressed, filled, on_chip


@unique
class Mem(IntEnum):
    """A memory; its value is its code in instructions and messages.

    Attributes:
        title:    Name of the memory in program text.
        kind:     Kind of access.
        size:     Attribute of `spec.machine.config.Config` that holds its depth.
        counters: Numbers of the counters of words read and of words written, or None where nothing is counted. Numbers
                  never change: a new memory takes two numbers after the last of `spec.host.registers.Counter`.
        feeds:    Stage and number of the MFU that reads its second operand from this memory, or None.
        meaning:  Content of the memory, for the instruction page.
    """

    INITIAL_VRF = 1, "InitialVrf", MemoryKind.VECTOR, "initial_vrf", (2, 9), None, "VRF of any vectors"
    ADDSUB_VRF0 = 2, "AddSubVrf0", MemoryKind.VECTOR, "addsub_vrf", (3, 10), (Stage.ADD, 0), "VRF of stage ADD of MFU 0"
    ADDSUB_VRF1 = 3, "AddSubVrf1", MemoryKind.VECTOR, "addsub_vrf", (4, 11), (Stage.ADD, 1), "VRF of stage ADD of MFU 1"
    MULTIPLY_VRF0 = (
        4, "MultiplyVrf0", MemoryKind.VECTOR, "multiply_vrf", (5, 12), (Stage.MUL, 0), "VRF of stage MUL of MFU 0")
    MULTIPLY_VRF1 = (
        5, "MultiplyVrf1", MemoryKind.VECTOR, "multiply_vrf", (6, 13), (Stage.MUL, 1), "VRF of stage MUL of MFU 1")
    NET_Q = 6, "NetQ", MemoryKind.QUEUE, "net_in", (7, 14), None, "queue of words from the host, and to it"
    MVM_Q = 7, "MvmQ", MemoryKind.QUEUE, "mvmq_words", (8, 15), None, "queue from the product's converters to MFU 0"
    MATRIX_RF = 8, "MatrixRf", MemoryKind.MATRIX, "matrix_tiles", None, None, "native tiles of N x N mantissas"
    BIAS_RF = 9, "BiasRf", MemoryKind.BIAS, "bias_words", None, None, "words of M integers, added to products"
    VECTOR_RF = (
        10, "VectorRf", MemoryKind.ENTRIES, "vector_rf", (47, 48), None,
        "entries of N mantissas and one exponent, the operands of products")
    DRAM = (
        11, "Dram", MemoryKind.OUTSIDE, "dram_words", (53, 54), None,
        "memory outside the chip: words, and in them packed tiles, entries and integers")

    def __new__(cls, code: int, *_):
        member = int.__new__(cls, code)
        member._value_ = code
        return member

    def __init__(self, _code: int, title: str, kind: MemoryKind, size: str, counters: tuple[int, int] | None,
                 feeds: tuple[Stage, int] | None, meaning: str):
        self.title, self.kind, self.size, self.meaning = title, kind, size, meaning
        self.counters, self.feeds = counters, feeds


#: Names of memories in program text.
MEMORY_NAMES = {mem: mem.title for mem in Mem}

#: The random-access vector memories and the queues, in the order of the table.
VRFS, QUEUES = (tuple(mem for mem in Mem if mem.kind is kind) for kind in (MemoryKind.VECTOR, MemoryKind.QUEUE))

#: The memories of the chip.
ON_CHIP = tuple(mem for mem in Mem if mem.kind.on_chip)

#: The memories that have addresses in `v_rd` and `v_wr`.
ADDRESSED = tuple(mem for mem in Mem if mem.kind.addressed)

#: The memories that hold entries.
ENTRY_MEMORIES = frozenset(mem for mem in Mem if mem.kind.holds is Content.ENTRIES)

#: The memories of the chip that firmware fills, kind by kind.
FILLED = tuple(mem for kind in MemoryKind for mem in ON_CHIP if mem.kind is kind and kind.filled)

#: Memory of the second operand of each stage that has one, for each MFU.
OPERAND_MEMORIES = {
    stage: tuple(mem for mfu in range(MFUS) for mem in Mem if mem.feeds == (stage, mfu))
    for stage in Stage if any(mem.feeds and mem.feeds[0] is stage for mem in Mem)}

#: The memories that feed a stage, stage by stage, for MFU 0, MFU 1 and so on.
STAGE_MEMORIES = tuple(mem for mems in OPERAND_MEMORIES.values() for mem in mems)


@lru_cache
def present(config) -> tuple[Mem, ...]:
    """The memories that a machine has; those of its instructions, wires, messages and counters are no others.

    A memory is optional if its size is an optional attribute of `spec.machine.config.Config`. Vector memories, queues
    and VectorRf are in every machine, VectorRf even with a depth of 0.
    """
    return tuple(mem for mem in Mem if not config.lacks(mem.size))


def addressed(config) -> tuple[Mem, ...]:
    """The memories of a machine that have addresses in `v_rd` and `v_wr`."""
    return tuple(mem for mem in present(config) if mem.kind.addressed)


def depth(config, mem: int) -> int:
    """Number of words of a vector memory, a queue or BiasRf, of tiles of MatrixRf, or of entries of VectorRf.

    Args:
        config: The machine.
        mem:    Memory, or its bare code.
    """
    return getattr(config, Mem(mem).size)
