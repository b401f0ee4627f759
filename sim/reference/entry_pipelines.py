"""The readers and the writer of VectorRf in Python, which execute jobs of the interlock."""

from collections import deque

from concord.hw.lib.jobs import TICKET
from concord.hw.lib.payloads import ENTRIES, INDEX
from concord.sim.reference.hazards import entry_blocked
from concord.sim.reference.memory_order import MemoryOrder
from concord.sim.stimulus.entry_chains import columns, pixels, written_entries
from concord.spec.isa.chain import Chain


class EntryWriter:
    """Writes entries some time after their last words have left the multi-function units.

    Attributes:
        jobs:    (number, chain, job) of the chains that are not finished.
        writers: What the interlock tells of the last writers, as `hw.lib.jobs.entry_writers` holds it.
    """

    def __init__(self, order: MemoryOrder):
        self.order, self.jobs, self.flight = order, deque(), deque()
        self.left, self.writers, self.done = None, {}, 0

    def take(self, tag: tuple):
        """A word with the tag (number, iteration, index) of a chain that writes VectorRf has landed."""
        self.flight.append(tag)

    def land(self):
        """Take the oldest word, and write the entry that it completes."""
        if not self.flight:
            return
        tag = self.flight.popleft()
        assert tag[0] == self.jobs[0][0]
        left = self._left()
        if tag[1:] in left:
            self.order.write((*tag, "entry"), [(ENTRIES, left.pop(tag[1:]))])
        if not left:
            self.jobs.popleft()
            self.left, self.done = None, self.done + 1

    def _left(self) -> dict:
        """Entries that the first chain has not written, by iteration and word."""
        if self.left is None:
            self.left = written_entries(self.jobs[0][1], self.order.vector_words)
        return self.left

    @property
    def state(self) -> dict:
        """The fields of `hw.lib.jobs.entry_progress`."""
        low = 0
        if self.jobs:
            low = min(self._left().values())
        return {"done": self.done % (1 << TICKET), "low": low}

    def blocked(self, job: dict, address: int) -> bool:
        """Whether an older chain may still write an entry."""
        return entry_blocked(self.writers, job["older"], self.state, address)


def column_steps(chain: Chain) -> list[tuple[int, tuple[int, int], bool]]:
    """(iteration, address, whether it is the last one of its iteration) of each column."""
    return _with_ends([(iteration, (ENTRIES, address)) for iteration, part in enumerate(columns(chain))
                       for address in part.ravel().tolist()])


def pixel_steps(chain: Chain, vector_words: int) -> list[tuple[int, tuple[int, int], bool]]:
    """(iteration, address, whether it is the last one of its word) of each pixel."""
    memory = INDEX[chain.source.mem]
    return [(each.iteration, (memory, each.address), each.last) for each in pixels(chain, vector_words)]


def _with_ends(steps):
    followers = [*steps[1:], (None, None)]
    return [(iteration, address, iteration != follower) for (iteration, address), (follower, _) in zip(
        steps, followers, strict=True)]

