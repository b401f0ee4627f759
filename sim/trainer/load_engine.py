# amaranth: UnusedElaboratable=no
"""Testbench of hw.trainer.load_engine: random copies from server memory, against golden."""

import cocotb
from concord.hw.dram.burst_reader import LONGEST
from concord.hw.trainer.load_engine import LoadEngine
from concord.sim.trainer.copy_bench import CopyBench
from concord.sim.trainer.copy_stand import CONFIG, CopyStand
from concord.spec.trainer.instructions import Space

CONFIGURATIONS = ("tiny",)
MUTANTS = (  #: Lines that the campaign `mutants` breaks, one at a time: a test must fail.
    {"file": "hw/trainer/range_joiner.py", "old": "(new.inside == run.inside) & ", "new": ""},
    {
        "file": "hw/trainer/range_joiner.py",
        "old": "Mux(there & ~gives, run.count, 0)",
        "new": "Mux(there, run.count, 0)",
    },
    {"file": "hw/trainer/word_walker.py", "old": "(view.jump2 == 1) & ~view.limit2.any()", "new": "(view.jump2 == 1)"},
    {
        "file": "hw/trainer/load_engine.py",
        "old": "runs.valid.eq(run.valid & (given.ready | ~run.p.inside))",
        "new": "runs.valid.eq(run.valid)",
    },
    {"file": "hw/trainer/load_engine.py", "old": "begun.eq(now != 1)", "new": "begun.eq(1)"},
    {
        "file": "hw/trainer/server_port.py",
        "old": "(reader.error.valid | writer.error.valid)",
        "new": "writer.error.valid",
    },
)


def component(_) -> CopyStand:
    """The engine with its memories, which no machine changes."""
    return CopyStand(LoadEngine())


@cocotb.test(timeout_time=100, timeout_unit="us")
@cocotb.parametrize((("stall", "latency"), [(0.0, 1), (0.4, 40)]))
async def copies_are_right(dut, stall, latency):
    """Of all kinds, and all memories afterwards."""
    bench = CopyBench(dut, "load", stall, latency)
    await bench.start()
    await bench.several(4)


@cocotb.test(timeout_time=100, timeout_unit="us")
async def a_reset_leaves_nothing_behind(dut):
    """At any moment."""
    bench = CopyBench(dut, "load", 0.2, 20)
    await bench.start()
    await bench.resets(4)


@cocotb.test(timeout_time=100, timeout_unit="us")
async def a_burst_fails(dut):
    """It is told, the copy ends, and those behind it are right."""
    bench = CopyBench(dut, "load", 0.1, 20)
    await bench.start()
    for at in 0, CONFIG.words - LONGEST:
        await bench.fails(at)
        await bench.several(1)
        assert not bench.failures


@cocotb.test(timeout_time=100, timeout_unit="us")
async def words_follow_each_other(dut):
    """One a cycle, and little more for the job; of accumulators, too."""
    bench = CopyBench(dut, "load")
    await bench.start()
    await bench.follow(Space.CHIP, Space.SERVER, 512, 20)
    await bench.follow(Space.ACCUMULATORS, Space.SERVER, 64, 100)
