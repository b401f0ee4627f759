"""The interlock, which gives checked chains to the pipelines with the tickets that they must wait for."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.lib.payloads import (
    MVM,
    NET,
    OPERANDS,
    TICKET,
    Controls,
    Product,
    Select,
    Wait,
    address_bits,
    chain,
    dependency,
    reader,
    waiting,
)
from concord.hw.lib.payloads import write as write_layout
from concord.hw.schedule.address_generator import walk
from concord.spec.config import Config
from concord.spec.isa import ADDRESS_BITS, REGISTER_BITS
from concord.spec.memories import VRFS

__all__ = ["PIPES", "Done", "Interlock", "ProductJob", "copy_job", "fetch_job", "issue_job", "write_job"]

EPOCH = 16  #: Chains of an epoch, after which all pipelines are checked; keeps tickets in use within 2**(TICKET - 1).


def _walk(config: Config) -> dict:
    """The fields of `walk`; every job that reads a source begins with them."""
    return {name: shape for name, shape in walk(config).members.items() if name != "valid"}


def fetch_job(config: Config) -> data.StructLayout:
    """Job of operand fetch: the source of one `mv_mul`. `own`: iterations wait for earlier writes of the chain."""
    return data.StructLayout({
        **_walk(config),
        "integer": 1, "unsigned": 1, "mfu": Wait, "copy": Wait, "own": Wait})


#: One product, and the ticket of the load whose tiles it may read.
ProductJob = data.StructLayout({"product": Product, "copy": Wait})


def issue_job(config: Config) -> data.StructLayout:
    """Job of issue: a chain for the multi-function units. `targets`: its writes to memories of operands. `serial`: each
    word waits until the word before it has landed."""
    return data.StructLayout({
        **_walk(config),
        "stride_out": address_bits(config), "operands": data.ArrayLayout(reader(config), len(OPERANDS)),
        "targets": data.ArrayLayout(write_layout(config), len(OPERANDS)),
        "control": Controls, "net": 1, "pop": 1, "serial": 1, "fetch": Wait, "copy": Wait})


def write_job(config: Config) -> data.StructLayout:
    """Job of the last stage of a pipeline: the writes of a chain."""
    return data.StructLayout({
        "words": REGISTER_BITS, "tail": range(config.mfu_lanes), "iterations": REGISTER_BITS,
        "stride_out": address_bits(config),
        "writes": data.ArrayLayout(write_layout(config), len(VRFS)), "net": 1, "net_select": Select})


def copy_job(config: Config) -> data.StructLayout:
    """Job of the copy pipeline. With `matrix`, it loads native tiles to MatrixRf, from `tile` on."""
    return data.StructLayout({
        **_walk(config),
        "matrix": 1, "tile": ADDRESS_BITS, "integer": 1, "serial": 1, "fetch": Wait, "mfu": Wait, "product": Wait})


PIPES = ("fetch", "product", "mfu", "copy")  #: Pipelines that chains wait for.

Done = data.StructLayout(dict.fromkeys(PIPES, TICKET))  #: Number of chains that each pipeline has finished.


class Interlock(wiring.Component):
    """Finds the older chains that each chain must not overtake, and puts the chain into the queues of its pipelines.

    Every pipeline works in order, so a chain waits for a ticket, the number of another chain within its pipeline. For
    each memory and pipeline, the interlock keeps one address range that holds all unfinished writes, and the ticket of
    the youngest writer. A reader gets a copy and compares every address with it: a word outside the range, or already
    written, does not wait. A writer waits, with its first word, for older readers and writers of its memories in other
    pipelines.

    Members:
        i: In(stream `chain`). Checked chains.
        fetch, product, issue, write, copy, copy_write: Out(stream). Jobs of the pipelines.
        done: In. Number of chains that operand fetch, products (tiles read), MFUs and copy have finished.
        idle: Out(1). All chains are finished.

    Timing:
        At most one chain in each cycle. A full queue of a pipeline that the chain needs stalls it.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "i": In(stream.Signature(chain(config))),
            "fetch": Out(stream.Signature(fetch_job(config))), "product": Out(stream.Signature(ProductJob)),
            "issue": Out(stream.Signature(issue_job(config))), "write": Out(stream.Signature(write_job(config))),
            "copy": Out(stream.Signature(copy_job(config))), "copy_write": Out(stream.Signature(write_job(config))),
            "done": In(Done),
            "idle": Out(1)})

    def elaborate(self, platform):
        m = Module()
        # One register stage holds the checked chain while its hazards are looked up.
        c, held = Signal(chain(self.config)), Signal()
        sent = Signal()
        m.d.comb += self.i.ready.eq(~held | sent)
        with m.If(self.i.ready):
            m.d.sync += [c.eq(self.i.p), held.eq(self.i.valid)]

        self.tickets = {pipe: Signal(TICKET, name=f"ticket_{pipe}") for pipe in PIPES}
        self.following = {pipe: Signal(TICKET, name=f"following_{pipe}") for pipe in PIPES}
        m.d.comb += [self.following[p].eq(t + 1) for p, t in self.tickets.items()]
        uses = {
            "fetch": c.mv_mul, "product": c.mv_mul,
            "mfu": (c.mv_mul & ~c.push) | (~c.mv_mul & (c.pointwise | (c.memory == MVM))),
        }
        uses["copy"] = ~uses["fetch"] & ~uses["mfu"]

        self._track(m, c, uses, sent)
        self._jobs(m, c)
        queues = {"fetch": [self.fetch], "product": [self.product], "mfu": [self.issue, self.write],
                  "copy": [self.copy, self.copy_write]}
        matrix = {self.copy_write: ~c.matrix}  # a tile's rows go to the matrix quantiser
        room = Cat(q.ready | ~uses[p] | ~matrix.get(q, 1) for p, qs in queues.items() for q in qs).all()
        m.d.comb += sent.eq(held & room & self._within_epoch(m, sent))
        m.d.comb += [q.valid.eq(sent & uses[p] & matrix.get(q, 1)) for p, qs in queues.items() for q in qs]
        with m.If(sent):
            for pipe, ticket in self.tickets.items():
                with m.If(uses[pipe]):
                    m.d.sync += ticket.eq(self.following[pipe])
        m.d.comb += self.idle.eq(~held & Cat(t == self.done[p] for p, t in self.tickets.items()).all())
        return m

    def _within_epoch(self, m, sent):
        """Low while a chain of the epoch before the last one is unfinished."""
        count = Signal(range(EPOCH))
        marks = {pipe: Signal(TICKET, name=f"mark_{pipe}") for pipe in PIPES}
        behind = Cat((mark - self.done[p])[:TICKET].as_signed() > 0 for p, mark in marks.items()).any()
        with m.If(sent):
            m.d.sync += count.eq(count + 1)
            with m.If(count == EPOCH - 1):
                m.d.sync += [mark.eq(self.tickets[p]) for p, mark in marks.items()]
        return (count != EPOCH - 1) | ~behind

    def _track(self, m, c, uses, sent):
        """Track the youngest reader, the youngest writer and the range of unfinished writes, by memory and pipeline."""
        config = self.config
        self.reads, self.writes, self.net_reads, self.net_writes = {}, {}, {}, {}
        for pipe in ("fetch", "mfu", "copy"):
            source = uses[pipe] & (Const(1) if pipe != "mfu" else ~c.mv_mul)
            for k in range(len(VRFS)):
                reads = source & c.source.valid & (c.memory == k)
                if pipe == "mfu" and k in OPERANDS:
                    reads |= uses[pipe] & c.operands[OPERANDS.index(k)].valid
                self.reads[pipe, k] = self._last(m, f"read_{pipe}{k}", pipe, sent & reads)
            self.net_reads[pipe] = self._last(m, f"net_read_{pipe}", pipe, sent & source & (c.memory == NET))
        tiles = sent & uses["product"]
        self.tile_reads = self._last(m, "tile_read", "product", tiles)
        self.tile_writes = self._last(m, "tile_write", "copy", sent & uses["copy"] & c.matrix)
        for pipe in ("mfu", "copy"):
            self.net_writes[pipe] = self._last(m, f"net_write_{pipe}", pipe, sent & uses[pipe] & c.net)
            for k in range(len(VRFS)):
                under_way = Signal(dependency(config), name=f"write_{pipe}{k}")
                self.writes[pipe, k] = under_way
                new = c.writes[k]
                over = ~self._undone(under_way, pipe)
                with m.If(over):
                    m.d.sync += under_way.valid.eq(0)
                with m.If(sent & uses[pipe] & new.valid):
                    join = under_way.valid & ~over
                    m.d.sync += [
                        under_way.valid.eq(1), under_way.ticket.eq(self.following[pipe]),
                        under_way.lo.eq(Mux(join & (under_way.lo < new.lo), under_way.lo, new.lo)),
                        under_way.hi.eq(Mux(join & (under_way.hi > new.hi), under_way.hi, new.hi))]

    def _undone(self, wait, pipe):
        return waiting(wait, self.done[pipe])

    def _last(self, m, name, pipe, now):
        """Ticket of the youngest chain of a pipeline for which `now` was high, valid until that chain is finished."""
        last = Signal(Wait, name=name)
        with m.If(~self._undone(last, pipe)):
            m.d.sync += last.valid.eq(0)
        with m.If(now):
            m.d.sync += [last.valid.eq(1), last.ticket.eq(self.following[pipe])]
        return last

    @staticmethod
    def _youngest(m, name, candidates):
        """The youngest ticket whose condition holds, from (wait, condition) pairs of one pipeline."""
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
        return self._youngest(m, name, candidates)

    def _own_reads(self, c):
        """Whether words of the chain may read results of earlier words of the same chain: (source, operands)."""
        once = c.iterations == 1

        def meets(read, write):
            behind = once & (write.lo <= read.lo)  # word k writes where no later word reads
            return read.valid & write.valid & (read.lo < write.hi) & (write.lo < read.hi) & ~behind

        source = Cat((c.memory == k) & meets(c.source, c.writes[k]) for k in range(len(VRFS))).any()
        operands = Cat(meets(c.operands[o], c.writes[k]) for o, k in enumerate(OPERANDS)).any()
        return source, operands

    def _reader(self, m, target, read, memory):
        """Fill the reader of a job: the start of its range, and the older writes to its memory."""
        m.d.comb += [target.valid.eq(read.valid), target.lo.eq(read.lo), target.inc.eq(read.inc)]
        for pipe in ("mfu", "copy"):
            if isinstance(memory, int):
                m.d.comb += target[pipe].eq(self.writes[pipe, memory])
            else:
                with m.Switch(memory):
                    for k in range(len(VRFS)):
                        with m.Case(k):
                            m.d.comb += target[pipe].eq(self.writes[pipe, k])

    def _jobs(self, m, c):
        own_source, own_operands = self._own_reads(c)
        net = c.memory == NET
        tile_words = self.config.native_dim * self.config.vector_words
        lengths = c.operand_words, c.words, Mux(c.matrix, tile_words, c.words)
        for job, words in zip((self.fetch.p, self.issue.p, self.copy.p), lengths, strict=True):
            m.d.comb += job.words.eq(words)
            m.d.comb += [job[name].eq(c[name]) for name in
                         ("memory", "iterations", "iterations_x", "stride_x", "stride_y")]
            self._reader(m, job.source, c.source, c.memory)
        m.d.comb += [self.product.p.product.eq(c.product), self.product.p.copy.eq(self.tile_writes)]

        f = self.fetch.p
        m.d.comb += [
            f.integer.eq(c.product.integer), f.unsigned.eq(c.product.unsigned),
            f.mfu.valid.eq(net & self.net_reads["mfu"].valid), f.mfu.ticket.eq(self.net_reads["mfu"].ticket),
            f.copy.valid.eq(net & self.net_reads["copy"].valid), f.copy.ticket.eq(self.net_reads["copy"].ticket),
            f.own.valid.eq(own_source & ~c.push), f.own.ticket.eq(self.following["mfu"])]

        i = self.issue.p
        for k, memory in enumerate(OPERANDS):
            self._reader(m, i.operands[k], c.operands[k], memory)
            m.d.comb += i.targets[k].eq(c.writes[memory])
        pops_net = net & ~c.mv_mul
        m.d.comb += [
            i.stride_out.eq(c.stride_out), i.control.eq(c.control), i.net.eq(c.net),
            i.pop.eq(c.mv_mul | (c.memory == MVM)), i.serial.eq((own_source & ~c.mv_mul) | own_operands),
            i.fetch.eq(self._waits(m, c, "fetch", "issue_fetch", reads_net=pops_net)),
            i.copy.eq(self._waits(m, c, "copy", "issue_copy", reads_net=pops_net))]

        y = self.copy.p
        m.d.comb += [
            y.matrix.eq(c.matrix), y.tile.eq(c.product.tile), y.integer.eq(c.product.integer), y.serial.eq(own_source),
            y.fetch.eq(self._waits(m, c, "fetch", "copy_fetch", reads_net=net)),
            y.mfu.eq(self._waits(m, c, "mfu", "copy_mfu", reads_net=net)),
            y.product.valid.eq(self.tile_reads.valid & c.matrix), y.product.ticket.eq(self.tile_reads.ticket)]
        for w in (self.write.p, self.copy_write.p):
            m.d.comb += [w[name].eq(c[name]) for name in
                         ("words", "tail", "iterations", "stride_out", "writes", "net", "net_select")]
