# amaranth: UnusedElaboratable=no
"""Testbench of hw.trainer.store_engine: random copies to server memory, against golden."""

import cocotb
from concord.hw.dram.burst_reader import LONGEST
from concord.hw.trainer.store_engine import StoreEngine
from concord.sim.trainer.copy_bench import CopyBench
from concord.sim.trainer.copy_stand import CONFIG, CopyStand
from concord.spec.trainer.instructions import Space

CONFIGURATIONS = ("tiny",)
MUTANTS = (  #: Lines that the campaign `mutants` breaks, one at a time: a test must fail.
    {
        "file": "hw/trainer/copy_parts.py",
        "old": "source.p.view[name].eq(p.to[name])",
        "new": "source.p.view[name].eq(1)",
    },
    {"file": "hw/trainer/word_source.py", "old": "word.inside & ~job.zeros", "new": "word.inside"},
    {
        "file": "hw/trainer/server_port.py",
        "old": "(reader.error.valid | writer.error.valid)",
        "new": "reader.error.valid",
    },
    {
        "file": "hw/trainer/server_port.py",
        "old": "write_done.eq(writer.done)",
        "new": "write_done.eq(writer.range.valid & writer.range.ready & writer.range.p.last)",
    },
)


def component(_) -> CopyStand:
    """The engine with its memories, which no machine changes."""
    return CopyStand(StoreEngine())


@cocotb.test(timeout_time=100, timeout_unit="us")
@cocotb.parametrize((("stall", "latency"), [(0.0, 1), (0.4, 40)]))
async def copies_are_right(dut, stall, latency):
    """Of all kinds, and all memories afterwards."""
    bench = CopyBench(dut, "store", stall, latency)
    await bench.start()
    await bench.several(4)


@cocotb.test(timeout_time=100, timeout_unit="us")
async def a_reset_leaves_nothing_behind(dut):
    """At any moment."""
    bench = CopyBench(dut, "store", 0.2, 20)
    await bench.start()
    await bench.resets(4)


@cocotb.test(timeout_time=100, timeout_unit="us")
async def a_burst_fails(dut):
    """It is told, the copy ends, and those behind it are right."""
    bench = CopyBench(dut, "store", 0.1, 20)
    await bench.start()
    for at in 0, CONFIG.words - LONGEST:
        await bench.fails(at)
        await bench.several(1)
        assert not bench.failures


@cocotb.test(timeout_time=100, timeout_unit="us")
async def words_follow_each_other(dut):
    """One a cycle, and little more for the job; of accumulators, too."""
    bench = CopyBench(dut, "store")
    await bench.start()
    await bench.follow(Space.SERVER, Space.CHIP, 512, 90)
    await bench.follow(Space.SERVER, Space.ACCUMULATORS, 64, 90)
