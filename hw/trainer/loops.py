"""The loops around the present instruction."""

from itertools import pairwise

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from concord.spec.trainer.config import LOOP_DEPTH
from concord.spec.trainer.instructions import FIELDS, TrainerOp


class Loops(wiring.Component):
    """Counts the passes of up to `LOOP_DEPTH` loops inside each other.

    Args:
        bits: Bits of the address of an instruction.

    Members:
        enter: In(1). A `loop` is executed, with `count` passes of the body at `body`.
        leave: In(1). An `end_loop` is executed. `enter` and `leave` need legal nesting and are not high together.
        clear: In(1). All loops are left.
        count, body: In. Number of passes, at least 1, and address of the first instruction of the body.
        again: Out(1). The innermost loop has another pass after its present one.
        first: Out. Address of the body of the innermost loop, 0 outside of all loops.
        full, empty: Out(1). There are as many loops as there may be, or none.

    Timing:
        Outputs change in the cycle after `enter`, `leave` or `clear`.
    """

    def __init__(self, bits: int):
        self.bits, self.counted = bits, FIELDS[TrainerOp.LOOP]["count"].width
        super().__init__({
            "enter": In(1), "leave": In(1), "clear": In(1), "count": In(self.counted), "body": In(bits),
            "again": Out(1), "first": Out(bits), "full": Out(1), "empty": Out(1)})

    def elaborate(self, platform):
        m = Module()
        depth = Signal(range(LOOP_DEPTH + 1))
        left = [Signal(self.counted, name=f"left{k}") for k in range(LOOP_DEPTH)]  # the innermost loop first
        body = [Signal(self.bits, name=f"body{k}") for k in range(LOOP_DEPTH)]
        m.d.comb += [self.again.eq(left[0] != 1), self.first.eq(Mux(self.empty, 0, body[0])),
                     self.full.eq(depth == LOOP_DEPTH), self.empty.eq(depth == 0)]
        with m.If(self.enter):
            m.d.sync += [further.eq(nearer) for kept in (left, body) for nearer, further in pairwise(kept)]
            m.d.sync += [left[0].eq(self.count), body[0].eq(self.body), depth.eq(depth + 1)]
        with m.Elif(self.leave & self.again):
            m.d.sync += left[0].eq(left[0] - 1)
        with m.Elif(self.leave):
            m.d.sync += [nearer.eq(further) for kept in (left, body) for nearer, further in pairwise(kept)]
            m.d.sync += depth.eq(depth - 1)
        with m.If(self.clear):
            m.d.sync += depth.eq(0)
        return m
