"""The NNP's buses in a cocotb simulation: a link that `sim.machines.host` drives, with cocotbext-axi on the wires."""

from inspect import iscoroutinefunction

import cocotb
from cocotb.task import resume
from cocotb.triggers import ClockCycles, RisingEdge
from cocotbext.axi import AxiResp, AxiStreamSink, AxiStreamSource
from concord.sim.drivers.axi_stream import lite_master, monitor, stream_end
from concord.sim.drivers.stream import start
from concord.spec.host.registers import Register, Status
from concord.spec.machine.config import Config


class Bus:
    """Bus models around `dut`. Its methods are those of `sim.machines.library.Library`, as coroutines.

    Args:
        dut:    Handle of the top.
        config: Configuration of the machine.
        prefix: Prefix of the machine's ports, where the top has several machines.
        seed:   Seed of idle and stalled cycles.
        gap:    Probability of an idle cycle of the stream to the machine.
        stall:  Probability of a cycle in which the machine's stream is not taken; AXI4-Lite pauses as often.
    """

    def __init__(self, dut, config: Config, *, seed: int = 0, gap: float = 0.0, stall: float = 0.0,
                 prefix: str = ""):
        self.dut, self.config, self.prefix = dut, config, prefix
        self.quiet = self.cycles = 0
        self.source = stream_end(AxiStreamSource, dut, f"{prefix}s_axis", seed, gap)
        self.sink = stream_end(AxiStreamSink, dut, f"{prefix}m_axis", seed + 1, stall)
        self.master = lite_master(dut, f"{prefix}s_axil", seed + 2, stall)

    async def start(self) -> None:
        """Start the clock, reset the machine, and begin to watch its streams."""
        await start(self.dut)
        self.watch()

    def watch(self) -> None:
        """Begin to watch the streams of the machine."""
        cocotb.start_soon(monitor(self.dut, f"{self.prefix}m_axis"))
        cocotb.start_soon(self._watch())

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
        """Let cycles pass until no beat has moved for `quiet` cycles, or for `blocked` while beats wait to be taken."""
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
            self.quiet = 0 if came.value or (sent.value and taken.value) else self.quiet + 1


class Blocking:
    """A bus whose methods block, for code without coroutines that runs under `cocotb.task.bridge`."""

    def __init__(self, bus: Bus):
        self.bus = bus

    def __getattr__(self, name: str):
        found = getattr(self.bus, name)
        return resume(found) if iscoroutinefunction(found) else found

    def close(self) -> None:
        """Do nothing: the simulation ends with its test."""
