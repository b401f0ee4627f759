"""Address ranges of the unfinished chains of a pipeline."""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2
from concord.hw.lib.jobs import TICKET, Wait, waiting, youngest

CHAINS = 4  #: Largest number of unfinished chains.


class RangeTable(wiring.Component):
    """Holds the range of each unfinished chain of a pipeline, and finds the youngest one that meets another range.

    Args:
        bits: Bits of an address; an end has one more.

    Members:
        note, ticket, first, stop: In. A chain with this ticket is dispatched, which uses the addresses `first` to
            `stop` - 1.
        seek_first, seek_stop: In. Another range.
        clear: In(1). Finished chains are forgotten; `found` changes only after cycles in which this is high.
        done: In. Number of finished chains.
        room: Out(1). There is room for the chain with `ticket`.
        found: Out(Wait). The youngest chain whose range meets the other one.

    Timing:
        A chain is noted in the second cycle after `note`. `room` is a cycle late; `found` is right 3 cycles after what
        it depends on, so that a register may follow within `LOOKUP`.
    """

    def __init__(self, bits: int):
        self.bits = bits
        super().__init__({
            "note": In(1), "ticket": In(TICKET), "first": In(bits), "stop": In(bits + 1), "seek_first": In(bits),
            "seek_stop": In(bits + 1), "clear": In(1), "done": In(TICKET), "room": Out(1), "found": Out(Wait)})

    def elaborate(self, platform):
        m = Module()
        layout = data.StructLayout({"valid": 1, "ticket": TICKET, "first": self.bits, "stop": self.bits + 1})
        chains = [Signal(layout, name=f"chain{k}") for k in range(CHAINS)]
        ahead = (self.ticket - CHAINS - self.done)[:TICKET].as_signed()  # the chain whose slot it takes is finished
        m.d.sync += self.room.eq(ahead <= 0)
        candidates = []
        for k, chain in enumerate(chains):
            now = Signal(name=f"now{k}")
            m.d.sync += now.eq(self.note & (self.ticket[:exact_log2(CHAINS)] == k))
            with m.If(self.clear):
                m.d.sync += chain.valid.eq(waiting(chain, self.done))
            with m.If(now):
                m.d.sync += [chain.valid.eq(1), chain.ticket.eq(self.ticket), chain.first.eq(self.first),
                             chain.stop.eq(self.stop)]
            candidates.append((chain, (chain.first < self.seek_stop) & (self.seek_first < chain.stop)))
        m.d.comb += self.found.eq(youngest(m, "found", candidates))
        return m
