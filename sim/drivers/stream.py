"""Drive and watch amaranth.lib.stream ports from cocotb."""

import random
from collections import deque

import cocotb
import numpy as np
from amaranth.hdl import Shape
from amaranth.lib import data
from cocotb.clock import Clock
from cocotb.triggers import Event, RisingEdge


async def start(dut, *, cycles: int = 2) -> None:
    """Start the clock (period 2 ns) and reset `dut` for `cycles` edges."""
    Clock(dut.clk, 2, unit="ns").start()
    await reset(dut, cycles=cycles)


async def reset(dut, *, cycles: int = 2) -> None:
    """Hold `rst` for `cycles` edges."""
    dut.rst.value = 1
    for _ in range(cycles):
        await RisingEdge(dut.clk)
    dut.rst.value = 0


class Port:
    """The wires of one stream.

    They are read and written just after a rising edge: a read then sees what a flip-flop at that edge sees.
    """

    def __init__(self, dut, name: str, seed: int, stall: float):
        self.name, self.stall = name, stall
        self.random = random.Random(f"{name} {seed}")
        self.edge = RisingEdge(dut.clk)
        self.rst = dut.rst
        self.payload, self.valid, self.ready = (
            getattr(dut, f"{name}__{wire}") for wire in ("payload", "valid", "ready"))


class Source(Port):
    """Feed the input stream `name` of `dut`.

    While nothing is valid the payload is noise, so that a unit that uses an invalid payload fails its test.

    Args:
        dut:   Handle of the top.
        name:  Name of the stream, such as "i".
        seed:  Seed of the stalls; streams with the same seed stall independently.
        stall: Probability of a cycle in which `valid` is low although a payload is queued.
    """

    def __init__(self, dut, name: str, *, seed: int = 0, stall: float = 0.0):
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


class Sink(Port):
    """Take payloads from the output stream `name` of `dut`.

    The test fails when `valid` drops or the payload changes before it is taken.

    Args:
        dut:   Handle of the top.
        name:  Name of the stream, such as "o".
        seed:  Seed of the stalls; streams with the same seed stall independently.
        stall: Probability of a cycle in which `ready` is low.
    """

    def __init__(self, dut, name: str, *, seed: int = 0, stall: float = 0.0):
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
            if self.rst.value:
                held = None
            elif self.valid.value:
                payload = int(self.payload.value)
                assert held in (None, payload), f"{self.name}: {held:#x} became {payload:#x} before it was taken"
                held = None if ready else payload
                if ready:
                    self.queue.append(payload)
                    self.filled.set()
            else:
                assert held is None, f"{self.name}: valid dropped before {held:#x} was taken"
            ready = int(self.random.random() >= self.stall)
            self.ready.value = ready


def pack(shape, values) -> list[int]:
    """Pack values into payloads of `shape`.

    Args:
        shape:  Shape or layout of one payload.
        values: int[n, ...] for a scalar or an array of scalars, a dictionary of such arrays for a struct.

    Returns:
        n integers, with the first field in the lowest bits.
    """
    return [int.from_bytes(row.tobytes(), "little") for row in pack_rows(shape, values)]


def pack_rows(shape, values) -> np.ndarray:
    """Pack values as `pack` does, into uint8[n, bytes of a payload] instead of integers."""
    return np.packbits(_bits(shape, values), axis=1, bitorder="little")


def unpack(shape, payloads: list[int]):
    """Unpack payloads into the values that `pack` takes: int64 arrays, or Python integers beyond 63 bits."""
    size = (Shape.cast(shape).width + 7) // 8
    raw = b"".join(int(payload).to_bytes(size, "little") for payload in payloads)
    return unpack_rows(shape, np.frombuffer(raw, np.uint8).reshape(len(payloads), size))


def unpack_rows(shape, rows: np.ndarray):
    """Unpack as `unpack` does, from uint8[n, bytes of a payload] instead of integers."""
    return _values(shape, np.unpackbits(rows, axis=1, bitorder="little")[:, :Shape.cast(shape).width])


def _layout(shape) -> data.Layout | None:
    try:
        return data.Layout.cast(shape)
    except TypeError:
        return None


def _map(function, values):
    """Apply `function` to every array of nested dictionaries."""
    if isinstance(values, dict):
        return {key: _map(function, value) for key, value in values.items()}
    return function(np.asarray(values))


def _bits(shape, values) -> np.ndarray:
    layout = _layout(shape)
    if isinstance(layout, data.ArrayLayout):
        flat = _bits(layout.elem_shape, _map(lambda value: value.reshape(-1, *value.shape[2:]), values))
        return flat.reshape(-1, layout.length * flat.shape[1])
    if layout is not None:
        fields = {key: _bits(layout[key].shape, value) for key, value in values.items()}
        bits = np.zeros((len(next(iter(fields.values()))), layout.size), np.uint8)
        for key, part in fields.items():
            bits[:, layout[key].offset:layout[key].offset + part.shape[1]] = part
        return bits
    cast = Shape.cast(shape)
    values = np.asarray(values)
    if cast.width < 64 and values.dtype != object:
        low, high = (-(1 << cast.width - 1), 1 << cast.width - 1) if cast.signed else (0, 1 << cast.width)
        if values.size and not low <= values.min() <= values.max() < high:
            raise ValueError(f"a value of {values.min()}..{values.max()} does not fit {cast}")
        return (values.astype(np.int64)[:, None] >> np.arange(cast.width) & 1).astype(np.uint8)
    raw = [(int(value) & (1 << cast.width) - 1).to_bytes((cast.width + 7) // 8, "little") for value in values]
    rows = np.frombuffer(b"".join(raw), np.uint8).reshape(len(raw), -1)
    return np.unpackbits(rows, axis=1, bitorder="little")[:, :cast.width]


def _values(shape, bits: np.ndarray):
    layout = _layout(shape)
    if isinstance(layout, data.ArrayLayout):
        flat = _values(layout.elem_shape, bits.reshape(len(bits) * layout.length, -1))
        return _map(lambda value: value.reshape(len(bits), layout.length, *value.shape[1:]), flat)
    if layout is not None:
        return {key: _values(field.shape, bits[:, field.offset:field.offset + field.width]) for key, field in layout}
    cast = Shape.cast(shape)
    if cast.width < 64:
        values = bits.astype(np.int64) @ (1 << np.arange(cast.width, dtype=np.int64))
        return values - (values >> cast.width - 1 << cast.width) if cast.signed else values
    rows = np.packbits(bits, axis=1, bitorder="little")
    values = [int.from_bytes(row.tobytes(), "little") for row in rows]
    wrap = 1 << cast.width
    return np.array([v - wrap if cast.signed and v >> cast.width - 1 else v for v in values], object)
