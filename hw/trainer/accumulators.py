"""The accumulators of a trainer: rows of exact sums, which engines read, and to which they add."""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from concord.hw.lib.arithmetic import UNCHECKED, gated_sum
from concord.hw.lib.pipeline import delay, delay_control
from concord.hw.trainer.grants import chosen, first
from concord.hw.trainer.wires import ROW, ROW_LATENCY, RowAdd, RowAnswer
from concord.spec.numbers.lazy import ACCUMULATOR_BITS
from concord.spec.trainer.config import LANES


class Accumulators(wiring.Component):
    """Hold rows of 16 lanes and the plain lane, with one port that reads and one that writes.

    A cycle serves one reader and one adder; readers come first, then ports in their order. To add takes the port that
    reads, so it waits for readers, but for what is `fresh`.

    Args:
        rows:    Number of rows.
        readers: Number of ports that read.
        adders:  Number of ports that add or write.

    Members:
        row0, ...: In(stream of a row). Port 0 comes first.
        sums0, ...: Out(RowAnswer). ROW_LATENCY cycles after the row was taken.
        row_add0, ...: In(stream of RowAdd). Port 0 comes first.

    Timing:
        Reads and adds that are taken `latency` cycles after an add see it; the same row must not be added to before
        that, and what a read of it yields is either one. A reset does not change the rows, but for adds under way.
    """

    latency = 4  #: At most ROW_ADDS.

    def __init__(self, rows: int, readers: int, adders: int):
        self.rows, self.readers, self.adders = rows, readers, adders
        super().__init__({
            **{f"row{k}": In(stream.Signature(ROW)) for k in range(readers)},
            **{f"sums{k}": Out(RowAnswer) for k in range(readers)},
            **{f"row_add{k}": In(stream.Signature(RowAdd)) for k in range(adders)}})

    def elaborate(self, platform):
        m = Module()
        reads, answers, adds = ([getattr(self, f"{name}{k}") for k in range(count)] for name, count in (
            ("row", self.readers), ("sums", self.readers), ("row_add", self.adders)))
        read = first(m, [port.valid for port in reads])
        added = first(m, [port.valid & (port.p.fresh | ~Cat(read).any()) for port in adds])
        add, asked = chosen(added, [port.p for port in adds]), chosen(read, [port.p for port in reads])
        row = delay(m, Mux(Cat(read).any(), asked, add.row), 1)
        add, taken = delay(m, add, 3), delay_control(m, Cat(added).any(), 4)
        to = delay(m, add.row, 1)
        # Adds of other lanes than all 16, or than the plain one, leave the rest of the row as it is.
        held = []
        for name, lanes in (("lanes", slice(LANES)), ("plain", slice(LANES, LANES + 1))):
            sums = [add.sums[k] for k in range(LANES + 1)][lanes]
            m.submodules[name] = memory = Memory(
                shape=ACCUMULATOR_BITS * len(sums), depth=self.rows, init=[], attrs=UNCHECKED)
            writer, reader = memory.write_port(), memory.read_port()
            found = delay(m, reader.data, 1)
            old = [found.word_select(k, ACCUMULATOR_BITS).as_signed() for k in range(len(sums))]
            new = [gated_sum(m, platform, ~add.fresh, was, Const(1, 1), by)[:ACCUMULATOR_BITS]
                   for was, by in zip(old, sums, strict=True)]
            m.d.comb += [reader.addr.eq(row), reader.en.eq(1), writer.addr.eq(to),
                         writer.en.eq(taken & delay(m, add[name], 1)), writer.data.eq(delay(m, Cat(new), 1))]
            held += old
        for port, served in zip(adds, added, strict=True):
            m.d.comb += port.ready.eq(served)
        for port, answer, served in zip(reads, answers, read, strict=True):
            m.d.comb += [port.ready.eq(served), answer.valid.eq(delay_control(m, served, ROW_LATENCY)),
                         *(lane.eq(value) for lane, value in zip(answer.sums, held, strict=True))]
        return m
