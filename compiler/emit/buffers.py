"""Buffers with lifetimes: two that are never in use at the same time may share their words.

Time is the number of a pass. All buffers are placed at once, when every lifetime is known. Tied buffers keep a distance
from each other, and may overlap: who ties them knows that they never use the same word at once.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from concord.spec.isa.memories import Mem


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
        kept:    Whether it has its address before others are placed, and shares its words with none of them.
    """

    mem: Mem
    name: str
    size: int = 0
    first: int | None = None
    last: int = 0
    address: int = 0
    kept: bool = False

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


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Tie:
    """Two buffers at a fixed distance.

    Attributes:
        low:      The buffer with the lower address.
        high:     The other one.
        distance: Words or entries from the one to the other.
    """

    low: Buffer
    high: Buffer
    distance: int


def place(buffers: Iterable[Buffer], start: int, placed: list[Buffer], ties: Sequence[Tie] = ()):
    """Give each buffer the lowest address from `start` up that no other one has at the same time; the largest first.

    Args:
        buffers: Buffers of one memory, which are appended to `placed`.
        start:   First address that they may have.
        placed:  Buffers of the memory that have their addresses.
        ties:    Buffers that are placed together.
    """
    groups = _tied(list(buffers), ties)
    for group in sorted(groups, key=lambda group: (-max(buffer.size + at for buffer, at in group), group[0][0].first)):
        base, moved = start, True
        while moved:
            moved = False
            for buffer, at in group:
                for other in placed:
                    if other.meets(buffer) and other.address < base + at + buffer.size and base + at < other.end:
                        base, moved = other.end - at, True
        for buffer, at in group:
            buffer.address = base + at
            placed.append(buffer)


def _tied(buffers: list[Buffer], ties: Sequence[Tie]) -> list[list[tuple[Buffer, int]]]:
    """Groups of tied buffers, each with its distance from the lowest address of its group."""
    found = {id(buffer): [(buffer, 0)] for buffer in buffers}
    for tie in ties:
        low, high = found[id(tie.low)], found[id(tie.high)]
        at = next(at for buffer, at in low if buffer is tie.low) + tie.distance
        shift = at - next(at for buffer, at in high if buffer is tie.high)
        joined = low + [(buffer, at + shift) for buffer, at in high]
        least = min(at for _, at in joined)
        joined = [(buffer, at - least) for buffer, at in joined]
        for buffer, _ in joined:
            found[id(buffer)] = joined
    return list({id(group): group for group in found.values()}.values())


def largest_gap(time: int, start: int, end: int, placed: list[Buffer]) -> tuple[int, int]:
    """Address and size of the largest free range of [start, end) during a pass."""
    best, at = (start, 0), start
    for other in sorted((b for b in placed if b.first <= time <= b.last), key=lambda b: b.address):
        best = max(best, (at, min(other.address, end) - at), key=lambda gap: gap[1])
        at = max(at, other.end)
    return max(best, (at, end - at), key=lambda gap: gap[1])
