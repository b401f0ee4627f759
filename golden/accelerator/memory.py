"""The memory that cores share, and the part of it that a core reaches itself."""

from dataclasses import dataclass, field

import numpy as np
from concord.golden.accelerator import ranges
from concord.spec.machine.config import Config
from concord.spec.trainer.config import LANES


@dataclass(slots=True)
class Accesses:
    """Bytes that somebody reads and writes.

    Attributes:
        read:    Sets of addresses, as `ranges` has them.
        written: Sets of addresses.
    """

    read: list[np.ndarray] = field(default_factory=list)
    written: list[np.ndarray] = field(default_factory=list)

    def taken(self) -> tuple[np.ndarray, np.ndarray]:
        """The set that was read and the set that was written since the last call."""
        found = ranges.union(self.read), ranges.union(self.written)
        self.read, self.written = [], []
        return found


def check_range(address: int, count: int, size: int):
    """Refuse bytes that are not in a memory of `size` bytes.

    Raises:
        ValueError: they end beyond the memory.
    """
    if not 0 <= address <= address + count <= size:
        raise ValueError(f"{count:,} bytes at {address:#x} end beyond the memory, which has {size:,}")


class SharedMemory:
    """The bytes of the memory, zeros at first. Pages that nobody writes take no room.

    Args:
        size: Number of bytes.
    """

    def __init__(self, size: int):
        self.bytes = np.zeros(size, np.uint8)

    def read(self, address: int, count: int) -> bytes:
        """`count` bytes from an address up.

        Raises:
            ValueError: they end beyond the memory.
        """
        return self.part(address, count).tobytes()

    def write(self, address: int, data: bytes):
        """Write bytes from an address up, with the errors of `read`."""
        self.part(address, len(data))[:] = np.frombuffer(data, np.uint8)

    def part(self, address: int, count: int) -> np.ndarray:
        """Those bytes of the memory itself, uint8[count], with the errors of `read`."""
        check_range(address, count, len(self.bytes))
        return self.bytes[address:address + count]


class OutsideWords:
    """Words of a core that lie in the shared memory, and a record of those that are used.

    Args:
        words: The words, a part of the memory, [n, numbers of a word].
        base:  Byte address of word 0.
    """

    def __init__(self, words: np.ndarray, base: int):
        self._words, self._base, self._size = words, base, words.shape[1] * words.itemsize
        self.accesses = Accesses()

    def __len__(self) -> int:
        return len(self._words)

    def __getitem__(self, words) -> np.ndarray:
        self.accesses.read.append(self._addresses(words))
        return self._words[words]

    def __setitem__(self, words, values: np.ndarray):
        self.accesses.written.append(self._addresses(words))
        self._words[words] = values

    def _addresses(self, words):
        found = np.array([[words.start, words.stop]]) if isinstance(words, slice) else ranges.runs(words)
        return found * self._size + self._base


def dram_words(config: Config, memory: SharedMemory, base: int) -> OutsideWords:
    """Dram of a machine: words uint16[words, M] from a byte address on, with the errors of `SharedMemory.read`."""
    found = memory.part(base, 2 * config.mfu_lanes * config.dram_words).view("<u2").reshape(-1, config.mfu_lanes)
    return OutsideWords(found, base)


def server_words(memory: SharedMemory, base: int, count: int) -> OutsideWords:
    """Server memory of a trainer: words uint8[count, 16] from a byte address on, with the same errors."""
    return OutsideWords(memory.part(base, LANES * count).reshape(-1, LANES), base)
