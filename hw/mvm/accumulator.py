"""Accumulators, which add the results of the tile engines and hold the totals for the converter."""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from concord.hw.lib.arithmetic import adder_tree
from concord.hw.lib.pipeline import copies, delay, delay_control
from concord.hw.lib.timekeeper import rows as rows_of
from concord.hw.mvm.overflow import EXCESS, OverflowCounter
from concord.hw.mvm.row_groups import along, lateness
from concord.hw.mvm.row_tiles import sums
from concord.hw.mvm.tile_engine import result_bits
from concord.spec.machine.config import Config


class Accumulator(wiring.Component):
    """Adds up the beats of a row of tiles: total[r] = wrap(sum of the engines' results for row r).

    With `partial_sums`, beats say to which of so many running sums they add, and whether they begin it.

    Totals are kept apart from the running sums, so that the next row of tiles adds up while they are picked up word by
    word; whoever lets the beats go leaves time enough for that.

    Args:
        config: The machine.

    Members:
        terms: In. Results of the tile engines, [engine][row], `terms_after` cycles and the row's lateness
            (`hw.mvm.row_groups`) after what says of them:
        valid, last: In(1). `terms` hold a beat; it is the last beat of a row of tiles.
        rows: In. Number of rows whose overflow events count.
        slot, first: In. Running sums to add to, and whether the beat begins them; with `partial_sums`.
        totals: Out(1). Pulse: totals of a row of tiles can be picked up, the first word from the next cycle on, each
            other word a cycle after the word before it.
        select: In(range). Word of the totals to read.
        o: Out. Totals [lane] of that word, two cycles later.
        partial, excess: Out. Number of sums that did not fit and largest excess; 0 if the configuration does not count.

    Timing:
        One beat a cycle. `totals` comes `latency` cycles after `last`.
    """

    terms_after = 1

    def __init__(self, config: Config):
        self.config, self.width = config, result_bits(config)
        super().__init__({
            "terms": In(data.ArrayLayout(data.ArrayLayout(signed(self.width), rows_of(config)), config.tile_engines)),
            "valid": In(1), "last": In(1), "rows": In(range(config.native_dim + 1)),
            **{name: In(shape) for name, shape in sums(config).items()},
            "totals": Out(1), "select": In(range(config.vector_words)),
            "o": Out(data.ArrayLayout(signed(config.sum_bits), config.mfu_lanes)),
            "partial": Out(range(config.native_dim + 1)), "excess": Out(EXCESS)})

    @property
    def latency(self) -> int:
        """Cycles of the tree that adds the results of the engines."""
        return (self.config.tile_engines - 1).bit_length()

    def elaborate(self, platform):
        m = Module()
        config, bits = self.config, self.config.sum_bits
        valid = delay_control(m, self.valid, self.latency)
        last = delay(m, self.last, self.latency)
        m.d.comb += self.totals.eq(valid & last)
        exact, totals = [], []
        sides = [delay(m, Cat(getattr(self, name) for name in sums(config)), self.latency)] * bool(config.partial_sums)
        rows = along(m, Cat(valid, self.totals, *sides), config, reset_less=False)
        for r, (there, complete, *side) in enumerate(rows):
            nothing = [Const(0, signed(self.width))] * ((1 << self.latency) - config.tile_engines)
            term = adder_tree(m, [*(engine[r] for engine in self.terms), *nothing])
            total = Signal(signed(bits), name=f"total{r}", reset_less=True)
            if config.partial_sums:
                exact.append(self._kept(m, r, there, Cat(side), term))
            else:
                kept = Signal(signed(bits), name=f"sum{r}")  # a reset in the middle of a row of tiles clears it
                exact.append(kept + term)
                with m.If(complete):  # the flip-flops' own reset takes no gates, a choice of 0 would
                    m.d.sync += kept.eq(0)
                with m.Elif(there):
                    m.d.sync += kept.eq(exact[-1])
            with m.If(complete):
                m.d.sync += total.eq(exact[-1])
            totals.append(total)
        for lane, select in enumerate(copies(m, self.select, config.mfu_lanes)):
            m.d.sync += self.o[lane].eq(Cat(totals[lane::config.mfu_lanes]).word_select(select, bits).as_signed())

        if config.count_overflows:
            width, late = max(len(value) for value in exact), lateness(config)
            exact = [delay(m, value, late[-1] - each) for value, each in zip(exact, late, strict=True)]
            after = self.terms_after + late[-1]
            m.submodules.overflow = overflow = OverflowCounter(config.native_dim, width, bits)
            m.d.comb += [
                overflow.valid.eq(delay_control(m, valid, after)),
                overflow.used.eq(delay(m, self.rows, self.latency + after)), overflow.values.eq(Cat(exact)),
                self.partial.eq(overflow.misfits), self.excess.eq(overflow.excess)]
        return m

    def _kept(self, m, r, there, side, term):
        """Add a term of row r to one of its running sums. Returns the sum."""
        bits, slot = self.config.sum_bits, side[:-1]
        m.submodules[f"sums{r}"] = sums_of_row = Memory(shape=signed(bits), depth=self.config.partial_sums, init=[])
        write, read = sums_of_row.write_port(), sums_of_row.read_port(domain="comb")
        exact = Mux(side[-1], 0, read.data) + term
        m.d.comb += [read.addr.eq(slot), write.addr.eq(slot), write.en.eq(there), write.data.eq(exact)]
        return exact
