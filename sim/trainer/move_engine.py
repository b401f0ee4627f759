# amaranth: UnusedElaboratable=no
"""Testbench of hw.trainer.move_engine: random copies on the chip, zeros and patches, against golden."""

import cocotb
from concord.hw.trainer.move_engine import MoveEngine
from concord.sim.trainer.copy_bench import CopyBench
from concord.sim.trainer.copy_stand import CopyStand
from concord.spec.trainer.instructions import Space

CONFIGURATIONS = ("tiny",)
MUTANTS = (  #: Lines that the campaign `mutants` breaks, one at a time: a test must fail.
    {"file": "hw/trainer/word_walker.py", "old": "moved & (~self.by_rows | o.p.final)", "new": "moved"},
    {
        "file": "hw/trainer/word_walker.py",
        "old": "Mux(on_chip, Mux(ends, view.block, view.plane), 0)",
        "new": "Mux(ends, view.block, view.plane)",
    },
    {"file": "hw/trainer/word_source.py", "old": "far.eq(Mux(inside, ", "new": "far.eq(Mux(1, "},
    {"file": "hw/trainer/word_source.py", "old": "under_way + 2 <= self.room", "new": "under_way <= self.room"},
    {"file": "hw/trainer/word_source.py", "old": "~ask.first | self.row.ready", "new": "self.row.ready"},
    {"file": "hw/trainer/window_walker.py", "old": "rows.view.limit2.eq(0)", "new": "rows.view.limit2.eq(view.limit2)"},
    {"file": "hw/trainer/window_walker.py", "old": "edge & (tail < high)", "new": "0"},
    {"file": "hw/trainer/window_walker.py", "old": "Mux(part, behind[:4], ", "new": "Mux(0, behind[:4], "},
    {"file": "hw/trainer/window_gatherer.py", "old": "Mux(begin, 0, made)", "new": "made"},
    {"file": "hw/trainer/word_sink.py", "old": "sent & rows, ROW_ADDS", "new": "sent, ROW_ADDS"},
    {"file": "hw/trainer/word_sink.py", "old": "add.plain.eq(job.view.blocks == 2)", "new": "add.plain.eq(1)"},
    {"file": "hw/trainer/word_sink.py", "old": "job.zeros | ((step.plane", "new": "((step.plane"},
)


def component(_) -> CopyStand:
    """The engine with its memories, which no machine changes."""
    return CopyStand(MoveEngine())


@cocotb.test(timeout_time=100, timeout_unit="us")
@cocotb.parametrize(stall=[0.0, 0.4])
async def copies_are_right(dut, stall):
    """Between all memories, and all of them afterwards."""
    bench = CopyBench(dut, "move", stall)
    await bench.start()
    await bench.follow(Space.CHIP, Space.ACCUMULATORS, 64, 1000)  # words come faster than they are written
    await bench.several(8)


@cocotb.test(timeout_time=100, timeout_unit="us")
async def a_reset_leaves_nothing_behind(dut):
    """At any moment."""
    bench = CopyBench(dut, "move", 0.2)
    await bench.start()
    await bench.resets(8)


@cocotb.test(timeout_time=100, timeout_unit="us")
async def words_follow_each_other(dut):
    """One a cycle, and little more for the job; of accumulators, too."""
    bench = CopyBench(dut, "move")
    await bench.start()
    await bench.follow(Space.CHIP, Space.ACCUMULATORS, 64, 30)
    await bench.follow(Space.ACCUMULATORS, Space.CHIP, 64, 30)
