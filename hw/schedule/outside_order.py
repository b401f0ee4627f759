"""The order of chains that name Dram, and of loads of tiles from it beside products."""

from amaranth import *
from concord.hw.lib.jobs import waiting
from concord.hw.schedule.range_table import RangeTable
from concord.spec.isa.instructions import ADDRESS_BITS, base_bits


class OutsideOrder:
    """The part of the interlock that machines with Dram have.

    A read of words of Dram waits until older writes of its words are answered, and a write until older reads of its
    words have come; writes reach the memory in order. Loads of tiles run ahead: a load waits for the youngest older
    product that reads its tiles, and a product for the youngest older load of its tiles, each of 4 that are unfinished.
    Tiles that are made of vectors are loaded by the copy pipeline: such a load and one from Dram that meets its tiles
    wait for each other here, before they are dispatched. Tiles from NetQ are loaded while no tile is loaded from Dram,
    and what moves as it is moves while no other chain runs.

    Args:
        interlock: The interlock.
        m:         Its module.
        c:         The chain whose hazards are looked up.
    """

    def __init__(self, interlock, m, c):
        self.interlock, self.c, self.room = interlock, c, Signal()
        self.tables = {name: RangeTable(bits) for name, bits in {
            **dict.fromkeys(("stores", "reads", "loads"), base_bits(interlock.config)),
            **dict.fromkeys(("tile_loads", "tile_copies", "products"), ADDRESS_BITS)}.items()}
        for name, table in self.tables.items():
            m.submodules[name] = table

    @property
    def tile_reads(self):
        """The youngest older product that reads a tile of the chain."""
        return self.tables["products"].found

    def uses(self, others: dict) -> dict:
        """Whether the chain runs through each pipeline to and from Dram, and through the copy pipeline."""
        outside = self.c.outside
        words = ~outside.load & ~outside.raw
        return {"reads": outside.reads.valid & words, "stores": outside.writes.valid & words, "load": outside.load,
                "move": outside.raw, "copy": others["copy"] & words}

    def queues(self, uses: dict) -> list[tuple]:
        """Pairs of a queue and whether the chain needs it."""
        i = self.interlock
        return [(i.read_words, uses["reads"]), (i.store_words, uses["stores"]), (i.tile_words, uses["load"]),
                (i.load, uses["load"]), (i.move, uses["move"]), (i.build, self.c.outside.vectors)]

    def track(self, m, uses):
        """Note chains that are dispatched, and find those for which the present one waits."""
        i, c = self.interlock, self.c
        reads, writes, tiles = c.outside.reads, c.outside.writes, c.product.tile
        words = {"stores": ("stores", writes, reads, uses["stores"]), "reads": ("reads", reads, writes, uses["reads"]),
                 "loads": ("load", reads, writes, uses["load"])}
        for name, (pipe, noted, sought, used) in words.items():
            table = self.tables[name]
            m.d.comb += [table.first.eq(noted.lo), table.stop.eq(noted.hi), table.seek_first.eq(sought.lo),
                         table.seek_stop.eq(sought.hi), table.note.eq(i.ends & used),
                         table.ticket.eq(i.following[pipe]), table.done.eq(i.finished[pipe]), table.clear.eq(i.open)]
        self.copies_tiles = uses["copy"] & c.matrix
        for name, pipe, used in (("tile_loads", "load", uses["load"]), ("products", "product", uses["product"]),
                                 ("tile_copies", "copy", self.copies_tiles)):
            table = self.tables[name]
            m.d.comb += [table.first.eq(tiles), table.stop.eq(c.outside.tiles.hi), table.seek_first.eq(tiles),
                         table.seek_stop.eq(c.outside.tiles.hi), table.note.eq(i.ends & used),
                         table.ticket.eq(i.following[pipe]), table.done.eq(i.finished[pipe]), table.clear.eq(i.open)]
        self._room(m, uses)

    def _room(self, m, uses):
        """Whether the chain need not wait in the interlock, a cycle late."""
        i, c, tables = self.interlock, self.c, self.tables
        reads, writes = c.outside.reads.valid, c.outside.writes.valid
        moves, quiet, moving, blocked = Signal(), Signal(), Signal(), Signal(8)
        same = {pipe: ticket == i.finished[pipe] for pipe, ticket in i.tickets.items()}
        of_tables = [used & ~tables[name].room for name, used in (
            ("stores", uses["stores"]), ("reads", uses["reads"]), ("loads", uses["load"]), ("tile_loads", uses["load"]),
            ("tile_copies", self.copies_tiles), ("products", uses["product"]))]
        m.d.sync += [
            quiet.eq(Cat(same.values()).all()), moving.eq(~same["move"]), moves.eq(uses["move"]),
            blocked.eq(Cat(
                reads & waiting(tables["stores"].found, i.finished["stores"]),
                writes & waiting(tables["reads"].found, i.finished["reads"]),
                writes & waiting(tables["loads"].found, i.finished["load"]),
                uses["load"] & waiting(i.net_loads, i.finished["copy"]),
                uses["load"] & waiting(tables["tile_copies"].found, i.finished["copy"]),
                c.outside.vectors & waiting(tables["tile_loads"].found, i.finished["load"]),
                c.matrix & ~uses["load"] & ~c.outside.vectors & ~same["load"],
                Cat(of_tables).any()))]
        m.d.comb += self.room.eq(~blocked.any() & ~moving & (quiet | ~moves))

    def jobs(self, m):
        """Fill the jobs of the pipelines from and to Dram, and the waits of products."""
        i, c = self.interlock, self.c
        reads, writes, product = c.outside.reads, c.outside.writes, i.product.p.load
        for job, use in ((i.read_words.p, reads), (i.tile_words.p, reads), (i.store_words.p, writes)):
            m.d.comb += [job.first.eq(use.lo), job.inc.eq(use.inc), job.tag.eq(use.address), job.words.eq(c.words),
                         *(job[name].eq(c[name]) for name in ("iterations", "iterations_x")),
                         *(job[name].eq(c.outside[name]) for name in ("stride_x", "stride_y"))]
        stores, tiles, load = i.store_words.p, i.tile_words.p, i.load.p
        m.d.comb += [
            stores.iterations_x.eq(c.iterations), stores.stride_x.eq(c.outside.stride_out),
            tiles.iterations_x.eq(c.iterations),
            tiles.words.eq(c.outside.count), tiles.stride_x.eq(c.outside.count), load.tile.eq(c.product.tile),
            load.integer.eq(c.product.integer), load.diagonal.eq(c.outside.diagonal), load.count.eq(c.iterations),
            load.product.eq(self.tile_reads), product.eq(self.tables["tile_loads"].found),
            i.product.p.copy.eq(self.tables["tile_copies"].found), i.copy.p.vectors.eq(c.outside.vectors),
            i.copy.p.count.eq(Mux(c.outside.vectors, c.outside.passes, c.iterations)),
            i.issue.p.outside.eq(writes.valid)]
        self._build(m)
        self._move(m)
        for job in (i.write.p, i.copy_write.p):
            m.d.comb += [job.outside.eq(writes.valid), job.outside_select.eq(writes.select)]

    def _build(self, m):
        """Fill the job of a chain that makes tiles of vectors."""
        c, job = self.c, self.interlock.build.p
        m.d.comb += [
            job.tile.eq(c.product.tile), job.integer.eq(c.product.integer), job.transposed.eq(c.outside.transposed),
            job.count.eq(c.outside.passes), job.vectors.eq(c.iterations_x), job.first.eq(c.outside.place),
            job.words.eq(c.words), job.tail.eq(c.tail)]

    def _move(self, m):
        """Fill the job of a chain that moves what is packed as it is."""
        c, job = self.c, self.interlock.move.p
        outside, entries = c.outside, c.entries
        reads, writes = outside.reads, outside.writes
        into, to_entries = writes.valid, ~writes.valid & ~outside.bias
        inc = Mux(into, writes.inc, Mux(to_entries, entries.inc, outside.inside_inc))
        m.d.comb += [
            job.writes.eq(into), job.bias.eq(outside.bias), job.words.eq(c.words), job.entries.eq(c.product.row_tiles),
            job.integer.eq(Mux(into, c.mode.integer, entries.mode.integer)),
            job.iterations.eq(c.iterations), job.iterations_x.eq(c.iterations_x),
            job.tag.eq(Mux(into, writes.address, reads.address)),
            job.row.first.eq(Mux(into, c.source.lo, reads.lo)),
            *(job.row[name].eq(Mux(Mux(into, c.source.inc, reads.inc), outside[name], 0))
              for name in ("stride_x", "stride_y")),
            job.line.first.eq(Mux(into, writes.lo, outside.inside)),
            job.line.step.eq(Mux(inc, Mux(to_entries, entries.stride, outside.stride_out), 0)),
            job.line.skip.eq(Mux(inc & to_entries, entries.skip, 0))]
