"""Finds the change of a tensor's exponent after a pass: golden.lazy.lazy_update.next_change in hardware."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.lazy.lazy_step import change_shape, joint_shape
from concord.spec.numbers.lazy import E_MAX, E_MIN, EXPONENT_BITS, LazyFormat, Repeat

COUNT = 32  #: Number of bits of a count, which saturates.
COUNTS = ("steps", "rounded", "saturations")


def pass_summary(fmt: LazyFormat) -> data.StructLayout:
    """Summary of a pass: exponents, extremes of the negative joint values, flags that any element sets, and counts."""
    return data.StructLayout({
        "exponent": EXPONENT_BITS, "update_exponent": EXPONENT_BITS, "changes": 1, "lowest": joint_shape(fmt),
        "highest": joint_shape(fmt), "outside": 1, "large": 1, "holds": 1, "updated": 1,
        **dict.fromkeys(COUNTS, COUNT)})


def pass_answer(fmt: LazyFormat) -> data.StructLayout:
    """Answer of a pass; `repeat` holds the bits of `spec.numbers.lazy.Repeat`."""
    return data.StructLayout({"repeat": len(Repeat), "change": change_shape(fmt), **dict.fromkeys(COUNTS, COUNT)})


class ExponentSearch(wiring.Component):
    """Tries one change after another until the mantissas of both extremes are in range.

    Args:
        fmt: Widths of the lazy update.

    Members:
        i: In(stream {exponent, update_exponent, changes, lowest, highest, outside, large, holds, updated, counts}).
            Summaries of passes.
        o: Out(stream {repeat, change, counts}). Answers of passes.
        changed: Out(1). The pass of the present answer has changed the exponent.

    Timing:
        2 cycles for each pass. Where an element is out of range, 1 more, and 1 for each step of the change.
    """

    def __init__(self, fmt: LazyFormat):
        self.fmt = fmt
        super().__init__({"i": In(stream.Signature(pass_summary(fmt))), "o": Out(stream.Signature(pass_answer(fmt))),
                          "changed": Out(1)})

    def elaborate(self, platform):
        m = Module()
        summary, fmt = self.i.p, self.fmt
        # Magnitudes of both extremes. Shifted right by d - 1, they are floor(x / 2**d) and the bit below, so that
        # one comparison tells whether round(round(x / 2**d) / 2**t) is in range.
        below, above = Signal(fmt.joint_bits), Signal(fmt.joint_bits)
        fits = Signal()  # both extremes fit with the present change
        m.d.sync += fits.eq((below < self._bound(-fmt.lowest)) & (above < self._bound(fmt.highest)))
        most, room = Signal(change_shape(fmt)), Signal(signed(EXPONENT_BITS + 1))
        change, fresh, searches = Signal(change_shape(fmt)), Signal(), Signal()
        counts = {name: Signal(COUNT, name=name) for name in COUNTS}
        sinks = ~summary.large & ((summary.highest > 0) | (summary.lowest < 0)) & (summary.exponent != 0)
        m.d.comb += [room.eq(E_MAX - E_MIN - summary.exponent),
                     searches.eq(summary.outside & ~summary.changes & (room != 0))]
        with m.FSM():
            with m.State("TAKE"):
                m.d.comb += self.i.ready.eq(1)
                m.d.sync += [
                    below.eq(Mux(summary.highest < 0, 0, summary.highest)),
                    above.eq(Mux(summary.lowest > 0, 0, -summary.lowest)),
                    most.eq(Mux(room > fmt.changes[-1], fmt.changes[-1], room)),
                    change.eq(Mux(sinks & ~summary.outside & ~summary.changes, -1, 0)),
                    self.changed.eq(summary.changes),
                    fresh.eq(~summary.holds & summary.updated & ~summary.changes
                             & (summary.exponent != summary.update_exponent))]
                m.d.sync += [counts[name].eq(summary[name]) for name in COUNTS]
                with m.If(self.i.valid):
                    m.next = "ANSWER"
                    with m.If(searches):
                        m.next = "SEARCH"
            with m.State("SEARCH"):
                m.d.sync += [below.eq(below >> 1), above.eq(above >> 1)]
                with m.If((change != 0) & (fits | (change == most))):
                    m.next = "ANSWER"
                with m.Else():
                    m.d.sync += change.eq(change + 1)
            with m.State("ANSWER"):
                m.d.comb += self.o.valid.eq(1)
                with m.If(self.o.ready):
                    m.next = "TAKE"
        m.d.comb += [self.o.p.change.eq(change), self.o.p.repeat.eq(Cat(change != 0, fresh))]
        m.d.comb += [self.o.p[name].eq(count) for name, count in counts.items()]
        return m

    def _bound(self, mantissa: int) -> int:
        """Bound on twice a joint value, rounded down, below which the mantissa of the value is at most this."""
        return 2 * ((mantissa + 1 << self.fmt.shift) - (1 << self.fmt.shift - 1)) - 1
