"""Testbench of hw.mvm.bias_rf: a memory of words of integers."""

from collections import deque

import cocotb
import numpy as np
from amaranth.hdl import signed
from amaranth.lib import data
from concord.hw.lib import message_payloads
from concord.hw.mvm.bias_rf import BiasRf
from concord.sim.drivers.bench import CONFIG, assert_equal, pack, unpack
from concord.sim.drivers.stream import StreamSource, clock, start
from concord.sim.stimulus.random_values import integers

MUTANTS = (  #: Lines that the campaign `mutants` breaks, one at a time: a test must fail.
    {"old": "write.en.eq(self.i.valid)", "new": "write.en.eq(self.i.valid & ~self.i.p.address[3])"},
)


@cocotb.test()
@cocotb.parametrize(stall=[0.0, 0.5])
async def reads_what_was_written(dut, stall):
    """Random words in random order; a word is readable in the cycle after its write, and a write is always taken."""
    rng, count = np.random.default_rng(cocotb.RANDOM_SEED), 400
    source = StreamSource(dut, "i", stall=stall)
    address = rng.integers(0, CONFIG.bias_words, count)
    values = integers(rng, CONFIG.bias_bits, (count, CONFIG.mfu_lanes))
    await start(dut)
    source.put(*pack(message_payloads.bias(CONFIG), {"address": address, "data": values}))
    memory, taken, checked = {}, 0, 0
    due = deque([None] * BiasRf.latency)  # words that reads must show, the oldest one first; None where undefined
    shape = data.ArrayLayout(signed(CONFIG.bias_bits), CONFIG.mfu_lanes)
    while taken < count:
        await clock(dut)
        wanted = due.popleft()
        if wanted is not None:
            assert_equal("o", unpack(shape, [int(dut.o.value)])[0], wanted)
            checked += 1
        asked, written = int(dut.address.value), None
        wanted = memory.get(asked)
        if dut.i__valid.value:
            assert dut.i__ready.value
            written = int(address[taken])
            memory[written] = values[taken].tolist()
            taken += 1
        due.append(None if asked == written else wanted)  # what a read in the cycle of the write gives is undefined
        # Half of the reads look for the latest write.
        dut.address.value = int(rng.integers(CONFIG.bias_words)) if written is None or rng.random() < 0.5 else written
    assert checked > count // 4
