"""Selects the words of totals that go to the converter."""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.lib.queue import Queue
from concord.hw.mvm.converter import conversion
from concord.hw.mvm.row_tiles import row_tile
from concord.spec.machine.config import Config


class ResultSequencer(wiring.Component):
    """Reads the words of each row of tiles as soon as its totals are complete.

    Args:
        config: The machine.
        depth:  Number of rows of tiles that may wait for their totals.

    Members:
        i: In(stream row_tile). Describes each row of tiles.
        totals: In(1). Pulse: the totals of the next row of tiles can be read from the next cycle on.
        select: Out(range). Word of the totals to read.
        address: Out(range). Address of its start values in BiasRf.
        o: Out {valid, bias, integer, out_scale, lanes}. Settings for the converter, one cycle after the other two.

    Timing:
        One word a cycle; the first one cycle after `totals`.
    """

    def __init__(self, config: Config, depth: int):
        self.config, self.depth = config, depth
        super().__init__({
            "i": In(stream.Signature(row_tile(config))), "totals": In(1), "select": Out(range(config.vector_words)),
            "address": Out(range(config.bias_words)), "o": Out(conversion(config))})

    def elaborate(self, platform):
        m = Module()
        config, lanes = self.config, self.config.mfu_lanes
        m.submodules.row_tiles = row_tiles = Queue(row_tile(config), self.depth)
        wiring.connect(m, wiring.flipped(self.i), row_tiles.i)
        head, active, end = row_tiles.o.p, Signal(), Signal()
        rows = head.rows - self.select * lanes
        m.d.comb += [
            end.eq(active & (self.select + 1 == head.words)), row_tiles.o.ready.eq(end),
            self.address.eq(head.bias_address + self.select)]
        with m.If(active):
            m.d.sync += self.select.eq(Mux(end, 0, self.select + 1))
        m.d.sync += [
            active.eq(self.totals | (active & ~end)), self.o.valid.eq(active), self.o.bias.eq(head.bias),
            self.o.integer.eq(head.integer), self.o.out_scale.eq(head.out_scale),
            self.o.lanes.eq(Mux(rows > lanes, lanes, rows))]
        return m
