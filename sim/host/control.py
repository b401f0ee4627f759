"""Testbench of hw.host.control against spec.host.registers."""

import random
from collections import deque
from typing import Self

import cocotb
from cocotbext.axi import AxiLiteBus, AxiResp
from cocotbext.axi.axil_channels import AxiLiteAWSource, AxiLiteAWTransaction, AxiLiteWSource, AxiLiteWTransaction
from concord.hw.host.counters import LATE
from concord.sim.drivers.axi_stream import lite_master
from concord.sim.drivers.bench import CONFIG
from concord.sim.drivers.stream import clock, every_cycle, start
from concord.spec.host.registers import Control, Register, counters

CONSTANTS = {
    Register.CONTROL: 0, Register.DIGEST: CONFIG.digest, Register.NATIVE_DIM: CONFIG.native_dim,
    Register.LANES: CONFIG.lanes, Register.TILE_ENGINES: CONFIG.tile_engines, Register.MFU_LANES: CONFIG.mfu_lanes,
    Register.MATRIX_TILES: CONFIG.matrix_tiles, Register.INSTRUCTIONS: CONFIG.instructions,
    Register.COUNTER_COUNT: len(counters(CONFIG)), Register.PEER: 0}


class Bench:
    """The unit between a bus master and a model of the counters, both with random pauses."""

    def __init__(self, dut, stall: float):
        self.dut, self.stall, self.random = dut, stall, random.Random(cocotb.RANDOM_SEED)
        self.counters = [self.random.getrandbits(32) for _ in counters(CONFIG)]
        self.pulses, self.coming = [], deque([0] * LATE)

    async def start(self) -> Self:
        await start(self.dut, "status", "error", "error_address", "counter__ready")
        self.host = lite_master(self.dut, "s_axil", cocotb.RANDOM_SEED, self.stall)
        every_cycle(self.dut, self._count)
        every_cycle(self.dut, self._watch)
        return self

    async def read(self, address: int) -> int:
        """Read the register at `address`; the response must be OKAY."""
        done = await self.host.read(address, 4)
        assert done.resp == AxiResp.OKAY
        return int.from_bytes(done.data, "little")

    async def write(self, address: int, data: bytes):
        """Write bytes at `address`; the response must be OKAY."""
        done = await self.host.write(address, data)
        assert done.resp == AxiResp.OKAY
        await clock(self.dut)

    def _count(self):
        taken = self.dut.counter__valid.value and self.dut.counter__ready.value
        self.coming.append(
            self.counters[int(self.dut.counter__payload.value)] if taken else self.random.getrandbits(32))
        self.coming.popleft()
        self.dut.count.value = self.coming[0]
        self.dut.counter__ready.value = int(self.random.random() >= self.stall)

    def _watch(self):
        pulses = [Control[name.upper()] for name in ("start", "reset", "clear") if getattr(self.dut, name).value]
        if pulses:
            self.pulses.append(sum(pulses))


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(stall=[0.0, 0.5])
async def registers(dut, stall):
    """Every address reads as spec.host.registers says; addresses without a register read 0."""
    bench = await Bench(dut, stall).start()
    state = {Register.STATUS: 0x2A, Register.ERROR: 9, Register.ERROR_ADDRESS: 0x1BEEF}
    dut.status.value, dut.error.value, dut.error_address.value = state.values()
    counters = {Register.COUNTERS + 4 * k: value for k, value in enumerate(bench.counters)}
    known = CONSTANTS | state | counters
    for address in range(0, 1 << 12, 4):
        if address < 0x240 or address % 0x40 == 0:
            assert await bench.read(address) == known.get(address, 0), hex(address)
    assert not bench.pulses


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(stall=[0.0, 0.5])
async def commands(dut, stall):
    """A command is one pulse; other bytes, addresses and bits do nothing."""
    bench = await Bench(dut, stall).start()
    for value in range(16):
        await bench.write(Register.CONTROL, bytes([value, 0xFF, 0xFF, 0xFF]))
        await bench.write(Register.CONTROL, bytes([value]))
        assert bench.pulses == [value & 7] * 2 * bool(value & 7)
        bench.pulses.clear()
    await bench.write(Register.CONTROL + 1, b"\xff\xff\xff")
    for address in [*Register, 0x40, 0xFFC]:
        if address not in (Register.CONTROL, Register.PEER):
            await bench.write(address, b"\xff\xff\xff\xff")
    assert not bench.pulses
    for address, value in CONSTANTS.items():
        assert await bench.read(address) == value


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(stall=[0.0, 0.5])
async def peer(dut, stall):
    """PEER keeps what was written, byte by byte, and commands leave it alone."""
    bench = await Bench(dut, stall).start()
    await bench.write(Register.PEER, bytes([1, 2, 3, 4]))
    await bench.write(Register.PEER + 2, bytes([9]))
    await bench.write(Register.CONTROL, bytes([7]))
    assert await bench.read(Register.PEER) == 0x04090201 == int(dut.peer.value)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def reads_beside_writes(dut):
    """Reads and writes run at the same time."""
    bench = await Bench(dut, 0.3).start()
    reads = [cocotb.start_soon(bench.read(Register.COUNTERS + 4 * k)) for k in range(len(counters(CONFIG)))]
    writes = [cocotb.start_soon(bench.write(Register.CONTROL, bytes([1 << k % 3]))) for k in range(30)]
    assert [await read for read in reads] == bench.counters
    for write in writes:
        await write
    assert bench.pulses == [1 << k % 3 for k in range(30)]


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def strobes(dut):
    """A command byte whose write strobe is low is ignored, whatever its data wires hold."""
    await start(dut)
    bus = AxiLiteBus.from_prefix(dut, "s_axil")
    dut.s_axil_bready.value = 1
    addresses = AxiLiteAWSource(bus.write.aw, dut.clk, dut.rst)
    words = AxiLiteWSource(bus.write.w, dut.clk, dut.rst)
    for strobe in range(16):
        await addresses.send(AxiLiteAWTransaction(awaddr=Register.CONTROL, awprot=0))
        await words.send(AxiLiteWTransaction(wdata=0xFFFFFFFF, wstrb=strobe))
        started = 0
        for _ in range(8):
            await clock(dut)
            started += int(dut.start.value)
        assert started == strobe & 1, strobe
