"""An accelerator: cores under a command processor, which share one memory."""

import hashlib
from dataclasses import dataclass
from functools import cached_property

from concord.spec.machine.config import Config
from concord.spec.trainer.config import LANES, TrainerConfig

MOST_CORES = 15  #: Most cores: each has a window of registers, and the command processor has one.
ALIGNED = 64  #: Addresses of commands, but that of a SIGNAL, are multiples of this many bytes.
MASKED = 8  #: Cores that train have numbers below this one, as the masks of their instructions name them.
PAGE = 4096  #: Dram of a core begins at a multiple of this many bytes.
SMALLEST = 1 << 12  #: Fewest bytes of memory.
LARGEST = 1 << 32  #: Most bytes of memory: addresses on its bus have 32 bits.
QUEUE = 4  #: Commands that a core holds besides the one under way.

Core = Config | TrainerConfig  #: A neural network processor, or a core that trains.


@dataclass(frozen=True, kw_only=True)
class Accelerator:
    """Cores, the memory that they share, and its port.

    Attributes:
        cores:        Machine, or trainer, of each core, 1 to `MOST_CORES`.
        memory_bytes: Bytes of the memory, a multiple of `PAGE`.
        bus:          Bytes of the data bus of its port: 4, 8, 16, 32 or 64. It is the `dram_bus` of cores with Dram,
            a multiple of the `message_bytes` of machines, and 16 where a core trains.

    Raises:
        ValueError: a sentence that names the attribute.
    """

    cores: tuple[Core, ...]
    memory_bytes: int
    bus: int = 16

    def __post_init__(self):
        if not 1 <= len(self.cores) <= MOST_CORES:
            raise ValueError(f"an accelerator has 1 to {MOST_CORES} cores, this one has {len(self.cores)}")
        if self.bus not in (4, 8, 16, 32, 64):
            raise ValueError(f"bus = {self.bus} must be 4, 8, 16, 32 or 64 bytes")
        if self.memory_bytes % PAGE or not SMALLEST <= self.memory_bytes <= LARGEST:
            raise ValueError(f"memory_bytes = {self.memory_bytes} must be a multiple of {PAGE} in "
                             f"{SMALLEST}..{LARGEST}")
        for number, core in enumerate(self.cores):
            if isinstance(core, TrainerConfig):
                if number >= MASKED:
                    raise ValueError(f"core {number} trains, and masks of such cores have {MASKED} bits: put it among "
                                     f"the first {MASKED}")
                if self.bus != LANES:
                    raise ValueError(f"core {number} trains on words of {LANES} bytes, and the memory has bus = "
                                     f"{self.bus}: make it {LANES}")
            else:
                self._check_machine(number, core)

    def _check_machine(self, number: int, core: Config):
        if core.dram_words and core.dram_bus != self.bus:
            raise ValueError(f"core {number} has dram_bus = {core.dram_bus}, and the memory has bus = {self.bus}: "
                             "make them equal")
        if self.bus % core.message_bytes:
            raise ValueError(f"message_bytes = {core.message_bytes} of core {number} must divide bus = {self.bus}")
        if dram_bytes(core) > self.memory_bytes:
            raise ValueError(f"core {number} has {dram_bytes(core):,} bytes of Dram, and the memory has "
                             f"{self.memory_bytes:,}: make memory_bytes larger, or dram_words smaller")

    @cached_property
    def digest(self) -> int:
        """32 bits that depend on everything that commands depend on."""
        text = f"{self.memory_bytes} {self.bus} {' '.join(f'{core.digest:08x}' for core in self.cores)}"
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "little")


def dram_bytes(core: Config) -> int:
    """Bytes of a machine's Dram."""
    return 2 * core.mfu_lanes * core.dram_words


def dram_pages(core: Core) -> int:
    """Bytes of a core's Dram in whole pages; 0 for a core that trains, whose memory the host chooses."""
    return 0 if isinstance(core, TrainerConfig) else pages(dram_bytes(core))


def pages(count: int) -> int:
    """A number of bytes, rounded up to whole pages."""
    return count + -count % PAGE


def reaches_memory(core: Core) -> bool:
    """Whether a core has a port to the memory of its own."""
    return isinstance(core, TrainerConfig) or bool(core.dram_words)
