"""Allocation of memories: a named place for each vector, matrix and bias, and reports of memories too small."""

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
from concord.compiler.lib.limits import Reason
from concord.golden.lib.float16 import to_real
from concord.spec.isa.memories import FILLED, MEMORY_NAMES, VRFS, Mem, depth
from concord.spec.machine.config import Config


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Some words of a vector memory, or a queue.

    Attributes:
        mem:     Memory or queue.
        address: Address of the first word; 0 in a queue.
        words:   Number of words.
    """

    mem: Mem
    address: int = 0
    words: int = 0

    def at(self, word: int) -> "Place":
        """The place without its first `word` words; for a queue, the same place."""
        return (
            self
            if self.mem in (Mem.NET_Q, Mem.MVM_Q)
            else Place(mem=self.mem, address=self.address + word, words=self.words - word)
        )


NET = Place(mem=Mem.NET_Q)
MVM = Place(mem=Mem.MVM_Q)


class Allocator:
    """Allocates places from address 0 upwards. Nothing is allocated twice, so that padding that is zero stays zero.

    Allocation continues beyond the end of a memory; `shortages` then tells by how much.

    Args:
        config: The machine.
        real:   Whether constants are kept as real numbers.
    """

    def __init__(self, config: Config, *, real: bool = False):
        self._config, self._real = config, real
        self._next: dict[Mem, int] = defaultdict(int)
        self._names: dict[Mem, list[tuple[str, int]]] = defaultdict(list)
        self._constants: dict[Mem, list[tuple[int, np.ndarray]]] = defaultdict(list)

    def take(self, mem: Mem, count: int, name: str, align: int = 1) -> int:
        """Allocate `count` words or tiles of `mem`, and return their address, a multiple of `align`."""
        address = -(-self._next[mem] // align) * align
        self._next[mem] = address + count
        self._names[mem].append((name, count))
        return address

    def vector(self, mem: Mem, elements: int, name: str) -> Place:
        """Allocate a vector for `mv_mul`: whole, aligned native vectors, in which unwritten elements stay +0."""
        words = self._config.vectors_of(elements) * self._config.vector_words
        return Place(mem=mem, address=self.take(mem, words, name, self._config.vector_words), words=words)

    def constant(self, mem: Mem, values: np.ndarray, name: str) -> Place:
        """Allocate constants uint16[elements], padded with +0 to whole words; the firmware contains them.

        In full precision they may be float64[elements] as well.
        """
        lanes, values = self._config.mfu_lanes, self.numbers(values)
        padded = np.zeros((self._config.words_of(values.size), lanes), values.dtype)
        padded.reshape(-1)[: values.size] = values.reshape(-1)
        place = Place(mem=mem, address=self.take(mem, len(padded), name), words=len(padded))
        self._constants[mem].append((place.address, padded))
        return place

    def numbers(self, values: np.ndarray) -> np.ndarray:
        """Constants as they are kept: binary16 patterns uint16[...], or in full precision float64[...]."""
        return to_real(values) if self._real and values.dtype == np.uint16 else values

    def used(self, mem: Mem) -> int:
        """Number of words or tiles allocated so far."""
        return self._next[mem]

    def images(self) -> dict[Mem, np.ndarray]:
        """Initial contents of each vector memory in use, the constants and +0 elsewhere.

        Returns:
            uint16[words, M], in full precision float64[words, M].
        """
        result = {}
        for mem in VRFS:
            if self._next[mem]:
                dtype = np.float64 if self._real else np.uint16
                result[mem] = np.zeros((self._next[mem], self._config.mfu_lanes), dtype)
                for address, values in self._constants[mem]:
                    result[mem][address : address + len(values)] = values
        return result

    def shortages(self) -> list[Reason]:
        """A reason for each memory that is too small."""
        found = []
        for mem in FILLED:
            available, used = depth(self._config, mem), self._next[mem]
            if used > available:
                largest, count = max(self._names[mem], key=lambda item: item[1])
                found.append(Reason(
                    sentence=f"{MEMORY_NAMES[mem]} needs {used} {mem.kind.holds} and has {available}, "
                             f"{used - available} too few (the largest part is {largest}, {count})",
                    attribute=mem.size, needed=used, available=available))
        return found
