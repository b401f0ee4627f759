"""Buffers of images with lifetimes: two that are never in use at the same time may share their words.

Time is the number of a pass. All buffers are placed at once, when every lifetime is known.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from concord.spec.memories import Mem


@dataclass(kw_only=True, slots=True, eq=False)
class Buffer:
    """A range of words of a vector memory, or of entries of VectorRf, during some passes.

    Attributes:
        mem:     Memory.
        name:    What people call it.
        size:    Number of words or entries.
        first:   Number of the first pass that uses it; None before one does.
        last:    Number of the last pass that uses it.
        address: Address of the first word or entry, once it is placed.
    """

    mem: Mem
    name: str
    size: int = 0
    first: int | None = None
    last: int = 0
    address: int = 0

    def use(self, time: int):
        """Extend the lifetime to a pass."""
        self.first = time if self.first is None else min(self.first, time)
        self.last = max(self.last, time)

    def meets(self, other: "Buffer") -> bool:
        """Whether both are in use during some pass."""
        return self.first <= other.last and other.first <= self.last

    @property
    def end(self) -> int:
        """Address behind the last word or entry."""
        return self.address + self.size


def place(buffers: Iterable[Buffer], start: int, placed: list[Buffer]):
    """Give each buffer the lowest address from `start` up that no other one has at the same time; the largest first.

    Args:
        buffers: Buffers of one memory, which are appended to `placed`.
        start:   First address that they may have.
        placed:  Buffers of the memory that have their addresses.
    """
    for buffer in sorted(buffers, key=lambda buffer: (-buffer.size, buffer.first)):
        buffer.address = start
        for other in sorted((other for other in placed if other.meets(buffer)), key=lambda other: other.address):
            if other.address < buffer.end and buffer.address < other.end:
                buffer.address = other.end
        placed.append(buffer)


def largest_gap(time: int, start: int, end: int, placed: list[Buffer]) -> tuple[int, int]:
    """Address and size of the largest free range of [start, end) during a pass."""
    best, at = (start, 0), start
    for other in sorted((b for b in placed if b.first <= time <= b.last), key=lambda b: b.address):
        best = max(best, (at, min(other.address, end) - at), key=lambda gap: gap[1])
        at = max(at, other.end)
    return max(best, (at, end - at), key=lambda gap: gap[1])
