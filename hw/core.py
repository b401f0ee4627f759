"""The core of the processor between the message units: decoder, pipelines, memories and queues."""

from itertools import product

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.decode.decoder import Decoder
from concord.hw.decode.instruction_fetch import InstructionFetch
from concord.hw.dram.transfers import Transfers, port_side
from concord.hw.host.counters import counted
from concord.hw.host.host_read import HostRead
from concord.hw.lazy.update_port import UpdatePort
from concord.hw.lib import message_payloads
from concord.hw.lib.jobs import TICKET
from concord.hw.lib.outside import Failure
from concord.hw.lib.payloads import OPERANDS, Load, word
from concord.hw.lib.queue import Queue, through_queue
from concord.hw.lib.reset_domain import reset_too
from concord.hw.mfu.mfu_pipeline import MfuPipeline
from concord.hw.mfu.pixel_pipeline import PixelPipeline
from concord.hw.mfu.softmax import Softmax
from concord.hw.mvm.mvm import MatrixVectorMultiplier
from concord.hw.mvm.tile_builder import TileBuilder
from concord.hw.schedule.copy import Copy
from concord.hw.schedule.gather import Gather
from concord.hw.schedule.interlock import Interlock
from concord.hw.schedule.issue import Issue
from concord.hw.schedule.operand_fetch import OperandFetch
from concord.hw.schedule.product_start import product_start
from concord.hw.schedule.vector_memories import VectorMemories
from concord.hw.schedule.writeback import Writeback
from concord.spec.host.registers import READS, WRITES
from concord.spec.isa.instructions import END_BITS
from concord.spec.isa.memories import VRFS
from concord.spec.isa.operations import MFUS, Stage
from concord.spec.machine import timing
from concord.spec.machine.config import Config


