"""The loops around the present instruction."""

from itertools import pairwise

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from concord.spec.isa.instructions import END_BITS, LOOP_DEPTH, REGISTER_BITS


class LoopStack(wiring.Component):
    """Counts the passes of up to `LOOP_DEPTH` loops inside each other.

    Members:
        enter: In(1). A `loop` is executed, with `count` passes of the body at `body`.
        back: In(1). An `end_loop` is executed. `enter` and `back` need legal nesting and are not high together.
        count, body: In. Number of passes, at least 1, and address of the first instruction of the body.
        again: Out(1). The innermost loop has another pass, from `target`, after its present one.
        target: Out. Address of the body of the innermost loop.

    Timing:
        `target` changes in the cycle after `enter` or `back`, and `again` a cycle later.
    """

    def __init__(self):
        super().__init__({
            "enter": In(1), "back": In(1), "count": In(REGISTER_BITS), "body": In(END_BITS),
            "again": Out(1), "target": Out(END_BITS)})

    def elaborate(self, platform):
        m = Module()
        left = [Signal(REGISTER_BITS, name=f"left{k}") for k in range(LOOP_DEPTH)]  # the innermost loop first
        body = [Signal(END_BITS, name=f"body{k}") for k in range(LOOP_DEPTH)]
        m.d.sync += self.again.eq(left[0] != 1)
        m.d.comb += self.target.eq(body[0])
        with m.If(self.enter):
            m.d.sync += [further.eq(nearer) for kept in (left, body) for nearer, further in pairwise(kept)]
            m.d.sync += [left[0].eq(self.count), body[0].eq(self.body)]
        with m.Elif(self.back & self.again):
            m.d.sync += left[0].eq(left[0] - 1)
        with m.Elif(self.back):
            m.d.sync += [nearer.eq(further) for kept in (left, body) for nearer, further in pairwise(kept)]
        return m
