"""Words between the parts of a concatenation: they must be zero, since they count in the exponent of a block.

A part that fills no whole number of native vectors leaves such words. They are zero before the first inference, and
stay so unless their place is used for something else as well.
"""

from collections.abc import Sequence

import numpy as np
from concord.compiler.emit.storage import Numbers
from concord.compiler.lib.allocation import Place
from concord.compiler.lib.build import Build
from concord.spec.isa.instructions import Instruction, Op, Reg
from concord.spec.machine.config import Config


def gaps(config: Config, numbers: Numbers) -> list[range]:
    """The words of a pixel that no part writes."""
    used = np.unique(numbers.value.places // config.mfu_lanes)
    missing = [range(int(a) + 1, int(b)) for a, b in zip(used, used[1:], strict=False)]
    return [gap for gap in missing if gap]


def overwritten(config: Config, every: Sequence[Numbers], others: Sequence[Numbers]) -> list[Numbers]:
    """The numbers with gaps whose place other numbers use as well."""
    buffers = [one.buffer for one in (*every, *others)]
    return [one for one in every if gaps(config, one) and any(
        other is not one.buffer and other.mem == one.buffer.mem and other.address < one.buffer.end
        and one.buffer.address < other.end for other in buffers)]


def longest(config: Config, every: Sequence[Numbers]) -> int:
    """The largest number of words of a gap."""
    return max((len(gap) for one in every for gap in gaps(config, one)), default=0)


def emit(build: Build, numbers: Numbers, zeros: Place):
    """Add the chains that write zeros between the parts of all pixels."""
    count, buffer = numbers.value.pixels, numbers.buffer
    for gap in gaps(build.config, numbers):
        registers = {Reg.ITERATIONS: count, Reg.ITERATIONS_X: count}
        if count > 1:
            registers[Reg.STRIDE_OUT] = numbers.words
        build.program.chain(
            Instruction(op=Op.V_RD, mem=zeros.mem, a=zeros.address),
            Instruction(op=Op.V_WR, mem=buffer.mem, a=buffer.address + gap.start, inc=int(count > 1)),
            rows=len(gap) * build.config.mfu_lanes, registers=registers)
