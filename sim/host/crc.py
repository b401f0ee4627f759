"""Testbench of hw.host.crc against zlib."""

import random
import zlib

import cocotb
from concord.sim.drivers.bench import assert_equal
from concord.sim.drivers.stream import clock, start

MUTANTS = (  #: Lines that the campaign `mutants` breaks, one at a time: a test must fail.
    {"old": "self.start.replicate(32)", "new": "Const(0, 32)"},
)


@cocotb.test()
async def matches_zlib(dut):
    """Random sequences of beats, with idle cycles in between."""
    rng = random.Random(cocotb.RANDOM_SEED)
    await start(dut)
    for _ in range(300):
        taken = b""
        for first in [True] + [False] * rng.randrange(20):
            beat = rng.getrandbits(len(dut.data))
            dut.data.value, dut.start.value, dut.valid.value = beat, first, 1
            await clock(dut)
            dut.valid.value = 0
            dut.data.value, dut.start.value = rng.getrandbits(len(dut.data)), rng.getrandbits(1)
            for _ in range(rng.randrange(3)):
                await clock(dut)
            taken += beat.to_bytes(len(dut.data) // 8, "little")
        dut.valid.value = 0
        await clock(dut)
        assert_equal("crc", int(dut.crc.value), zlib.crc32(taken), message=taken.hex())
