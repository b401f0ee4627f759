"""Ranges of VectorRf that unfinished chains write, and that unfinished products for MvmQ read."""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.lib.jobs import ENTRY_WRITERS, TICKET, Wait, entry_writers, waiting, youngest
from concord.hw.lib.payloads import address_bits
from concord.spec.machine.config import Config

PRODUCTS = 2  #: Largest number of unfinished products for MvmQ that read VectorRf.


class EntryHazards(wiring.Component):
    """Keeps one range of entries for each chain in flight, so that a layer starts on what the one before has written.

    A product whose chain runs through the multi-function units needs no range: younger chains write after its last
    word, and by then it has read all its columns. Only a product for MvmQ may be overtaken.

    Members:
        read, read_ticket: In. A product for MvmQ with this ticket is dispatched, which reads the entries `read_lo` to
            `read_hi` - 1. read_room: Out(1). There is room for it.
        write, write_ticket: In. A chain with this ticket is dispatched, which writes the entries `write_lo` to
            `write_hi` - 1. write_room: Out(1). There is room for it.
        clear: In(1). Finished products are forgotten; `product` changes only after cycles in which this is high.
        product_done, entries_done: In. Number of products, and of chains that write VectorRf, that are finished.
        restart: In(1). All chains are finished, and the tickets of writers begin again.
        writers: Out(entry_writers). The last writers.
        product: Out(Wait). The youngest such product that reads entries from `write_lo` to `write_hi` - 1.

    Timing:
        A chain is noted in the second cycle after `read` or `write`. `read_room` and `write_room` are two cycles, and
        `product` is `LOOKUP` cycles, after what they depend on.
    """

    def __init__(self, config: Config):
        self.config = config
        bits = address_bits(config)
        super().__init__({
            **{name: In(1) for name in ("read", "write", "restart", "clear")},
            **{name: In(TICKET) for name in ("read_ticket", "write_ticket", "product_done", "entries_done")},
            **{name: In(bits) for name in ("read_lo", "read_hi", "write_lo", "write_hi")},
            "read_room": Out(1), "write_room": Out(1), "writers": Out(entry_writers(config)), "product": Out(Wait)})

    def elaborate(self, platform):
        m = Module()
        self._writers(m)
        self._readers(m)
        return m

    def _writers(self, m):
        """A writer replaces the one whose ticket is smaller by ENTRY_WRITERS, once that one is finished."""
        bits = (ENTRY_WRITERS - 1).bit_length()
        ahead = (self.write_ticket - ENTRY_WRITERS - self.entries_done)[:TICKET].as_signed()
        m.d.sync += self.write_room.eq(ahead <= 0)
        with m.If(self.restart):
            m.d.sync += self.writers.eq(0)
        for k, writer in enumerate(self.writers):
            now = Signal(name=f"write{k}")
            m.d.sync += now.eq(self.write & (self.write_ticket[:bits] == k))
            with m.If(now):
                m.d.sync += [writer.ticket.eq(self.write_ticket), writer.lo.eq(self.write_lo),
                             writer.hi.eq(self.write_hi)]

    def _readers(self, m):
        bits, place = address_bits(self.config), Signal(range(PRODUCTS))
        layout = data.StructLayout({"valid": 1, "ticket": TICKET, "lo": bits, "hi": bits})
        readers = [Signal(layout, name=f"reader{k}") for k in range(PRODUCTS)]
        read = Signal()
        m.d.sync += read.eq(self.read)
        with m.If(read):
            m.d.sync += place.eq(place + 1)
        busy = Signal(PRODUCTS)
        m.d.sync += self.read_room.eq(~busy.bit_select(place, 1))
        for k, reader in enumerate(readers):
            unfinished = waiting(reader, self.product_done)
            m.d.sync += busy[k].eq(unfinished)
            with m.If(self.clear):
                m.d.sync += reader.valid.eq(unfinished)
            with m.If(read & (place == k)):
                m.d.sync += [reader.valid.eq(1), reader.ticket.eq(self.read_ticket), reader.lo.eq(self.read_lo),
                             reader.hi.eq(self.read_hi)]
        meets = [(self.write_lo < reader.hi) & (reader.lo < self.write_hi) for reader in readers]
        m.d.comb += self.product.eq(youngest(m, "product", zip(readers, meets, strict=True)))
