"""Testbench of tests.sim.test_build: reads and writes of cocotb around a rising edge, and the stream drivers."""

import os

import cocotb
import numpy as np
from amaranth.hdl import signed
from amaranth.lib import data
from cocotb.triggers import RisingEdge
from concord.sim.drivers.bench import pack, unpack
from concord.sim.drivers.stream import Sink, StreamSource, start

PAIR = data.StructLayout({"left": signed(5), "right": data.ArrayLayout(3, 2), "wide": 70})


@cocotb.test()
async def read_after_edge(dut):
    """A read just after RisingEdge shows what a flip-flop at that edge sees; a write lands before the next edge."""
    await start(dut)
    edge = RisingEdge(dut.clk)
    await edge
    for value in (5, 9, 13):
        dut.value.value = value
        await edge
        assert dut.value.value == value
        assert dut.copy.value != value, "the register shows a new value at the edge that writes it"
        await edge
        assert dut.copy.value == value
        count = int(dut.count.value)
        await edge
        assert int(dut.count.value) == count + 1


@cocotb.test()
@cocotb.parametrize(stall=[0.0, 0.5])
async def streams(dut, stall):
    """Every payload arrives in order; without stalls, one in each cycle."""
    rng = np.random.default_rng(cocotb.RANDOM_SEED)
    source = StreamSource(dut, "i", seed=cocotb.RANDOM_SEED, stall=stall)
    sink = Sink(dut, "o", seed=cocotb.RANDOM_SEED, stall=stall)
    await start(dut)
    count = 200
    wide = np.array([int.from_bytes(rng.bytes(8)) << 3 | 1 for _ in range(count)], object)
    sent = {"left": rng.integers(-16, 16, count), "right": rng.integers(0, 8, (count, 2)), "wide": wide}
    source.put(*pack(PAIR, sent))
    await RisingEdge(dut.clk)
    before = int(dut.count.value)
    got = unpack(PAIR, await sink.receive(count))
    assert all((got[key] == sent[key]).all() for key in sent)
    cycles = int(dut.count.value) - before
    assert cycles > 2 * count if stall else cycles <= count + 4, cycles
    assert os.environ["NOTE"] == "given"
