"""The rules by which a reader waits for older chains, in integers, and pipelines that advance by chance."""

import random

from concord.hw.lib.payloads import TICKET, address_bits, progress
from concord.sim.drivers.record import Record
from concord.spec.config import Config
from concord.spec.memories import VRFS

_NUMBERS = 1 << TICKET  #: Tickets go round.
_MEMORIES = range(len(VRFS))


def ahead(ticket: int, done: int) -> int:
    """Chains up to `ticket` that are still to be done where `done` are; 0 or less where there are none."""
    distance = (ticket - done) % _NUMBERS
    return distance - _NUMBERS if distance >= _NUMBERS // 2 else distance


def waiting(wait: dict, done: int) -> bool:
    """Whether the chain of a `hw.lib.payloads.Wait` is still to be done."""
    return bool(wait["valid"]) and ahead(wait["ticket"], done) > 0


def blocked(dependency: dict, progress: dict, memory: int, address: int) -> bool:
    """Whether an older chain, as `hw.lib.payloads.dependency` tells, may still write a word."""
    if not dependency["valid"] or not dependency["lo"] <= address < dependency["hi"]:
        return False
    left = ahead(dependency["ticket"], progress["done"])
    return left > 1 or (left == 1 and address >= progress["low"][memory])


class Pipeline:
    """How far a writing pipeline tells that it is; it goes on at random.

    Attributes:
        state: The fields of `hw.lib.payloads.progress`.
    """

    def __init__(self, config: Config, seed):
        self.random, self.shape = random.Random(f"pipeline {seed}"), Record(progress(config))
        self.top = (1 << address_bits(config)) - 1
        self.state = {"done": self.random.randrange(_NUMBERS), "iteration": 0, "low": dict.fromkeys(_MEMORIES, 0)}

    @property
    def payload(self) -> int:
        return self.shape.join(self.state)

    def advance(self, chance: float = 0.3):
        """Write a word, end an iteration or a chain, or do nothing."""
        state = self.state
        if self.random.random() >= chance:
            return
        kind = self.random.random()
        if kind < 0.1:
            state["done"] = (state["done"] + 1) % _NUMBERS
            state["iteration"], state["low"] = 0, dict.fromkeys(_MEMORIES, 0)
        elif kind < 0.2:
            state["iteration"] += 1
        else:
            for memory, low in state["low"].items():
                state["low"][memory] = min(low + self.random.choice((0, 1, 1, 3)), self.top)

    def wait(self, most: int = 2) -> dict:
        """A `hw.lib.payloads.Wait` for a chain that is done or soon will be."""
        ticket = (self.state["done"] + self.random.randint(-2, most)) % _NUMBERS
        return {"valid": self.random.getrandbits(1), "ticket": ticket}

    def dependency(self, near: int) -> dict:
        """A `hw.lib.payloads.dependency` on such a chain, of a range near an address."""
        lo = max(0, near + self.random.randint(-4, 6))
        return self.wait() | {"lo": min(lo, self.top), "hi": min(lo + self.random.randint(1, 8), self.top)}


class Writers:
    """What a pipeline that writes has been given: of each memory the range and the youngest of the chains not done.

    Attributes:
        count: Chains so far.
    """

    def __init__(self):
        self.count, self._ranges = 0, {}

    def dependency(self, memory: int, done: int) -> dict:
        """The `hw.lib.payloads.dependency` of a reader that comes now, where `done` chains are."""
        last, lo, hi = self._ranges.get(memory, (0, 0, 0))
        return {"valid": int(last > done), "ticket": last % _NUMBERS, "lo": lo, "hi": hi}

    def add(self, writes: dict[int, dict], done: int):
        """One more chain, with its `hw.lib.payloads.write` by memory."""
        self.count += 1
        for memory, write in writes.items():
            last, lo, hi = self._ranges.get(memory, (0, 0, 0))
            joined = last > done
            self._ranges[memory] = (self.count, min(lo, write["lo"]) if joined else write["lo"],
                                    max(hi, write["hi"]) if joined else write["hi"])
