"""A monitor of the rules of AXI4 that a manager keeps, and of the promises of docs/dram.md."""

from collections import deque

from concord.hw.dram.axi import EDGE, INCR
from concord.hw.dram.burst_reader import LONGEST
from concord.sim.drivers.stream import every_cycle

HELD = {  #: Wires of each channel that stand until the beat is taken.
    "ar": ("addr", "id", "len", "size", "burst"), "aw": ("addr", "id", "len", "size", "burst"),
    "w": ("data", "strb", "last")}


class AxiMonitor:
    """Holds a port to the rules, and counts its bursts and the bytes that are written.

    Args:
        dut:    Handle of the top.
        size:   Bytes of the bus.
        prefix: What the names of the wires begin with.
        holds:  The manager may hold up B.

    Attributes:
        asked, wrote: IDs of the bursts on AR and on AW.
        written:      Number of bytes that were written.
        lengths:      Beats of each write whose beats are not all there.
        beats:        Of the beats without their write, whether each was the last one.
    """

    def __init__(self, dut, size: int, prefix: str = "m_axi", holds: bool = False):
        self.dut, self.size, self.prefix, self.holds = dut, size, prefix, holds
        self.held, self.written = dict.fromkeys(HELD), 0
        self.asked, self.wrote, self.beats, self.lengths = [], [], deque(), deque()
        every_cycle(dut, self.step)

    def _wire(self, name: str) -> int:
        return int(getattr(self.dut, f"{self.prefix}_{name}").value)

    @property
    def ended(self) -> bool:
        """Whether nothing stands on a channel, and each write has its beats."""
        return not (self.lengths or self.beats or any(self.held.values()))

    def step(self):
        """What happens at a rising edge."""
        if self.dut.rst.value:
            return
        assert self.holds or self._wire("bready"), "B waits for the machine"
        for channel, wires in HELD.items():
            valid, ready = self._wire(f"{channel}valid"), self._wire(f"{channel}ready")
            now = tuple(self._wire(channel + wire) for wire in wires) if valid else None
            assert self.held[channel] in (None, now), f"{channel} changed before it was taken"
            self.held[channel] = None if ready else now
            if valid and ready:
                getattr(self, "_beat" if channel == "w" else "_burst")(channel, *now)
        while self.lengths and len(self.beats) >= self.lengths[0]:
            length = self.lengths.popleft()
            assert [self.beats.popleft() for _ in range(length)] == [0] * (length - 1) + [1]
        assert not self.beats or self.lengths or self.held["aw"], "W has a beat of no burst"

    def _burst(self, channel: str, address: int, id_: int, length: int, size: int, kind: int):
        assert (1 << size, kind) == (self.size, INCR)
        assert address % self.size == 0
        assert length < LONGEST
        assert address // EDGE == (address + (length + 1) * self.size - 1) // EDGE, "a burst crosses 4 KB"
        if channel == "ar":
            self.asked.append(id_)
        else:
            assert id_ % 2 == 0, "a manager writes with the ID 0"
            self.wrote.append(id_)
            self.lengths.append(length + 1)

    def _beat(self, _channel: str, _data: int, strobes: int, last: int):
        self.written += strobes.bit_count()
        self.beats.append(last)
