"""Addresses of the columns of products from VectorRf."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for
from concord.hw.lib.jobs import TICKET, column_job
from concord.hw.lib.lookahead import Turns
from concord.hw.mvm.vector_rf import entry_address
from concord.spec.isa.instructions import REGISTER_BITS
from concord.spec.machine.config import Config

#: Loops of the walk, from the innermost one. The first three run through the columns of one row of tiles.
LOOPS = ("vector", "x", "y", "row_tile", "iteration", "row_of_iterations")
COLUMNS = 3  # number of loops that run through columns


def column_addresses(config: Config) -> data.StructLayout:
    """Addresses of the first `columns` columns of a step; `older` is the youngest writer that they may wait for."""
    return data.StructLayout({
        "addresses": data.ArrayLayout(entry_address(config), config.tile_engines),
        "columns": range(config.tile_engines + 1), "older": TICKET})


class ColumnWalker(wiring.Component):
    """Walks through the columns of a product: iterations, their rows of tiles, and the lines and pixels of a window.

    Column c = (y*WindowX + x)*WindowVectors + u of row of tiles r lies at lo + u + x*step + y*pitch + r*group plus the
    strides of the iteration.

    Args:
        config: The machine.

    Members:
        job: In(stream column_job). One product; taken when its walk begins.
        o: Out(stream column_addresses). Steps in order, with `tile_engines` columns, or fewer at the end of a row of
            tiles.

    Timing:
        One step a cycle, products in a row included; the first one cycle after `job` is taken.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({"job": In(stream.Signature(column_job(config))),
                          "o": Out(stream.Signature(column_addresses(config)))})

    def elaborate(self, platform):
        m = Module()
        config, p, o = self.config, Signal(column_job(self.config)), self.o.p
        width = bits_for(config.matrix_tiles)  # no product has more columns or rows of tiles
        widths = [width] * 4 + [REGISTER_BITS]
        # The turns of each loop so far, from 0 on, whether the present one is the last, and the address at which it has
        # begun. The last turn is found one turn ahead.
        position = data.StructLayout({"turn": data.StructLayout(dict(zip(LOOPS, widths, strict=False))),
                                   "last": data.StructLayout(dict.fromkeys(LOOPS[:-1], 1)),
                                   "base": data.StructLayout(dict.fromkeys(LOOPS, entry_address(config)))})
        self.counts = dict(zip(LOOPS, self._counts(self.job.p, width), strict=False))
        self.single = Signal(data.StructLayout(dict.fromkeys(LOOPS[:-1], 1)))  # loops of one turn
        self.limit = Signal(position["turn"].shape)  # number of the last turn but one
        strides = (1, p.window.step, p.window.pitch, p.window.group, p.stride_x, p.stride_y)
        now, iteration, active, go = Signal(position), Turns("all_iterations"), Signal(), Signal()
        advance, begins = Signal(), Signal()  # the position changes; to the first one of the next job

        at, there, ended = now, [Const(1)], Const(0)
        for j in range(config.tile_engines):
            m.d.comb += o.addresses[j].eq(at.base.vector)
            ends = [at.last[name] for name in LOOPS[:-1]]
            ended |= Cat(ends[:COLUMNS]).all()
            there.append(~ended)
            if len(there) <= config.tile_engines:
                at = self._advance(m, at, ends[:COLUMNS - 1], strides)
        whole = ended & ends[COLUMNS]
        following = self._advance(m, at, [end | ended for end in ends[:COLUMNS]] + ends[COLUMNS:], strides,
                                  load=begins)

        m.d.comb += [
            o.columns.eq(sum(there[:-1])), o.older.eq(p.older), self.o.valid.eq(active), go.eq(active & self.o.ready),
            advance.eq(~active | go), begins.eq(~active | (whole & iteration.last)),
            self.job.ready.eq(advance & begins)]
        with m.If(advance):
            m.d.sync += now.eq(following)
            with m.If(whole):
                m.d.sync += iteration.step()
            with m.If(begins):
                m.d.sync += [active.eq(self.job.valid), p.eq(self.job.p), *iteration.begin(self.job.p.iterations)]
                for name, count in self.counts.items():
                    m.d.sync += [self.single[name].eq(count == 1), self.limit[name].eq(count - 2)]
        return m

    def _counts(self, job, width: int) -> tuple:
        """Number of turns of each loop but the last one."""
        window = job.window
        return window.vectors[:width], window.x[:width], window.y[:width], job.row_tiles[:width], job.iterations_x

    def _advance(self, m, at, ends, strides, load=None):
        """The position after `at`: the first loop whose entry in `ends` is low makes a turn, or the loop after them.

        Where there is `load` and it is high, it is the first position of the next job. One adder serves all loops, and
        the load too.
        """
        loops = LOOPS[:len(ends) + 1]
        begun = [Cat(ends[:k]).all() for k in range(len(loops))]  # a turn of this loop begins
        turns = [started & ~end for started, end in zip(begun, [*ends, Const(0)], strict=True)]
        *inner, (origin, step) = ((at.base[name], stride) for name, stride in zip(loops, strides, strict=False))
        for end, (address, stride) in reversed(list(zip(ends, inner, strict=True))):
            origin, step = Mux(end, origin, address), Mux(end, step, stride)
        if load is not None:
            begun, turns = [load | started for started in begun], [turn & ~load for turn in turns]
            origin, step = Mux(load, self.job.p.lo, origin), Mux(load, 0, step)
        following, base, stride = Signal.like(at), *(Signal(entry_address(self.config)) for _ in range(2))
        m.d.comb += [base.eq(origin), stride.eq(step), following.eq(at)]
        for name, started, turn in zip(loops, begun, turns, strict=True):
            with m.If(started):
                m.d.comb += following.base[name].eq(base + stride)
                if name in self.counts:
                    single = self.single[name]
                    if load is not None:
                        single = Mux(load, self.counts[name] == 1, single)
                    m.d.comb += [following.turn[name].eq(Mux(turn, at.turn[name] + 1, 0)),
                                 following.last[name].eq(Mux(turn, at.turn[name] == self.limit[name], single))]
        return following
