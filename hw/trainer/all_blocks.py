"""The rows of all blocks of a view, one block after the other."""

from amaranth import *
from concord.hw.lib.arithmetic import loaded_sum
from concord.hw.trainer.row_walker import RowWalker
from concord.hw.trainer.wires import ADDRESS


def all_blocks(m: Module, platform, name: str, view, start, step) -> RowWalker:
    """A row walker, the submodule `name`, that begins the next block of a view behind its last row.

    Args:
        start, step: Those of the walker; taps and the offset are the caller's.
    """
    m.submodules[name] = walker = RowWalker()
    block, ends = Signal(ADDRESS, name=f"{name}_block"), Signal()
    first = loaded_sum(m, platform, start, view.first, block, view.block)
    m.d.comb += [ends.eq(step & walker.last), walker.view.eq(view), walker.view.first.eq(first),
                 walker.start.eq(start | ends), walker.step.eq(step)]
    with m.If(start | ends):
        m.d.sync += block.eq(first)
    return walker
