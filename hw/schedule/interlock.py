"""The interlock, which gives checked chains to the pipelines with the tickets that they must wait for.

A product waits for its tiles later, in `hw/schedule/product_start.py`.
"""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.lib import jobs
from concord.hw.lib.jobs import LOOKUP, TICKET, Wait, waiting, youngest
from concord.hw.lib.payloads import DRAM, MVM, NET, OPERANDS, address_bits, chain, held_mark, softmax_mark
from concord.hw.schedule.entry_hazards import EntryHazards
from concord.hw.schedule.outside_order import OutsideOrder
from concord.spec.isa.memories import VRFS
from concord.spec.machine.config import Config

EPOCH = 16  #: Chains of an epoch, after which all pipelines are checked; keeps tickets in use within 2**(TICKET - 1).


def pipes(config: Config) -> tuple[str, ...]:
    """Pipelines that chains wait for; "entries" is the end of that of the multi-function units, at VectorRf.

    With Dram, "reads" and "stores" move words of chains from and to it, "load" loads tiles, and "move" moves what is
    packed as it is.
    """
    outside = ("reads", "stores", "load", "move") if config.dram_words else ()
    return "fetch", "product", "mfu", "copy", "entries", *outside


def finished(config: Config) -> data.StructLayout:
    """Number of chains that each pipeline has finished."""
    return data.StructLayout(dict.fromkeys(pipes(config), TICKET))


