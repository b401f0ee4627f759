"""The youngest of several chains of one pipeline."""

from collections.abc import Iterable

from amaranth import *
from concord.hw.lib.payloads import TICKET, Wait


def youngest(m: Module, name: str, candidates: Iterable[tuple]):
    """The `Wait` for the youngest ticket whose condition holds, from (wait, condition) pairs of one pipeline."""
    best = None
    for k, (wait, condition) in enumerate(candidates):
        this = Signal(Wait, name=f"{name}{k}")
        m.d.comb += [this.valid.eq(wait.valid & condition), this.ticket.eq(wait.ticket)]
        if best is not None:
            merged = Signal(Wait, name=f"{name}_upto{k}")
            newer = (this.ticket - best.ticket)[:TICKET].as_signed() > 0
            m.d.comb += [merged.valid.eq(this.valid | best.valid),
                         merged.ticket.eq(Mux(this.valid & (newer | ~best.valid), this.ticket, best.ticket))]
            this = merged
        best = this
    return best
