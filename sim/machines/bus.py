"""The NNP's buses in a cocotb simulation: a link that `sim.machines.host` drives, with cocotbext-axi on the wires."""

from collections import deque
from inspect import iscoroutinefunction

import cocotb
from cocotb.task import resume
from cocotb.triggers import ClockCycles, RisingEdge
from cocotbext.axi import AxiBurstType, AxiBus, AxiRam, AxiResp, AxiStreamSink, AxiStreamSource
from concord.hw.dram.axi import ADDRESS, EDGE
from concord.sim.drivers.axi_stream import lite_master, monitor, pauses, stream_end
from concord.sim.drivers.stream import start
from concord.spec.host.registers import Register, Status
from concord.spec.machine.config import Config

#: Wires of the channels to the memory outside the chip, beside valid and ready.
_BURST = ("addr", "id", "len", "size", "burst")
REQUESTS = {"ar": _BURST, "aw": _BURST, "w": ("data", "strb", "last")}

#: Wires of the channels to the memory outside the chip, beside valid and ready.
_BURST = ("addr", "id", "len", "size", "burst")
REQUESTS = {"ar": _BURST, "aw": _BURST, "w": ("data", "strb", "last")}


class Bus:
    """Bus models around `dut`. Its methods are those of `sim.machines.library.Library`, as coroutines.

    Args:
        dut:    Handle of the top.
        config: Configuration of the machine.
        prefix: Prefix of the machine's ports, where the top has several machines.
        seed:   Seed of idle and stalled cycles.
        gap:    Probability of an idle cycle of the stream to the machine.
        stall:  Probability of a cycle in which the machine's stream is not taken; AXI4-Lite pauses as often.

    The memory outside the chip, on machines with Dram, pauses like the stream to the machine where it answers, and like
    the machine's stream where it takes.
    """

    def __init__(self, dut, config: Config, *, seed: int = 0, gap: float = 0.0, stall: float = 0.0,
                 prefix: str = ""):
        self.dut, self.config, self.prefix = dut, config, prefix
        self.quiet = self.cycles = 0
        self.source = stream_end(AxiStreamSource, dut, f"{prefix}s_axis", seed, gap)
        self.sink = stream_end(AxiStreamSink, dut, f"{prefix}m_axis", seed + 1, stall)
        self.master = lite_master(dut, f"{prefix}s_axil", seed + 2, stall)
        self.outside = Outside(dut, config, prefix=prefix, seed=seed + 7, gap=gap, stall=stall) if (
            config.dram_words) else None

    async def start(self) -> None:
        """Start the clock, reset the machine, and begin to watch its ports."""
        await start(self.dut)
        self.watch()

    def watch(self) -> None:
        """Begin to watch the ports of the machine."""
        cocotb.start_soon(monitor(self.dut, f"{self.prefix}m_axis"))
        cocotb.start_soon(self._watch())
        if self.outside:
            cocotb.start_soon(self.outside.watch())

    async def send(self, data: bytes) -> None:
        """Queue one message of whole beats."""
        self.source.send_nowait(data)

    async def receive(self) -> list[bytes]:
        """The complete messages that have come out since the last call."""
        return [bytes(self.sink.recv_nowait().tdata) for _ in range(self.sink.count())]

    async def read(self, address: int) -> int:
        """Read a register."""
        answer = await self.master.read(address, 4)
        assert answer.resp == AxiResp.OKAY, f"reading {address:#x} gave {answer.resp!r}"
        return int.from_bytes(answer.data, "little")

    async def write(self, address: int, value: int) -> None:
        """Write a register."""
        answer = await self.master.write(address, value.to_bytes(4, "little"))
        assert answer.resp == AxiResp.OKAY, f"writing {address:#x} gave {answer.resp!r}"

    async def step(self, cycles: int) -> None:
        """Let `cycles` cycles pass."""
        await ClockCycles(self.dut.clk, cycles)

    async def settle(self, quiet: int, blocked: int, most: int) -> bool:
        """Let cycles pass until no beat has moved for `quiet` cycles, or for `blocked` while beats wait to be taken.

        A burst under way at the memory outside the chip counts as a beat that moves.
        """
        self.quiet, end = 0, self.cycles + most
        while self.quiet < (blocked if self.queued else quiet):
            if self.cycles >= end:
                return False
            await ClockCycles(self.dut.clk, 8)
        return True

    async def run(self, most: int) -> int:
        """Let at most about `most` cycles pass until no program runs, or one waits for input in vain; return STATUS."""
        self.quiet, end = 0, self.cycles + most
        while True:
            status = await self.read(Register.STATUS)
            starved = status & Status.WAIT_INPUT and not self.queued and self.quiet > 256
            if not status & Status.RUNNING or starved or self.cycles >= end:
                return status
            await ClockCycles(self.dut.clk, 16)

    @property
    def queued(self) -> int:
        """Number of messages that the machine has not taken completely."""
        return self.source.count() + (not self.source.idle())

    async def _watch(self) -> None:
        edge = RisingEdge(self.dut.clk)
        sent, taken, came = (getattr(self.dut, f"{self.prefix}{wire}")
                             for wire in ("s_axis_tvalid", "s_axis_tready", "m_axis_tvalid"))
        while True:
            await edge
            self.cycles += 1
            moves = came.value or (sent.value and taken.value) or (self.outside and self.outside.busy)
            self.quiet = 0 if moves else self.quiet + 1


