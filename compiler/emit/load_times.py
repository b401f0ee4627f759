"""An estimate of how long products take that wait for their tiles, by which the tiles that stay are chosen.

A load begins when the bus is free, when the products before it in the program have begun, and when those that
used its tiles have ended; a product begins when the one before it and its load have ended. The passes of a loop are
taken twice.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from concord.compiler.emit.tile_uses import Loop, TileUse
from concord.compiler.lib.tile_store import Matrix
from concord.spec.machine.config import Config

#: Most matrices among which the ones that stay are chosen by time; of more, those that are needed most often are.
_MOST = 128


@dataclass(frozen=True, slots=True)
class Load:
    """A load of a program.

    Attributes:
        before: Index of the instruction that it stands before.
        matrix: What it brings.
        at:     Its first tile in MatrixRf.
    """

    before: int
    matrix: Matrix
    at: int

    def meets(self, other: "Load") -> bool:
        """Whether both have tiles in common."""
        return self.at < other.at + other.matrix.count and other.at < self.at + self.matrix.count


@dataclass(slots=True)
class LoadTimes:
    """The time that a program has taken so far, in clock cycles."""

    config: Config
    loads: Sequence[Load]
    bus: int = 0
    begun: int = 0
    ended: int = 0
    _here: dict[Matrix, tuple[Load, int]] = field(default_factory=dict)  # what each load has brought, and when
    _used: dict[Load, int] = field(default_factory=dict)  # when the last product by its tiles has ended

    def run(self, items: Iterable[TileUse | Loop], start: int = 0):
        """Let a part of the program run that begins at an index."""
        for item in items:
            at = item.first if isinstance(item, Loop) else item.at - 1
            for load in (one for one in self.loads if start <= one.before <= at):
                self._load(load)
            for _ in range(2 if isinstance(item, Loop) else 0):
                self.run(item.items, item.first + 1)
            if isinstance(item, TileUse):
                self._multiply(item)
            start = at + 1

    def _load(self, load: Load):
        free = max((end for other, end in self._used.items() if other.meets(load)), default=0)
        self._used = {other: end for other, end in self._used.items() if not other.meets(load)}
        self.bus = max(self.bus, free, self.begun) + cycles_of(self.config, load.matrix)
        self._here[load.matrix] = load, self.bus

    def _multiply(self, use: TileUse):
        load, there = self._here.get(use.matrix, (None, 0))
        self.begun = max(self.ended, there)
        self.ended = self.begun + use.cycles
        if load is not None:
            self._used[load] = self.ended


def cycles_of(config: Config, matrix: Matrix) -> int:
    """Clock cycles of a load: those of the bus, or one for each row of a tile."""
    return max(-(-matrix.words * 2 * config.mfu_lanes // config.dram_bus), matrix.count * config.native_dim)


def quickest(config: Config, matrices: Sequence[Matrix], first: set[int],
             time: Callable[[set[int]], int | None]) -> set[int]:
    """First tiles of matrices that stay in MatrixRf.

    Args:
        first: Those of a choice that may be worse.
        time:  From a choice to the time that the program takes; None where the others have no room.
    """
    if len(matrices) > _MOST:
        return first
    best, chosen = time(set()), set()
    while best is not None:
        trials = {}
        for matrix in matrices:
            if matrix.first not in chosen and (cycles := time(chosen | {matrix.first})) is not None:
                trials[matrix.first] = (best - cycles) / matrix.count
        one = max(trials, key=trials.get, default=None)
        if one is None or trials[one] <= 0:
            break
        chosen |= {one}
        best = time(chosen)
    return chosen if best is not None and best <= (time(first) or best) else first
