"""Line coverage from Verilator's coverage.dat files."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Coverage:
    """Coverage points (blocks of lines, and branches) of one Verilog text, and how often each was executed.

    Attributes:
        counts: Number of executions of each point; a point is a tuple (module, line, kind).
    """

    counts: Counter

    @property
    def hit(self) -> int:
        """Number of points that were executed at least once."""
        return sum(count > 0 for count in self.counts.values())

    @property
    def missed(self) -> list[tuple[str, int, str]]:
        """Points that were never executed, in the order of their lines."""
        return sorted((point for point, count in self.counts.items() if not count), key=lambda point: point[1])

    def __len__(self) -> int:
        return len(self.counts)


def merge(paths: Iterable[Path]) -> Coverage:
    """Add up the coverage files of several runs of one build."""
    counts = Counter()
    for path in paths:
        for line in path.read_text(errors="replace").splitlines():
            if line.startswith("C '"):
                key, count = line[3:].rsplit("' ", 1)
                fields = dict(item.split("\x02", 1) for item in key.split("\x01") if "\x02" in item)
                counts[fields["h"], int(fields["l"]), fields["o"]] += int(count)
    return Coverage(counts)
