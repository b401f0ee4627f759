# amaranth: UnusedElaboratable=no
"""Testbench of hw.accelerator.window_router: a host, and registers in each window that remember what reaches them."""

import random

import cocotb
from cocotbext.axi import AxiLiteBus, AxiLiteRam, AxiResp
from concord.hw.accelerator.window_router import WindowRouter
from concord.sim.drivers.axi_stream import lite_master, pauses
from concord.sim.drivers.stream import start
from concord.spec.accelerator.registers import WINDOW

CONFIGURATIONS = TESTED = ("tiny",)
CORES = 3
MUTANTS = (  #: Lines that the campaign `mutants` breaks, one at a time: a test must fail.
    {"old": "there.eq(opened & Cat(given.values()).all())", "new": "there.eq(0)"},
    {"old": "there.eq(opened & Cat(given.values()).all())", "new": "there.eq(opened)"},
    {"old": "with m.If(opened & (window == number)):", "new": "with m.If(window == number):"},
    {"old": "with m.If(opened & (window == number)):", "new": "with m.If(opened):"},
    {"old": "wire[f\"{channel}valid\"].eq(host[f\"{channel}valid\"] & ~given[channel])",
     "new": "wire[f\"{channel}valid\"].eq(host[f\"{channel}valid\"])"},
    {"old": "opened & ready[channel] & ~given[channel]", "new": "opened & ready[channel]"},
    {"old": "host[f\"{channel}valid\"] & ready[channel]", "new": "ready[channel]"},
    {"old": "ends.eq(there & host[f\"{answer}ready\"])", "new": "ends.eq(there)"},
)


def component(_) -> WindowRouter:
    """A router of a few windows."""
    return WindowRouter(CORES)


async def begin(dut, stall: float) -> tuple:
    """The host and the registers of all windows, after reset."""
    await start(dut)
    windows = []
    for number in range(CORES + 1):
        ram = AxiLiteRam(AxiLiteBus.from_prefix(dut, f"window{number}"), dut.clk, dut.rst, size=WINDOW)
        write, read = ram.write_if, ram.read_if
        channels = (write.aw_channel, write.w_channel, write.b_channel, read.ar_channel, read.r_channel)
        for part in (write, read):
            part.log.setLevel("WARNING")
        for index, channel in enumerate(channels if stall else ()):
            channel.set_pause_generator(pauses(cocotb.RANDOM_SEED + 5 * number + index, stall))
        windows.append(ram)
    return lite_master(dut, "s_axil", cocotb.RANDOM_SEED, stall), windows


@cocotb.test(timeout_time=20, timeout_unit="us")
@cocotb.parametrize(stall=[0.0, 0.5])
async def accesses_reach_their_window(dut, stall):
    """Random reads and writes of all windows, side by side; absent windows read 0."""
    chance = random.Random(cocotb.RANDOM_SEED)
    host, windows = await begin(dut, stall)
    contents = [bytearray(chance.randbytes(WINDOW)) for _ in windows]
    for window, bytes_ in zip(windows, contents, strict=True):
        window.write(0, bytes(bytes_))
    written = set()

    async def write(address: int, data: bytes):
        done = await host.write(address, data)
        assert done.resp == AxiResp.OKAY

    async def read(address: int):
        done = await host.read(address, 4)
        window, offset = divmod(address, WINDOW)
        assert done.resp == AxiResp.OKAY
        assert done.data == (contents[window][offset:offset + 4] if window < len(contents) else bytes(4))

    tasks = []
    for _ in range(150):
        address = chance.randrange(0, 1 << 16, 4) if chance.random() < 0.2 else (
            chance.randrange(CORES + 1) * WINDOW + chance.randrange(0, WINDOW, 4))
        if address in written:
            continue
        written.add(address)
        if chance.random() < 0.5:
            tasks.append(cocotb.start_soon(read(address)))
            continue
        part, count = (0, 4) if chance.random() < 0.5 else (chance.randrange(4), 1)
        data, (window, offset) = chance.randbytes(count), divmod(address, WINDOW)
        if window < len(contents):
            contents[window][offset + part:offset + part + count] = data
        tasks.append(cocotb.start_soon(write(address + part, data)))
    for task in tasks:
        await task
    assert [window.read(0, WINDOW) for window in windows] == [bytes(bytes_) for bytes_ in contents]