class Core(wiring.Component):
    """The processor without its host ports. A reset resets everything except the contents of memories.

    Members:
        net, write, entry_write, program, bias, packed, read: In(stream). Items of the host's messages.
        update: In(stream). Parameters for the lazy update.
        out, reply, updated: Out(stream). Words for the host. entry_reply: Out(stream). Entries for the host.
        start: In(1). Runs the program; ignored while `running` is high.
        message_error: In(1). A message was malformed; held until reset.
        sent: In(1). All output words have left for the host.
        running, done, error, error_address, wait_input, wait_output, invalid_vector, invalid_matrix: Out. State for
            the control port.
        events: Out. Increment of each counter in this cycle; for an excess, its value.
        unused: Out(1). NetQ holds words, in a core that is `watched`.
    """

    def __init__(self, config: Config, *, watched: bool = False):
        self.config, self.watched, items = config, watched, message_payloads.items(config)
        entries = {
            "entry_write": In(stream.Signature(items["entry_write"])),
            "entry_reply": Out(stream.Signature(message_payloads.entry_reply(config)))} if config.vector_rf else {}
        super().__init__({
            **{name: In(stream.Signature(items[name])) for name in ("net", "write", "program", "bias", "packed")},
            "read": In(stream.Signature(message_payloads.read(config))),
            "out": Out(stream.Signature(message_payloads.output(config))),
            "reply": Out(stream.Signature(message_payloads.reply(config))),
            "update": In(stream.Signature(items["update"])),
            "updated": Out(stream.Signature(message_payloads.updated(config))),
            "start": In(1), "message_error": In(1), "sent": In(1), "running": Out(1), "done": Out(1), "error": Out(4),
            "error_address": Out(END_BITS), "wait_input": Out(1), "wait_output": Out(1),
            "invalid_vector": Out(1), "invalid_matrix": Out(1),
            **(self._port_side(config) if config.dram_words else {}), **({"unused": Out(1)} if watched else {}),
            "events": Out(data.StructLayout({c.name.lower(): bits for c, bits in counted(config).items()})), **entries})

    @staticmethod
    def _port_side(config):
        """Members of machines with Dram: the streams of its port, and the words of the host for it."""
        return {**port_side(config), "outside": In(stream.Signature(message_payloads.outside(config))),
                "memory_error": In(Failure), "settled": Out(1)}

    def elaborate(self, platform):
        m = Module()
        config = self.config
        m.submodules.instruction_fetch = self.instruction_fetch = InstructionFetch(config)
        m.submodules.decoder = self.decoder = Decoder(config)
        m.submodules.interlock = self.interlock = Interlock(config)
        m.submodules.fetch = self.fetch = OperandFetch(config)
        self.mvm = MatrixVectorMultiplier(config)
        m.submodules.mfus = self.mfus = MfuPipeline(config)
        m.submodules.issue = self.issue = Issue(config)
        m.submodules.writeback = self.back = Writeback(config)
        m.submodules.copy = self.copy = Copy(config)
        m.submodules.memories = self.memories = VectorMemories(config)
        m.submodules.host_read = self.host_read = HostRead(config)
        m.submodules.net_in = self.net_in = Queue(word(config), config.net_in, deep=True)
        m.submodules.net_out = self.net_out = Queue(message_payloads.outgoing(config), config.net_out, deep=True)

        if config.softmax_words:
            m.submodules.softmax = self.softmax = Softmax(config)
        if config.dram_words:
            m.submodules.transfers = self.transfers = Transfers(config)
        if config.vector_rf:
            m.submodules.gather = self.gather = Gather(config)
            m.submodules.pixels = self.pixels = PixelPipeline(config)
            self._entries(m)
        if config.dram_words:
            self._outside(m)
        self._sequencing(m)
        self._queues(m)
        self._vector_memories(m)
        self._mvm(m)
        self._net(m)
        self._events(m)
        if config.lazy_update:
            self._training(m)
        return m

    def _sequencing(self, m):
        instructions, decoder, interlock = self.instruction_fetch, self.decoder, self.interlock
        wiring.connect(m, wiring.flipped(self.program), instructions.program)
        wiring.connect(m, instructions.o, decoder.i)
        wiring.connect(m, decoder.o, interlock.i)
        products = Signal(TICKET)
        m.d.sync += products.eq(products + self.mvm.product_done)
        # The interlock knows that tiles have been read: results of the last product may still be on their way to MvmQ.
        after = timing.last_result(self.config)
        quiet = Signal(range(after + 1))
        m.d.sync += quiet.eq(Mux(self.mvm.product_done, after, quiet - (quiet != 0)))
        drained = interlock.idle & (self.net_out.level == 0) & self.sent & (quiet == 0)
        if self.config.softmax_words:
            drained &= ~self.softmax.busy
        m.d.comb += [
            instructions.run.eq(decoder.run), instructions.jump.eq(decoder.jump),
            instructions.target.eq(decoder.target),
            decoder.start.eq(self.start), decoder.message_error.eq(self.message_error), decoder.drained.eq(drained),
            interlock.done.fetch.eq(self.fetch.done), interlock.done.product.eq(products),
            interlock.done.mfu.eq(self.back.progress.done), interlock.done.copy.eq(self.copy.progress.done),
            self.issue.fetch.eq(self.fetch.done), self.copy.fetch.eq(self.fetch.done), self.copy.product.eq(products)]
        if self.config.vector_rf:
            m.d.comb += self.issue.product.eq(products)
        if self.config.dram_words:
            m.d.comb += self.transfers.product.eq(products)
        for unit in (self.fetch, self.issue, self.copy):
            m.d.comb += unit.mfu.eq(self.back.progress)
        for unit in (self.fetch, self.issue):
            m.d.comb += unit.copy.eq(self.copy.progress)
        m.d.comb += [self.running.eq(decoder.running), self.done.eq(decoder.done), self.error.eq(decoder.error),
                     self.error_address.eq(decoder.error_address)]

    def _queues(self, m):
        """Connect the queues of decoded chains before each pipeline, and of writes after the multi-function units."""
        depth = self.config.chain_queue
        ends = {"fetch": self.fetch.job, "issue": self.issue.job, "write": self.back.job, "copy": self.copy.job,
                "copy_write": self.copy.write_job}
        for name, end in ends.items():
            through_queue(m, f"{name}_jobs", depth * (2 if name == "write" else 1), getattr(self.interlock, name), end)
        outside = self.transfers.load_done if self.config.dram_words else None
        product_start(m, self.config, self.interlock.product, self.mvm.product, self.copy.progress.done, outside)

    def _vector_memories(self, m):
        memories, mfus, issue, back = self.memories, self.mfus, self.issue, self.back
        units = {"fetch": self.fetch, "issue": issue, "copy": self.copy, "host": self.host_read}
        if self.config.vector_rf:
            units |= {"gather": self.gather}
        for name in memories.readers:
            wiring.connect(m, units[name].vectors, getattr(memories, name))
        m.d.comb += [
            mfus.go.eq(issue.enter), mfus.control.eq(issue.control), mfus.addresses.eq(issue.addresses),
            *([mfus.turn.eq(issue.turn), mfus.held.eq(issue.held)] if self.config.more_functions else []),
            mfus.word.eq(issue.word), memories.addresses.eq(mfus.reads), mfus.operands.eq(memories.operands),
            back.i.valid.eq(mfus.valid), back.i.p.eq(mfus.o), back.free.eq(~0), issue.landed.eq(back.landed),
            memories.mfu.eq(back.writes), memories.copies.eq(self.copy.writes), self.copy.free.eq(memories.free)]
        wiring.connect(m, wiring.flipped(self.write), memories.load)
        wiring.connect(m, wiring.flipped(self.read), self.host_read.i)
        wiring.connect(m, self.host_read.o, wiring.flipped(self.reply))

    def _mvm(self, m):
        """Connect the multiplier, which starts every program with an empty MvmQ."""
        mvm, copy, decoder = self.mvm, self.copy, self.decoder
        m.submodules.mvm = reset_too(m, "mvm", self.start & ~decoder.running)(mvm)
        m.submodules.loads = loads = Queue(copy.load.p.shape(), 2)
        wiring.connect(m, copy.load, loads.i)
        wiring.connect(m, self.fetch.o, mvm.operand)
        if not self.config.dram_words:
            wiring.connect(m, loads.o, mvm.load)
            wiring.connect(m, copy.matrix_word, mvm.matrix_word)
        else:
            self._tiles(m, loads.o)
        wiring.connect(m, mvm.result, self.issue.pop)
        if not self.config.dram_words:
            wiring.connect(m, wiring.flipped(self.bias), mvm.bias_write)
        else:
            self._either(m, wiring.flipped(self.bias), self.transfers.bias, mvm.bias_write)
        m.d.comb += copy.load_done.eq(mvm.load_done)

        # The last record of a tile also tells the decoder that the tile is loaded.
        packed, last = self.packed, self.packed.p.last
        records, record = packed.valid & (~last | decoder.loaded.ready), packed.p
        if self.config.dram_words:  # the host sends none while a program runs
            outside = self.transfers.packed
            records, record = records | outside.valid, Mux(outside.valid, outside.p.as_value(), packed.p.as_value())
            m.d.comb += outside.ready.eq(mvm.packed.ready)
        m.d.comb += [
            mvm.packed.valid.eq(records), mvm.packed.p.eq(record),
            decoder.loaded.valid.eq(packed.valid & last & mvm.packed.ready),
            decoder.loaded.p.tile.eq(packed.p.tile), decoder.loaded.p.integer.eq(packed.p.integer),
            packed.ready.eq(mvm.packed.ready & (~last | decoder.loaded.ready))]
        for name in ("invalid_vector", "invalid_matrix"):
            sticky = getattr(self, name)
            m.d.sync += sticky.eq(sticky | mvm.events[name])

    def _tiles(self, m, loads):
        """Connect the loads of tiles from NetQ, and those of vectors, of which only one chain is under way."""
        mvm, copy = self.mvm, self.copy
        m.submodules.builder = builder = TileBuilder(self.config)
        through_queue(m, "build_jobs", self.config.chain_queue, self.interlock.build, builder.job)
        wiring.connect(m, copy.vector_word, builder.i)
        self._either(m, copy.matrix_word, builder.o, mvm.matrix_word)
        made, load = builder.load, mvm.load
        m.d.comb += [
            load.valid.eq(made.valid | loads.valid), made.ready.eq(load.ready),
            loads.ready.eq(load.ready & ~made.valid),
            *(load.p[name].eq(Mux(made.valid, made.p[name], loads.p[name])) for name in Load.members),
            load.p.full.eq(made.valid)]

    def _entries(self, m):
        """Connect what reads and writes VectorRf, which lies in the multiplier."""
        mvm, gather, pixels, issue, interlock = self.mvm, self.gather, self.pixels, self.issue, self.interlock
        for name, port in (("columns", mvm.columns), ("gather", gather.job), ("entries", mvm.entry_job)):
            through_queue(m, f"{name}_jobs", self.config.chain_queue, getattr(interlock, name), port)
        wiring.connect(m, gather.vector_rf, mvm.gather)
        if not self.config.dram_words:
            wiring.connect(m, self.host_read.vector_rf, mvm.host)
        wiring.connect(m, pixels.o, issue.gathered)
        if not self.config.dram_words:
            wiring.connect(m, wiring.flipped(self.entry_write), mvm.host_write)
        else:
            self._entries_outside(m)
        wiring.connect(m, self.host_read.entry_o, wiring.flipped(self.entry_reply))
        m.d.comb += [
            interlock.start.eq(self.start & ~self.decoder.running), interlock.done.entries.eq(mvm.entry_progress.done),
            mvm.entry_writers.eq(interlock.entry_writers), mvm.entry_word.eq(self.back.entry_word),
            gather.writers.eq(interlock.entry_writers), gather.entries.eq(mvm.entry_progress),
            gather.mfu.eq(self.back.progress), gather.copy.eq(self.copy.progress),
            gather.room.eq(pixels.room), pixels.take.eq(gather.take), pixels.i.eq(gather.o)]

    def _net(self, m):
        """Connect the queues from and to the host. Space is reserved for words inside the multi-function units."""
        consumers = (self.fetch.net, self.issue.net, self.copy.net)
        wiring.connect(m, wiring.flipped(self.net), self.net_in.i)
        for consumer in consumers:  # the interlock lets only one of them read at a time
            m.d.comb += [consumer.valid.eq(self.net_in.o.valid), consumer.payload.eq(self.net_in.o.payload)]
        m.d.comb += self.net_in.o.ready.eq(Cat(consumer.ready for consumer in consumers).any())
        if self.watched:
            m.d.comb += self.unused.eq(self.net_in.level.any())

        room = Signal(range(self.net_out.depth + 1), init=self.net_out.depth)
        left = self.net_out.o.valid & self.net_out.o.ready
        copied = self.copy.out.valid & self.copy.out.ready
        m.d.sync += room.eq(room - (self.issue.go & self.issue.to_net) - copied + left)
        m.d.comb += [
            self.issue.net_room.eq(room != 0), self.back.net.ready.eq(1),
            self.copy.out.ready.eq((room > 1) & ~self.back.net.valid),
            self.net_out.i.valid.eq(self.back.net.valid | copied),
            self.net_out.i.p.eq(Mux(self.back.net.valid, self.back.net.payload.as_value(),
                                    self.copy.out.payload.as_value())),
            self.wait_input.eq(self.fetch.starved | self.issue.starved | self.copy.starved),
            self.wait_output.eq(self.issue.waits_output | (self.copy.out.valid & ~self.copy.out.ready))]
        if self.config.softmax_words:
            wiring.connect(m, self.net_out.o, self.softmax.i)
            wiring.connect(m, self.softmax.o, wiring.flipped(self.out))
        else:
            wiring.connect(m, self.net_out.o, wiring.flipped(self.out))

    @staticmethod
    def _either(m, host, moved, target):
        """Connect a stream of the host and one of the transfers, of which the host's rests while a program runs."""
        m.d.comb += [
            target.valid.eq(host.valid | moved.valid), host.ready.eq(target.ready & ~moved.valid),
            target.p.eq(Mux(moved.valid, moved.p.as_value(), host.p.as_value())), moved.ready.eq(target.ready)]

    def _entries_outside(self, m):
        """Let the transfers read and write entries instead of the host."""
        reads, host, target = self.transfers.entries, self.host_read.vector_rf, self.mvm.host
        m.d.comb += [
            target.request.eq(Mux(reads.request.valid, reads.request.as_value(), host.request.as_value())),
            reads.grant.eq(target.grant), host.grant.eq(target.grant & ~reads.request.valid),
            reads.entry.eq(target.entry), host.entry.eq(target.entry)]
        self._either(m, wiring.flipped(self.entry_write), self.transfers.entry_write, self.mvm.host_write)

    def _outside(self, m):
        """Connect the transfers from and to Dram. Space is kept for the words inside the multi-function units."""
        transfers, interlock, issue, copy, back = self.transfers, self.interlock, self.issue, self.copy, self.back
        for name in ("read_words", "store_words", "tile_words", "load", "move"):
            wiring.connect(m, getattr(interlock, name), getattr(transfers, name))
        for name, member in port_side(self.config).items():
            ours, theirs = getattr(self, name), getattr(transfers, name)
            if not member.is_port:
                wiring.connect(m, wiring.flipped(ours), theirs)
            else:
                m.d.comb += theirs.eq(ours)
        wiring.connect(m, wiring.flipped(self.outside), transfers.outside)
        wiring.connect(m, self.host_read.outside_range, transfers.outside_range)
        wiring.connect(m, transfers.outside_words, self.host_read.outside)
        stored, done = transfers.stored, interlock.done
        for unit in (issue, copy):  # the interlock lets only one of them read at a time
            m.d.comb += [unit.outside.valid.eq(transfers.read.valid), unit.outside.p.eq(transfers.read.p)]
        m.d.comb += [
            transfers.read.ready.eq(issue.outside.ready | copy.outside.ready),
            transfers.running.eq(self.decoder.running), issue.outside_room.eq(transfers.room),
            back.outside.ready.eq(1), copy.stored.ready.eq(transfers.room & ~back.outside.valid),
            stored.valid.eq(back.outside.valid | (copy.stored.valid & transfers.room)),
            stored.p.eq(Mux(back.outside.valid, back.outside.p.as_value(), copy.stored.p.as_value())),
            done.reads.eq(transfers.reads_done), done.stores.eq(transfers.stores_done),
            done.load.eq(transfers.load_done), done.move.eq(transfers.move_done),
            self.decoder.memory_error.eq(self.memory_error),
            self.settled.eq(transfers.settled), transfers.message_error.eq(self.message_error),
            self.events.read_dram.eq(transfers.words_read), self.events.write_dram.eq(transfers.words_written)]

    def _training(self, m):
        m.submodules.update_port = port = UpdatePort(self.config)
        wiring.connect(m, wiring.flipped(self.update), port.i)
        wiring.connect(m, port.o, wiring.flipped(self.updated))
        m.d.comb += [self.events[f"lazy_{name}"].eq(port.events[name]) for name in port.events.shape().members]

    def _events(self, m):
        events, mvm, issue, fetch, copy = self.events, self.mvm, self.issue, self.fetch, self.copy
        sources = [(issue, issue.go), (fetch, fetch.busy), (copy, copy.busy)]
        if self.config.vector_rf:
            gather = self.gather
            sources.append((gather, gather.busy))
            read = mvm.events.entries_read + (gather.busy & gather.vector_rf.request.valid)
            written = mvm.events.entries_written
            if self.config.dram_words:  # what moves as it is counts as words
                read = Mux(self.transfers.entry_read, self.config.vector_words, read)
                written |= self.transfers.entry_written
            m.d.comb += [
                events.read_vector_rf.eq(read), events.write_vector_rf.eq(written),
                events.mvm_conflict.eq(mvm.events.conflict),
                events.pool.eq(self.pixels.pooled), events.gather_busy.eq(gather.busy),
                events.gather_wait.eq(gather.waits)]
        for v, mem in enumerate(VRFS):
            reads = [go & unit.vectors.request.valid & (unit.vectors.request.memory == v) for unit, go in sources]
            if v in OPERANDS:
                reads.append(issue.go & issue.reads[OPERANDS.index(v)])
            m.d.comb += [events[READS[mem].name.lower()].eq(sum(reads)),
                         events[WRITES[mem].name.lower()].eq(self.back.writes[v].valid + copy.writes[v].valid)]
        for k, (mfu, stage) in enumerate(product(range(MFUS), Stage)):
            m.d.comb += events[f"{stage.name.lower()}{mfu}"].eq(issue.go & issue.stages[k])
        for name in ("beats", "tiles", "vectors", "rows_loaded"):
            m.d.comb += events[name].eq(mvm.events[name])
        for kind in ("partial", "product", "output"):
            m.d.comb += [events[f"overflow_{kind}"].eq(mvm.events[kind]),
                         events[f"excess_{kind}"].eq(mvm.events[f"excess_{kind}"])]
        m.d.comb += [
            events.instructions.eq(self.decoder.instructions), events.chains.eq(self.decoder.chains),
            events.read_net_q.eq(self.net_in.o.valid & self.net_in.o.ready), events.read_mvm_q.eq(issue.popped),
            events.write_net_q.eq(self.net_out.i.valid & self.net_out.i.ready),
            events.write_mvm_q.eq(self.decoder.pushed), events.cycles.eq(self.decoder.counting),
            events.fetch_busy.eq(fetch.busy), events.fetch_wait.eq(fetch.waits),
            events.mvm_busy.eq(mvm.activity.busy), events.mvm_wait_operand.eq(mvm.activity.wait_operand),
            events.mvm_wait_output.eq(mvm.activity.wait_output), events.mfu_busy.eq(issue.go),
            events.mfu_wait_operand.eq(issue.waits_operand), events.mfu_wait_output.eq(issue.waits_output),
            events.copy_busy.eq(copy.busy), events.copy_wait.eq(copy.waits)]