class Interlock(wiring.Component):
    """Finds the older chains that each chain must not overtake, and puts the chain into the queues of its pipelines.

    Every pipeline works in order, so a chain waits for a ticket, the number of another chain within its pipeline. For
    each memory and pipeline, the interlock keeps one address range that holds all unfinished writes, and the ticket of
    the youngest writer. A reader gets a copy and compares every address with it: a word outside the range, or already
    written, does not wait. A writer waits, with its first word, for older readers and writers of its memories in other
    pipelines.

    Chains that write VectorRf are compared one by one (`EntryHazards`), and so are the products for MvmQ that read it:
    a chain that writes what such a product reads waits, with its first word, until the product's tiles are read.

    Members:
        i: In(stream `chain`). Checked chains.
        fetch, product, issue, write, copy, copy_write: Out(stream). Jobs of the pipelines.
        columns, gather, entries: Out(stream). Jobs of the readers and of the writer of VectorRf.
        entry_writers: Out(entry_writers). The last chains that write VectorRf.
        done: In. Number of chains that operand fetch, products (tiles read), MFUs, copy and the writer of VectorRf have
            finished.
        start: In(1). A program starts; the tickets of the chains that write VectorRf begin again.
        idle: Out(1). All chains are finished.

    Timing:
        At most one chain in `LOOKUP` + 4 cycles. What is known of older chains stands still while the hazards of a
        chain are looked up, in one register stage after the other, and until all its queues have taken it. A full queue
        of a pipeline that the chain needs stalls it, and all younger chains. `idle` is late by two cycles.
    """

    def __init__(self, config: Config):
        self.config = config
        outs = {name: Out(stream.Signature(shape)) for name, shape in jobs.job_shapes(config).items()}
        entries = {name: outs.pop(name) for name in jobs.ENTRY_JOBS} | {
            "entry_writers": Out(jobs.entry_writers(config)), "start": In(1)}
        super().__init__({"i": In(stream.Signature(chain(config))), **outs, "done": In(finished(config)),
                          "idle": Out(1), **(entries if config.vector_rf else {})})

    def elaborate(self, platform):
        m = Module()
        c = Signal(chain(self.config))  # the chain whose hazards are looked up
        # A chain may come; the chain is with its pipelines, and in the next cycle its traces are left.
        self.open, self.ends = Signal(init=1), Signal()
        self.finished = Signal(finished(self.config), name="finished")
        self.tickets = {pipe: Signal(TICKET, name=f"ticket_{pipe}") for pipe in pipes(self.config)}
        self.following = {pipe: Signal(TICKET, name=f"following_{pipe}") for pipe in pipes(self.config)}
        m.d.sync += [self.finished.eq(self.done), *(self.following[p].eq(t + 1) for p, t in self.tickets.items())]
        if self.config.dram_words:
            self.outside = OutsideOrder(self, m, c)
        uses = self._registered(m, "uses", self._uses(c))
        self._track(m, c, uses)
        self._jobs(m, c)
        room = self._within_epoch(m)
        queues = {"fetch": [self.fetch], "product": [self.product], "mfu": [self.issue, self.write],
                  "copy": [self.copy, self.copy_write]}
        self.writers = [self.write, self.copy_write, *([self.entries] if self.config.vector_rf else [])]
        matrix = {self.copy_write: ~c.matrix}  # a tile's rows go to the matrix quantiser
        queued = [(q, uses[p] & matrix.get(q, 1)) for p, qs in queues.items() for q in qs]
        if self.config.vector_rf:
            room &= self._entries(m, c)
            queued += [(self.columns, c.product.from_entries), (self.gather, c.gather), (self.entries, c.entries.valid)]
        if self.config.dram_words:
            self.outside.track(m, uses)
            room &= self.outside.room
            queued += self.outside.queues(uses)
        self._send(m, c, room, queued)
        moves = self._registered(m, "moves", {pipe: self.ends & used for pipe, used in uses.items()})
        for pipe, ticket in self.tickets.items():
            with m.If(moves[pipe]):
                m.d.sync += ticket.eq(self.following[pipe])
        sent = Signal()
        m.d.sync += [sent.eq(self.ends), self.idle.eq(self.open & ~sent & ~self.i.valid & Cat(
            t == self.finished[p] for p, t in self.tickets.items()).all())]
        return m

    def _send(self, m, c, room, queued):
        """Take a chain, look it up, give it to the queues that it needs, and wait until they have taken it.

        Its writers come first: the multi-function units do not wait for a job of the writer of their words.
        """
        age, looked, sending = Signal(LOOKUP - 1), Signal(), Signal()
        left = Signal(len(queued))  # queues that have not taken the chain
        writers = [left[k] for k, (queue, _) in enumerate(queued) if queue in self.writers]
        m.d.comb += [self.i.ready.eq(self.open), *(
            queue.valid.eq(left[k] & (Const(1) if queue in self.writers else ~Cat(writers).any()))
            for k, (queue, _) in enumerate(queued))]
        m.d.sync += age.eq(Cat(self.open & self.i.valid, age))
        with m.If(self.open):
            m.d.sync += [c.eq(self.i.p), self.open.eq(~self.i.valid)]
            if self.config.dram_words:  # what moves as it is passes the readers and the writer of VectorRf
                m.d.sync += [c.gather.eq(self.i.p.gather & ~self.i.p.outside.raw),
                             c.entries.valid.eq(self.i.p.entries.valid & ~self.i.p.outside.raw)]
        with m.If(age[-1]):
            m.d.sync += looked.eq(1)
        with m.If(looked & room):
            m.d.sync += [looked.eq(0), sending.eq(1), left.eq(Cat(used for _, used in queued))]
        with m.Else():
            m.d.sync += left.eq(left & ~Cat(queue.valid & queue.ready for queue, _ in queued))
        m.d.comb += self.ends.eq(sending & ~left.any())
        with m.If(self.ends):
            m.d.sync += [sending.eq(0), self.open.eq(1)]

    @staticmethod
    def _registered(m, name, values: dict) -> dict:
        """Registers that hold single bits."""
        held = {key: Signal(name=f"{name}_{key}") for key in values}
        m.d.sync += [held[key].eq(value) for key, value in values.items()]
        return held

    def _uses(self, c) -> dict:
        """Whether the chain runs through each pipeline."""
        mfu, fetch, entries = c.pointwise | (c.memory == MVM), c.mv_mul, Const(0)
        if self.config.vector_rf:
            mfu, fetch, entries = mfu | c.gather | c.entries.valid, fetch & ~c.product.from_entries, c.entries.valid
        mfu = (c.mv_mul & ~c.push) | (~c.mv_mul & mfu)
        uses = {"fetch": fetch, "product": c.mv_mul, "mfu": mfu, "copy": ~c.mv_mul & ~mfu, "entries": entries}
        return uses | (self.outside.uses(uses) if self.config.dram_words else {})

    def _entries(self, m, c):
        """Track readers and writers of VectorRf, and fill its jobs. Returns whether there is room for the chain."""
        m.submodules.hazards = hazards = EntryHazards(self.config)
        reads, writes = c.product.from_entries & c.push, c.entries.valid
        room = Signal()
        m.d.sync += room.eq((hazards.read_room | ~reads) & (hazards.write_room | ~writes))
        m.d.comb += [
            hazards.clear.eq(self.open),
            hazards.read.eq(self.ends & reads), hazards.read_ticket.eq(self.following["product"]),
            hazards.read_lo.eq(c.source.lo), hazards.read_hi.eq(c.source.hi),
            hazards.write.eq(self.ends & writes), hazards.write_ticket.eq(self.following["entries"]),
            hazards.write_lo.eq(c.entries.lo), hazards.write_hi.eq(c.entries.hi), hazards.restart.eq(self.start),
            hazards.product_done.eq(self.finished.product), hazards.entries_done.eq(self.finished.entries),
            self.entry_writers.eq(hazards.writers),
            self.issue.p.gather.eq(c.gather), self.issue.p.product.ticket.eq(hazards.product.ticket),
            self.issue.p.product.valid.eq(hazards.product.valid & writes),
            self.write.p.entries.eq(writes), self.write.p.entries_select.eq(c.entries.select)]
        with m.If(self.start):
            m.d.sync += [self.tickets["entries"].eq(0), self.marks["entries"].eq(0)]

        columns, gather, entries = self.columns.p, self.gather.p, self.entries.p
        for job in (columns, gather):
            m.d.comb += [job.older.eq(self.tickets["entries"]), job.window.eq(c.window)]
        m.d.comb += [
            columns.lo.eq(c.source.lo), *(columns[name].eq(c.product[name]) for name in ("columns", "row_tiles")),
            *(columns[name].eq(Mux(c.source.inc, c[name], 0)) for name in ("stride_x", "stride_y")),
            gather.mode.eq(c.mode), gather.pool.eq(c.pool), entries.write.eq(c.entries), entries.words.eq(c.words),
            *(job[name].eq(c[name]) for job in (columns, entries) for name in ("iterations", "iterations_x"))]
        return room

    def _within_epoch(self, m):
        """Low while a chain of the epoch before the last one is unfinished."""
        count, last, turns = Signal(range(EPOCH)), Signal(), Signal(2)
        marks = self.marks = {pipe: Signal(TICKET, name=f"mark_{pipe}") for pipe in self.tickets}
        behind = self._registered(m, "behind", {
            p: (mark - self.finished[p])[:TICKET].as_signed() > 0 for p, mark in marks.items()})
        room = Signal()
        m.d.sync += [last.eq(count == EPOCH - 1), room.eq(~last | ~Cat(behind.values()).any())]
        m.d.sync += turns.eq(Cat(self.ends, self.ends & last))
        with m.If(turns[0]):
            m.d.sync += count.eq(count + 1)
        with m.If(turns[1]):
            m.d.sync += [mark.eq(self.tickets[p]) for p, mark in marks.items()]
        return room

    def _track(self, m, c, uses):
        """Track the youngest reader, the youngest writer and the range of unfinished writes, by memory and pipeline."""
        self.reads, self.writes, self.net_reads, self.net_writes = {}, {}, {}, {}
        self.dram_reads, self.dram_writes = {}, {}  # words of Dram leave and enter its queues in the order of chains
        for pipe in ("fetch", "mfu", "copy"):
            source = uses[pipe] & (Const(1) if pipe != "mfu" else ~c.mv_mul)
            for k in range(len(VRFS)):
                reads = source & c.source.valid & (c.memory == k)
                if pipe == "mfu" and k in OPERANDS:
                    reads |= uses[pipe] & c.operands[OPERANDS.index(k)].valid
                self.reads[pipe, k] = self._last(m, f"read_{pipe}{k}", pipe, reads)
            self.net_reads[pipe] = self._last(m, f"net_read_{pipe}", pipe, source & (c.memory == NET))
            if self.config.dram_words:
                self.dram_reads[pipe] = self._last(m, f"dram_read_{pipe}", pipe, source & (c.memory == DRAM))
        if not self.config.dram_words:
            self.tile_reads = self._last(m, "tile_read", "product", uses["product"])
            self.tile_writes = self._last(m, "tile_write", "copy", uses["copy"] & c.matrix)
        else:
            self.net_loads = self._last(m, "net_load", "copy", uses["copy"] & c.matrix & ~c.outside.vectors)
        for pipe in ("mfu", "copy"):
            self.net_writes[pipe] = self._last(m, f"net_write_{pipe}", pipe, uses[pipe] & c.net)
            if self.config.dram_words:
                self.dram_writes[pipe] = self._last(m, f"dram_write_{pipe}", pipe, uses[pipe] & c.outside.writes.valid)
            for k in range(len(VRFS)):
                self.writes[pipe, k] = self._range(m, f"{pipe}{k}", pipe, c.writes[k], uses[pipe])

    def _range(self, m, name, pipe, new, used):
        """The range that holds all unfinished writes of a pipeline to a memory, and the ticket of the youngest one."""
        under_way, below, above = Signal(jobs.dependency(self.config), name=f"write_{name}"), Signal(), Signal()
        both = Signal(data.StructLayout(dict.fromkeys(("lo", "hi"), address_bits(self.config))), name=f"both_{name}")
        now = self._youngest_is(m, under_way, pipe, used & new.valid)
        m.d.sync += [
            below.eq(under_way.valid & (under_way.lo < new.lo)), above.eq(under_way.valid & (under_way.hi > new.hi)),
            both.lo.eq(Mux(below, under_way.lo, new.lo)), both.hi.eq(Mux(above, under_way.hi, new.hi))]
        with m.If(now):
            m.d.sync += [under_way.lo.eq(both.lo), under_way.hi.eq(both.hi)]
        return under_way

    def _last(self, m, name, pipe, condition):
        """Ticket of the youngest chain of a pipeline for which `condition` holds, valid until it is finished."""
        last = Signal(Wait, name=name)
        self._youngest_is(m, last, pipe, condition)
        return last

    def _youngest_is(self, m, wait, pipe, condition):
        """Update a `Wait` between chains. Returns whether it becomes the chain that was sent: `condition` holds.

        A chain that ends later is still waited for, which takes no time: pipelines look at its ticket.
        """
        holds, now = Signal(), Signal()
        m.d.sync += [holds.eq(condition), now.eq(self.ends & holds)]
        with m.If(self.open):
            m.d.sync += wait.valid.eq(now | waiting(wait, self.finished[pipe]))
        with m.If(now):
            m.d.sync += wait.ticket.eq(self.following[pipe])
        return now

    def _waits(self, m, c, pipe, name, *, reads_net):
        """Ticket of another pipeline that a writing chain must wait for before its first word."""
        candidates = []
        for k in range(len(VRFS)):
            write = c.writes[k]
            if (pipe, k) in self.reads:
                candidates.append((self.reads[pipe, k], write.valid))
            if (pipe, k) in self.writes:
                older = self.writes[pipe, k]
                candidates.append((older, write.valid & (write.lo < older.hi) & (older.lo < write.hi)))
        candidates.append((self.net_reads[pipe], reads_net))
        if pipe in self.net_writes:
            candidates.append((self.net_writes[pipe], c.net))
        if self.config.dram_words:
            if pipe in self.dram_reads:
                candidates.append((self.dram_reads[pipe], c.outside.reads.valid))
            if pipe in self.dram_writes:
                candidates.append((self.dram_writes[pipe], c.outside.writes.valid))
        return youngest(m, name, candidates)

    def _own_reads(self, m, c):
        """Whether words of the chain may read results of earlier words of the same chain: (source, operands)."""
        once = Signal()
        m.d.sync += once.eq(c.iterations == 1)

        def meets(read, write):
            behind = write.lo <= read.lo  # word k writes where no later word reads
            if self.config.more_functions:
                behind &= ~read.held
            found, never = Signal(), Signal()
            m.d.sync += [found.eq(read.valid & write.valid & (read.lo < write.hi) & (write.lo < read.hi)),
                         never.eq(behind)]
            return found & ~(once & never)

        own = self._registered(m, "own", {
            "source": Cat((c.memory == k) & meets(c.source, c.writes[k]) for k in range(len(VRFS))).any(),
            "operands": Cat(meets(c.operands[o], c.writes[k]) for o, k in enumerate(OPERANDS)).any()})
        return own["source"], own["operands"]

    def _source_writes(self, m, c, pipe):
        """Older writes of a pipeline to the memory of the chain's source."""
        found = Signal(jobs.dependency(self.config), name=f"source_writes_{pipe}")
        with m.Switch(c.memory):
            for k in range(len(VRFS)):
                with m.Case(k):
                    m.d.sync += found.eq(self.writes[pipe, k])
            with m.Default():
                m.d.sync += found.valid.eq(0)
        return found

    def _reader(self, m, target, read, memory):
        """Fill the reader of a job: the start of its range, and the older writes to its memory."""
        m.d.comb += [target.valid.eq(read.valid), target.lo.eq(read.lo), target.inc.eq(read.inc),
                     *(target[name].eq(read[name]) for name in held_mark(self.config))]
        for pipe in ("mfu", "copy"):
            m.d.comb += target[pipe].eq(
                self.writes[pipe, memory] if isinstance(memory, int) else self.source_writes[pipe])

    def _jobs(self, m, c):
        self.source_writes = {pipe: self._source_writes(m, c, pipe) for pipe in ("mfu", "copy")}
        own_source, own_operands = self._own_reads(m, c)
        net = c.memory == NET
        tile_words = self.config.native_dim * self.config.vector_words
        whole = c.matrix & ~c.outside.vectors if self.config.dram_words else c.matrix  # an iteration is a tile
        lengths = {self.fetch: c.operand_words, self.issue: c.words, self.copy: Mux(whole, tile_words, c.words)}
        if self.config.vector_rf:
            lengths |= {self.gather: c.words}
        for queue, words in lengths.items():
            job = queue.p
            m.d.comb += [job[name].eq(words if name == "words" else c[name])
                         for name in jobs.source_fields(self.config) if name != "source"]
            self._reader(m, job.source, c.source, c.memory)
        m.d.comb += self.product.p.product.eq(c.product)
        if self.config.dram_words:
            self.outside.jobs(m)
        else:
            m.d.comb += self.product.p.copy.eq(self.tile_writes)

        f = self.fetch.p
        m.d.comb += [
            f.integer.eq(c.product.integer), f.unsigned.eq(c.product.unsigned),
            f.mfu.valid.eq(net & self.net_reads["mfu"].valid), f.mfu.ticket.eq(self.net_reads["mfu"].ticket),
            f.copy.valid.eq(net & self.net_reads["copy"].valid), f.copy.ticket.eq(self.net_reads["copy"].ticket),
            f.own.valid.eq(own_source & ~c.push), f.own.ticket.eq(self.following["mfu"])]

        i = self.issue.p
        if self.config.more_functions:
            m.d.comb += i.tail.eq(c.tail)
        for k, memory in enumerate(OPERANDS):
            self._reader(m, i.operands[k], c.operands[k], memory)
            m.d.comb += i.targets[k].eq(c.writes[memory])
        pops_net = net & ~c.mv_mul
        m.d.comb += [
            i.stride_out.eq(c.stride_out), i.control.eq(c.control), i.net.eq(c.net),
            i.pop.eq(c.mv_mul | (c.memory == MVM)), i.serial.eq((own_source & ~c.mv_mul) | own_operands),
            i.fetch.eq(self._waits(m, c, "fetch", "issue_fetch", reads_net=pops_net)),
            i.copy.eq(self._waits(m, c, "copy", "issue_copy", reads_net=pops_net))]

        y, tile_reads = self.copy.p, self.outside.tile_reads if self.config.dram_words else self.tile_reads
        m.d.comb += [
            y.matrix.eq(c.matrix), y.tile.eq(c.product.tile), y.integer.eq(c.product.integer), y.serial.eq(own_source),
            y.fetch.eq(self._waits(m, c, "fetch", "copy_fetch", reads_net=net)),
            y.mfu.eq(self._waits(m, c, "mfu", "copy_mfu", reads_net=net)),
            y.product.valid.eq(tile_reads.valid & c.matrix), y.product.ticket.eq(tile_reads.ticket)]
        for w in (self.write.p, self.copy_write.p):
            m.d.comb += [w[name].eq(c[name]) for name in
                         ("words", "tail", "iterations", "stride_out", "writes", "net", "net_select",
                          *softmax_mark(self.config))]
