"""Drive and watch units from cocotb: clock and reset, amaranth.lib.stream ports, and units without handshakes."""

import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence

import cocotb
from cocotb.clock import Clock
from cocotb.task import Task
from cocotb.triggers import ClockCycles, Event, RisingEdge, Trigger


async def start(dut, *low: str, cycles: int = 2) -> None:
    """Hold the inputs `low` at 0, start the clock (period 2 ns) and reset `dut` for `cycles` edges."""
    for name in low:
        getattr(dut, name).value = 0
    Clock(dut.clk, 2, unit="ns").start()
    await reset(dut, cycles=cycles)


async def reset(dut, *, cycles: int = 2) -> None:
    """Hold `rst` for `cycles` edges."""
    dut.rst.value = 1
    await clock(dut, cycles)
    dut.rst.value = 0


def clock(dut, count: int = 1) -> Trigger:
    """The rising edge of the clock that is `count` ahead; a read after it sees what a flip-flop at that edge sees."""
    return RisingEdge(dut.clk) if count == 1 else ClockCycles(dut.clk, count)


async def until(dut, done: Callable[[], object]) -> int:
    """Wait until `done` is true after a rising edge, and return the number of cycles that it took."""
    cycles = 0
    while not done():
        await clock(dut)
        cycles += 1
    return cycles


async def moments(dut, *names: str, cycles: int) -> list[list[int]]:
    """For each of these streams, the numbers of those of the next `cycles` cycles in which a payload is taken."""
    found = [[] for _ in names]
    for cycle in range(cycles):
        await clock(dut)
        for moved, name in zip(found, names, strict=True):
            moved += [cycle] * int(getattr(dut, f"{name}__valid").value and getattr(dut, f"{name}__ready").value)
    return found


def every_cycle(dut, step: Callable[[], object]) -> Task:
    """Call `step` after every rising edge of the clock, as long as the test runs."""
    async def run():
        while True:
            await clock(dut)
            step()

    return cocotb.start_soon(run())


class StreamPort:
    """The wires of one stream.

    They are read and written just after a rising edge: a read then sees what a flip-flop at that edge sees.
    """

    def __init__(self, dut, name: str, seed: int | None, stall: float):
        self.name, self.stall = name, stall
        self.random = random.Random(f"{name} {cocotb.RANDOM_SEED if seed is None else seed}")
        self.edge = RisingEdge(dut.clk)
        self.rst = dut.rst
        self.payload, self.valid, self.ready = (
            getattr(dut, f"{name}__{wire}") for wire in ("payload", "valid", "ready"))


class StreamSource(StreamPort):
    """Feed the input stream `name` of `dut`.

    While nothing is valid the payload is noise, so that a unit that uses an invalid payload fails its test.

    Args:
        dut:   Handle of the top.
        name:  Name of the stream, such as "i".
        seed:  Seed of the stalls, that of the simulation if left out; streams with the same seed stall independently.
        stall: Probability of a cycle in which `valid` is low although a payload is queued.
    """

    def __init__(self, dut, name: str, *, seed: int | None = None, stall: float = 0.0):
        super().__init__(dut, name, seed, stall)
        self.queue = deque()
        self.filled, self.emptied = Event(), Event()
        self.width = len(self.payload)
        self.valid.value = 0
        self.task = cocotb.start_soon(self._run())

    def put(self, *payloads: int) -> None:
        """Queue payloads and return at once."""
        self.queue.extend(payloads)
        if self.queue:
            self.filled.set()

    async def drain(self) -> None:
        """Wait until all queued payloads have been taken."""
        while self.queue:
            self.emptied.clear()
            await self.emptied.wait()

    async def send(self, *payloads: int) -> None:
        """Queue payloads and wait until all have been taken."""
        self.put(*payloads)
        await self.drain()

    async def _run(self) -> None:
        while True:
            if not self.queue:
                self.emptied.set()
                self.filled.clear()
                await self.filled.wait()
                await self.edge
            while self.random.random() < self.stall:
                await self.edge
            self.payload.value = self.queue[0]
            self.valid.value = 1
            await self.edge
            while self.rst.value or not self.ready.value:
                await self.edge
            self.queue.popleft()
            self.valid.value = 0
            self.payload.value = self.random.getrandbits(self.width)


class Sink(StreamPort):
    """Take payloads from the output stream `name` of `dut`.

    The test fails when `valid` drops or the payload changes before it is taken.

    Args:
        dut:   Handle of the top.
        name:  Name of the stream, such as "o".
        seed:  Seed of the stalls, that of the simulation if left out; streams with the same seed stall independently.
        stall: Probability of a cycle in which `ready` is low.
    """

    def __init__(self, dut, name: str, *, seed: int | None = None, stall: float = 0.0):
        super().__init__(dut, name, seed, stall)
        self.queue = deque()
        self.filled = Event()
        self.ready.value = 0
        self.task = cocotb.start_soon(self._run())

    async def get(self) -> int:
        """Wait for the next payload."""
        while not self.queue:
            self.filled.clear()
            await self.filled.wait()
        return self.queue.popleft()

    async def receive(self, count: int) -> list[int]:
        """Wait for the next `count` payloads."""
        return [await self.get() for _ in range(count)]

    async def _run(self) -> None:
        held, ready = None, 0
        while True:
            await self.edge
            if self.valid.value and not self.rst.value:
                payload = int(self.payload.value)
                assert held in (None, payload), f"{self.name}: {held:#x} became {payload:#x} before it was taken"
                held = None if ready else payload
                if ready:
                    self.queue.append(payload)
                    self.filled.set()
            elif held is not None:
                assert self.rst.value, f"{self.name}: valid dropped before {held:#x} was taken"
                held = None
            if ready != (ready := int(self.random.random() >= self.stall)):
                self.ready.value = ready


async def drive_pipeline(dut, inputs: Mapping[str, Sequence[int]], outputs: Sequence[str],
                         latency: int) -> dict[str, list[int]]:
    """Start the unit, feed it one record of `inputs` a cycle, and return what its ports `outputs` show for each record.

    Args:
        inputs:  Integers for each input port, one a record; all ports have equally many.
        outputs: Names of the output ports.
        latency: Number of cycles from a record to its result.
    """
    await start(dut)
    edge, driven = RisingEdge(dut.clk), [getattr(dut, name) for name in inputs]
    read = [(name, getattr(dut, name)) for name in outputs]
    records = list(zip(*inputs.values(), strict=True))
    results = {name: [] for name in outputs}
    for cycle in range(len(records) + latency):
        for port, value in zip(driven, records[min(cycle, len(records) - 1)], strict=True):
            port.value = int(value)
        await edge
        if cycle >= latency:
            for name, port in read:
                results[name].append(int(port.value))
    return results
