"""A manager that reads and writes bursts of AXI4 at random, and holds the memory to the rules and to its bytes."""

import random
from collections import deque
from dataclasses import dataclass, field

from concord.hw.dram.axi import EDGE, INCR
from concord.hw.dram.burst_reader import LONGEST
from concord.sim.drivers.stream import every_cycle

BLOCK = EDGE  #: Bytes that one burst reads or writes while no other burst does.
HELD = {"r": ("data", "id", "resp", "last"), "b": ("id", "resp")}  #: Wires that stand until they are taken.


@dataclass
class Burst:
    """A burst that is under way."""

    address: int
    beats: int
    number: int  #: Its ID.
    given: int = 0
    bytes: dict[int, int] = field(default_factory=dict)  #: What it writes, by address.


class AxiManager:
    """A manager at the wires of a memory.

    Bursts that are under way at once lie in different blocks, so that the memory may order them as it likes.

    Args:
        dut:     Handle of the top.
        size:    Bytes of the bus.
        seed:    Seed of the bursts and pauses.
        stall:   Probability of a cycle in which AR, AW or W offers nothing new, or R or B is not taken.
        blocks:  Numbers of the blocks that are read and written.
        shortest: Least beats of a burst.
        memory:  What the memory holds, by address; bytes that are not there are 0.
        writes:  Share of bursts that write.
        late:    Probability of a cycle in which W offers nothing new.
        prefix:  What the names of the wires begin with.
        refused: Numbers of the blocks whose bursts the memory answers with SLVERR.
    """

    def __init__(self, dut, size: int, *, seed: int, stall: float = 0.0, blocks=range(16), shortest: int = 1,
                 writes: float = 0.5, late: float = 0.0, memory: dict[int, int] | None = None,
                 prefix: str = "s_axi", refused=()):
        self.dut, self.size, self.stall, self.late, self.prefix, self.refused = dut, size, stall, late, prefix, refused
        self.random, self.blocks, self.shortest, self.writes = random.Random(seed), list(blocks), shortest, writes
        self.memory, self.busy, self.left = {} if memory is None else memory, set(), 0
        self.reads = [deque(), deque()]  # by ID
        self.written, self.data = deque(), deque()  # bursts without an answer; beats that W has not given
        self.offered = {"ar": deque(), "aw": deque()}
        self.held, self.ended, self.beats, self.strange = dict.fromkeys(HELD), 0, 0, 0
        self.accepted = self.complete = 0  # bursts on AW; bursts whose W has ended
        for wire in ("arvalid", "awvalid", "wvalid", "rready", "bready"):
            self._wire(wire).value = 0
        for channel in ("ar", "aw"):
            self._wire(f"{channel}burst").value = INCR
            self._wire(f"{channel}size").value = size.bit_length() - 1
        every_cycle(dut, self.step)

    def start(self, count: int):
        """Let `count` more bursts begin."""
        self.left += count

    @property
    def idle(self) -> bool:
        """Whether no burst is left or under way."""
        return not self.left and not self.busy

    def _wire(self, name: str):
        return getattr(self.dut, f"{self.prefix}_{name}")

    def _value(self, name: str) -> int:
        return int(self._wire(name).value)

    def step(self):
        """What happens at a rising edge."""
        if self.dut.rst.value:
            return
        for channel in HELD:
            self._answer(channel)
        for channel in ("ar", "aw", "w"):
            if self._value(f"{channel}valid") and self._value(f"{channel}ready"):
                self._wire(f"{channel}valid").value = 0
                self._taken(channel)
                self._offer(channel, True)
            elif not self._value(f"{channel}valid"):
                self._offer(channel, False)
        for channel in HELD:
            self._wire(f"{channel}ready").value = int(self.random.random() >= self.stall)
        if self.left and len(self.busy) < 6:
            self._begin()

    def _begin(self):
        free = [block for block in self.blocks if block not in self.busy]
        block, chance = self.random.choice(free), self.random
        most = min(LONGEST, BLOCK // self.size)
        beats = max(self.shortest, chance.choice((1, 2, 3, chance.randint(1, most), most)))
        first = chance.randrange(BLOCK // self.size - beats + 1)
        one = Burst(block * BLOCK + first * self.size, beats, 0)
        self.busy.add(block)
        self.left -= 1
        if chance.random() >= self.writes:
            one.number = chance.randrange(2)
            self.offered["ar"].append(one)
            return
        self.offered["aw"].append(one)
        self.written.append(one)
        whole = chance.random() < 0.5
        for beat in range(beats):
            bits, strobes = chance.getrandbits(8 * self.size), chance.getrandbits(self.size) | -int(whole)
            strobes &= (1 << self.size) - 1
            at = one.address + beat * self.size
            one.bytes |= {at + k: bits >> 8 * k & 255 for k in range(self.size) if strobes >> k & 1}
            self.data.append((bits, strobes, int(beat == beats - 1)))

    def _offer(self, channel: str, taken: bool):
        """Offer what comes next on a channel."""
        if channel == "w":
            if self.data and self.random.random() >= max(self.stall, self.late):
                for wire, value in zip(("data", "strb", "last"), self.data[0], strict=True):
                    self._wire(f"w{wire}").value = value
                self._wire("wvalid").value = 1
            return
        queue = self.offered[channel]
        if queue and self.random.random() >= self.stall:
            self._wire(f"{channel}addr").value = queue[0].address
            self._wire(f"{channel}len").value = queue[0].beats - 1
            self._wire(f"{channel}id").value = queue[0].number
            self._wire(f"{channel}valid").value = 1

    def _taken(self, channel: str):
        if channel == "w":
            self.complete += self.data.popleft()[2]
            return
        one = self.offered[channel].popleft()
        if channel == "ar":
            self.reads[one.number].append(one)
        else:
            self.accepted += 1

    def _answer(self, channel: str):
        """Check R or B: what is offered stands, and what is taken is right."""
        valid, ready = self._value(f"{channel}valid"), self._value(f"{channel}ready")
        now = tuple(self._value(channel + wire) for wire in HELD[channel]) if valid else None
        assert self.held[channel] in (None, now), f"{channel} changed before it was taken"
        self.held[channel] = None if ready else now
        if valid and ready:
            (self._beat if channel == "r" else self._done)(*now)

    def _beat(self, bits: int, number: int, response: int, last: int):
        assert self.reads[number], f"R has a beat of ID {number} that nobody asked for"
        one = self.reads[number][0]
        assert response == self._response(one)
        at = one.address + one.given * self.size
        wanted = sum(self.memory.get(at + k, 0) << 8 * k for k in range(self.size))
        assert response or bits == wanted, f"beat {one.given} of {one.beats} at {at:#x} is {bits:#x}, not {wanted:#x}"
        one.given += 1
        self.beats += 1
        assert last == (one.given == one.beats), f"RLAST is {last} at beat {one.given} of {one.beats}"
        if last:
            self._end(self.reads[number].popleft())

    def _done(self, number: int, response: int):
        assert number == 0
        assert self.written, "B answers a burst that nobody wrote"
        one = self.written.popleft()
        assert response == self._response(one)
        assert self.accepted > 0, "B comes before AW"
        assert self.complete > 0, "B comes before the last beat of W"
        self.accepted -= 1
        self.complete -= 1
        self.beats += one.beats
        self.memory |= {} if response else one.bytes
        self._end(one)

    def _response(self, one: Burst) -> int:
        return 2 * (one.address // BLOCK in self.refused)

    def _end(self, one: Burst):
        self.ended += 1
        self.busy.remove(one.address // BLOCK)
