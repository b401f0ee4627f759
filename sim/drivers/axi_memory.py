"""A memory behind a port of AXI4, which answers as late and as mixed up as the protocol allows."""

import random
from collections import deque
from dataclasses import dataclass, field

from concord.sim.drivers.stream import every_cycle

SLVERR, DECERR = 2, 3


@dataclass
class Access:
    """A burst that the memory has taken."""

    address: int
    beats: int
    number: int  #: Its ID.
    due: int  #: Cycle from which on it may be answered.
    wrong: int = 0  #: Response to it.
    given: int = 0
    data: list[tuple[int, int]] = field(default_factory=list)  #: Data and strobes of each beat that is written.


class AxiMemory:
    """A memory at the wires of a manager.

    Answers of one ID come in order; those of several IDs are mixed, beat by beat. A write reaches the memory when it is
    answered.

    Args:
        dut:     Handle of the top.
        size:    Bytes of the bus.
        bytes_:  Bytes of the memory; what lies beyond is answered with DECERR.
        stall:   Probability of a cycle in which a channel rests.
        latency: Most cycles from a burst, or from the last beat of a write, to its first response.
        prefix:  What the names of the wires begin with.

    Attributes:
        contents: Bytes of the memory.
        refused:  Ranges of addresses; bursts that begin there are answered with SLVERR and read ones.
        lengths:  Changes of the number of beats of the next reads; a response is then too short or too long.
        reads, writes: Bursts that lack a response.
    """

    def __init__(self, dut, size: int, bytes_: int, *, stall: float = 0.0, latency: int = 1, prefix: str = "m_axi"):
        self.dut, self.size, self.stall, self.latency, self.prefix = dut, size, stall, latency, prefix
        self.random, self.contents, self.cycle = random.Random(f"{prefix} {dut._name}"), bytearray(bytes_), 0
        self.refused, self.lengths = [], deque()
        self.reads, self.writes, self.unwritten, self.beats = [], [], deque(), deque()
        self.standing = {"r": None, "b": None}
        for wire in ("arready", "awready", "wready", "rvalid", "bvalid"):
            self._wire(wire).value = 0
        every_cycle(dut, self._step)

    @property
    def idle(self) -> bool:
        """Whether all bursts are answered."""
        return not (self.reads or self.writes or self.unwritten)

    def _wire(self, name: str):
        return getattr(self.dut, f"{self.prefix}_{name}")

    def _value(self, name: str) -> int:
        return int(self._wire(name).value)

    def _step(self):
        """What happens at a rising edge."""
        self.cycle += 1
        for channel in ("ar", "aw", "w"):
            if self._value(f"{channel}valid") and self._value(f"{channel}ready") and not self.dut.rst.value:
                self._take(channel)
            self._wire(f"{channel}ready").value = int(self.random.random() >= self.stall)
        for channel in self.standing:
            if self.standing[channel] and self._value(f"{channel}ready"):
                self.standing[channel] = None
                self._wire(f"{channel}valid").value = 0
            if not self.standing[channel] and self.random.random() >= self.stall:
                self._answer(channel)

    def _take(self, channel: str):
        if channel == "w":
            self.beats.append((self._value("wdata"), self._value("wstrb")))
        else:
            one = Access(self._value(f"{channel}addr"), self._value(f"{channel}len") + 1, self._value(f"{channel}id"),
                         self.cycle + self.random.randint(1, self.latency))
            beyond = one.address + one.beats * self.size > len(self.contents)
            one.wrong = DECERR if beyond else SLVERR * any(one.address in where for where in self.refused)
            if channel == "ar":
                one.beats = max(1, one.beats + (self.lengths.popleft() if self.lengths else 0))
                self.reads.append(one)
            else:
                self.unwritten.append(one)
        while self.unwritten and len(self.beats) >= self.unwritten[0].beats:
            one = self.unwritten.popleft()
            one.data = [self.beats.popleft() for _ in range(one.beats)]
            one.due = self.cycle + self.random.randint(1, self.latency)
            self.writes.append(one)

    def _answer(self, channel: str):
        """Offer the next response to one of the bursts that are the oldest of their IDs."""
        oldest = {}
        for one in self.reads if channel == "r" else self.writes:
            oldest.setdefault(one.number, one)
        due = [one for one in oldest.values() if one.due <= self.cycle]
        if not due:
            return
        one = self.standing[channel] = self.random.choice(due)
        values = {"id": one.number, "resp": one.wrong, **(self._read(one) if channel == "r" else self._write(one))}
        for wire, value in {**values, "valid": 1}.items():
            self._wire(channel + wire).value = value

    def _read(self, one: Access) -> dict[str, int]:
        at = one.address + one.given * self.size
        one.given += 1
        if one.given == one.beats:
            self.reads.remove(one)
        bits = int.from_bytes(self.contents[at:at + self.size], "little")
        return {"data": self.random.getrandbits(8 * self.size) if one.wrong else bits, "last": one.given == one.beats}

    def _write(self, one: Access) -> dict[str, int]:
        self.writes.remove(one)
        for beat, (bits, strobes) in enumerate(one.data if not one.wrong else ()):
            at, bytes_ = one.address + beat * self.size, bits.to_bytes(self.size, "little")
            for k in (k for k in range(self.size) if strobes >> k & 1):
                self.contents[at + k] = bytes_[k]
        return {}