class Outside:
    """The memory outside the chip at the bus m_axi, and a monitor of what the machine must keep to there.

    Its latency is that of `AxiRam`, some cycles. A reset of the machine by its register leaves the memory alone, as the
    machine ends its bursts.

    Args:
        dut:    Handle of the top.
        config: Configuration of the machine.
        prefix: As in `Bus`.
        seed:   Seed of the pauses; each of the five channels has the next one.
        gap:    Probability of a cycle in which R, or B, does not go on.
        stall:  Probability of a cycle in which AR, AW, or W, is not taken.

    Attributes:
        reads:  Number of bursts that R has not ended.
        writes: Number of bursts that B has not answered.
    """

    def __init__(self, dut, config: Config, *, prefix: str, seed: int, gap: float, stall: float):
        self.dut, self.prefix, self.size, self.reads, self.writes = dut, f"{prefix}m_axi_", config.dram_bus, 0, 0
        self.ram = AxiRam(AxiBus.from_prefix(dut, f"{prefix}m_axi"), dut.clk, dut.rst, size=1 << ADDRESS)
        self.asked, self.given, self.beats = deque(), deque(), 0  # lengths of writes by AW and W; beats of the last one
        write, read = self.ram.write_if, self.ram.read_if
        for part in (write, read):
            part.log.setLevel("WARNING")
        channels = {write.aw_channel: stall, write.w_channel: stall, write.b_channel: gap, read.ar_channel: stall,
                    read.r_channel: gap}
        for number, (channel, share) in enumerate(channels.items(), seed):
            channel.log.setLevel("WARNING")
            if share:
                channel.set_pause_generator(pauses(number, share))

    @property
    def busy(self) -> bool:
        """Whether a burst is under way."""
        return self.reads > 0 or self.writes > 0

    async def watch(self) -> None:
        """Fail the test where the machine breaks a rule of AXI4, and count the bursts that are under way."""
        edge, answers = RisingEdge(self.dut.clk), {name: self._wires(f"{name}valid", f"{name}ready") for name in "rb"}
        (ends,) = self._wires("rlast")
        asks = {name: self._wires(f"{name}valid", f"{name}ready", *(f"{name}{wire}" for wire in wires))
                for name, wires in REQUESTS.items()}
        held = dict.fromkeys(asks)
        while True:
            await edge
            for name, (valid, ready, *wires) in asks.items():
                payload = [int(wire.value) for wire in wires] if valid.value and not self.dut.rst.value else None
                assert held[name] in (None, payload), (
                    f"{self.prefix}{name}: {held[name]} became {payload} before it was taken")
                held[name] = None if ready.value else payload
                if payload and ready.value:
                    self._taken(name, *payload)
            for name, (valid, ready) in answers.items():
                if valid.value and ready.value:
                    self.reads -= name == "r" and bool(ends.value)
                    self.writes -= name == "b"

    def _wires(self, *names: str) -> list:
        return [getattr(self.dut, f"{self.prefix}{name}") for name in names]

    def _taken(self, name: str, *payload: int) -> None:
        """See what the memory takes in this cycle."""
        if name == "w":
            self.beats += 1
            if payload[-1]:
                self.given.append(self.beats)
                self.beats = 0
        else:
            address, _, length, size, kind = payload
            last = address + (length + 1) * self.size - 1
            assert (kind, 1 << size) == (AxiBurstType.INCR, self.size), f"{self.prefix}{name}: kind {kind}, size {size}"
            assert address % self.size == 0, f"{self.prefix}{name}: {address:#x} is inside a beat"
            assert address // EDGE == last // EDGE, f"{self.prefix}{name}: {address:#x} to {last:#x} crosses 4 KB"
            self.reads += name == "ar"
            self.writes += name == "aw"
            if name == "aw":
                self.asked.append(length + 1)
        while self.asked and self.given:
            asked, given = self.asked.popleft(), self.given.popleft()
            assert asked == given, f"{self.prefix}w: WLAST ends a burst of {asked} beats after {given}"


class Blocking:
    """A bus whose methods block, for code without coroutines that runs under `cocotb.task.bridge`."""

    def __init__(self, bus: Bus):
        self.bus = bus

    def __getattr__(self, name: str):
        found = getattr(self.bus, name)
        return resume(found) if iscoroutinefunction(found) else found

    def close(self) -> None:
        """Do nothing: the simulation ends with its test."""
