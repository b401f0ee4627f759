"""The decoder, which turns instructions into checked chains."""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.decode.base_registers import BaseRegisters
from concord.hw.decode.chain_builder import ChainBuilder
from concord.hw.decode.instruction_check import Fields, InstructionCheck, Place, one_of
from concord.hw.decode.loop_stack import LoopStack
from concord.hw.decode.mode_table import ModeTable
from concord.hw.decode.scalar_registers import ScalarRegisters
from concord.hw.lib.payloads import ENTRIES, MVM, Fetched, Load, chain, index_of, indices, memory
from concord.spec.isa import instructions as isa
from concord.spec.isa.instructions import Error, Op
from concord.spec.isa.memories import Mem, depth
from concord.spec.machine.config import Config


class Decoder(wiring.Component):
    """Collects the instructions of a chain, checks the chain and passes it on; runs loops and scalar registers.

    The checks and their order are those of `spec.isa.check`: each instruction is checked when it arrives, and the
    chain at its end. A chain is passed on as a whole or not at all.

    Members:
        i: In(stream Fetched). Instructions; `jump` and `target` say where the next one comes from.
        o: Out(stream `chain`). Checked chains.
        start: In(1). Runs the program from its start; only the modes of tiles are kept.
        run: Out(1). A program is being decoded.
        drained: In(1). All chains that were passed on are finished.
        message_error: In(1). A message was malformed; the decoder stops before the next instruction. Held until reset.
        running, done, error, error_address: Out. State for the control port.
        loaded: In(stream Load). Tiles that the host has loaded.
        instructions, chains: Out. Number executed in this cycle. pushed: Out. Words pushed to MvmQ.
        counting: Out(1). High from the first decoded instruction to the end of the program.

    Timing:
        One cycle for each instruction, three more for each chain, and, for a product, one more and one for every 32
        tiles. An instruction is held in registers before it is checked, so that a program starts a cycle later, and so
        does what follows a jump or a base register that was set.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "i": In(stream.Signature(Fetched)),
            "jump": Out(1), "target": Out(isa.END_BITS),
            "o": Out(stream.Signature(chain(config))),
            "start": In(1), "run": Out(1), "drained": In(1), "message_error": In(1),
            "running": Out(1), "done": Out(1), "error": Out(4), "error_address": Out(isa.END_BITS),
            "loaded": In(stream.Signature(Load)),
            "instructions": Out(4), "chains": Out(1), "pushed": Out(isa.END_BITS), "counting": Out(1)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.registers = self.registers = ScalarRegisters(self.config)
        m.submodules.bases = self.bases = BaseRegisters()
        m.submodules.loops = self.loops = LoopStack()
        m.submodules.modes = self.modes = ModeTable(self.config.matrix_tiles)
        m.submodules.check = self.check = InstructionCheck(self.config)
        m.submodules.builder = self.builder = ChainBuilder(self.config)
        self.fields, self.place = Signal(Fields), Signal(Place)
        self.present, self.held, self.taken = Signal(Fetched), Signal(), Signal()
        self.jumps = Signal()  # the present instruction jumps
        self.source_address = Signal(isa.END_BITS)
        # The first instruction of the chain whose addresses leave its memory, or else the one that overwrites entries
        # or windows that the chain reads.
        self.bad_range, self.overlap, self.bad_address = Signal(), Signal(), Signal(isa.END_BITS)
        self.queued = Signal(isa.END_BITS)  # words of MvmQ, in program order
        self.agreed, self.total = Signal(), Signal(isa.END_BITS + 1)  # what the tiles' modes, and MvmQ, are to be
        self._take(m)
        self._connect(m)
        self.counted = Signal()  # the present instruction counts, unless it fails
        followed, emitted = Signal(), Signal.like(self.instructions)
        failed, broken = self._fail(m, emitted), self._rules(m)
        self._addresses(m, followed)

        with m.FSM(name="decode") as fsm:
            m.d.comb += [self.run.eq(Cat(fsm.ongoing(state) for state in (
                "RUN", "CHECK", "CHECKED", "MODES", "AGREED", "EMIT")).any()),
                         self.running.eq(~fsm.ongoing("IDLE"))]
            with m.State("IDLE"):
                self._idle(m)
            with m.State("RUN"):
                self._run(m, followed)
                with m.If(failed):
                    m.next = "DRAIN"
            with m.State("CHECK"):  # registers hold what is wrong with the chain
                m.next = "CHECKED"
                with m.If(failed):
                    m.next = "DRAIN"
            with m.State("CHECKED"):
                self._check(m, broken)
            with m.State("MODES"):
                self._look_modes_up(m)
            with m.State("AGREED"):
                self._check_modes(m)
            with m.State("EMIT"):
                m.d.comb += self.o.valid.eq(1)
                with m.If(self.o.ready):
                    total = self.registers.values.total_words
                    m.d.comb += [emitted.eq(self.place.length), self.chains.eq(1),
                                 self.pushed.eq(Mux(self.builder.o.push, total, 0))]
                    m.next = "RUN"
            with m.State("DRAIN"):
                with m.If(self.drained & ~failed):
                    m.d.sync += self.done.eq(1)
                    m.next = "IDLE"

        seen = Signal()
        m.d.comb += self.counting.eq((seen | self.taken) & self.running)
        m.d.sync += seen.eq(self.counting)
        with m.If(self.message_error & (self.error == Error.NONE)):
            m.d.sync += [self.error.eq(Error.MESSAGE), self.error_address.eq(0)]
        return m

    def _take(self, m):
        """Hold the present instruction in registers, while the next one comes; a jump drops the latter."""
        dropping, take = Signal(), Signal()
        m.d.comb += [
            self.jump.eq(self.jumps | dropping), take.eq(self.i.valid & self.i.ready),
            self.i.ready.eq(self.run & (self.jump | ((~self.held | self.taken) & ~(self.held & self.bases.moves)))),
            self.bases.load.eq(take)]
        with m.If(~self.run):
            m.d.sync += [self.held.eq(0), dropping.eq(0)]
        with m.Elif(self.jump):
            m.d.sync += [self.held.eq(0), dropping.eq(~take)]
        with m.Elif(take | self.taken):
            m.d.sync += self.held.eq(take)
        with m.If(take):
            m.d.sync += self.present.eq(self.i.p)

    def _connect(self, m):
        """Connect the sub-units to the present instruction."""
        v, check, builder, registers = self.registers.values, self.check, self.builder, self.registers
        bases, loops = self.bases, self.loops
        m.d.comb += [
            self.fields.eq(self.present.word), self.target.eq(loops.target), self.o.p.eq(builder.o),
            loops.count.eq(self.fields.a), loops.body.eq(self.present.address + 1),
            registers.clear.eq(self.start), registers.reg.eq(self.fields.mem), registers.value.eq(self.fields.a),
            check.word.eq(self.present.word), check.outside.eq(self.present.outside), check.place.eq(self.place),
            check.chain.eq(builder.parts), check.values.eq(v),
            check.address.eq(bases.address), check.sum_outside.eq(bases.outside), bases.fields.eq(self.i.p.word),
            bases.clear.eq(self.start), builder.address.eq(bases.address),
            builder.fields.eq(self.fields), builder.end.eq(check.end), builder.place.eq(self.place),
            builder.values.eq(v)]

    def _stop(self, m, error, address):
        with m.If(self.error == Error.NONE):
            m.d.sync += [self.error.eq(error), self.error_address.eq(address)]
        m.next = "DRAIN"

    def _idle(self, m):
        """Wait for a start, and store the modes of tiles that the host loads."""
        request = self.modes.i
        with m.If(self.loaded.valid):
            m.d.comb += [request.valid.eq(1), request.p.set.eq(1), request.p.count.eq(1),
                         request.p.first.eq(self.loaded.p.tile), request.p.integer.eq(self.loaded.p.integer),
                         self.loaded.ready.eq(self.modes.done)]
        with m.Elif(self.start & (self.error != Error.MESSAGE) & ~self.message_error):
            m.d.sync += [self.done.eq(0), self.error.eq(Error.NONE), self.error_address.eq(0), self.queued.eq(0),
                         self.place.eq(0)]
            m.next = "RUN"

    def _fail(self, m, emitted):
        """Stop at an instruction that is wrong, a cycle after it; what the next one does then has no effect.

        Args:
            emitted: Number of instructions of the chain that is passed on in this cycle.

        Returns:
            High in the cycle after the instruction.
        """
        failed, counted, error, address = Signal(), Signal(), Signal(4), Signal(isa.END_BITS)
        m.d.sync += [
            failed.eq(self.taken & (self.check.error != Error.NONE) & ~failed), counted.eq(self.counted & ~failed),
            error.eq(self.check.error), address.eq(self.present.address)]
        m.d.comb += self.instructions.eq(emitted | (counted & ~failed))
        with m.If(failed & (self.error == Error.NONE)):
            m.d.sync += [self.error.eq(error), self.error_address.eq(address)]
        return failed

    def _addresses(self, m, followed):
        """Note what is wrong with the addresses of a chain's instructions, a cycle after each of them."""
        late, beyond, overwrites, address = Signal(), Signal(), Signal(), Signal(isa.END_BITS)
        m.d.sync += [late.eq(followed), beyond.eq(self.check.beyond), address.eq(self.present.address)]
        if self.config.vector_rf:
            m.d.sync += overwrites.eq(self._overwrites())
        with m.If(late & ~self.bad_range & beyond):
            m.d.sync += [self.bad_range.eq(1), self.bad_address.eq(address)]
        with m.Elif(late & ~self.bad_range & overwrites):
            m.d.sync += [self.overlap.eq(1), self.bad_address.eq(address)]

    def _run(self, m, followed):
        """Handle one instruction; `followed` says that it continues a chain."""
        f, place = self.fields, self.place
        with m.If(self.message_error):
            self._stop(m, Error.MESSAGE, 0)
        with m.Elif(self.held & (self.registers.fresh | one_of(f.op, [Op.S_WR, Op.S_ADD]))):
            m.d.comb += self.taken.eq(1)
            with m.If(place.open):
                m.d.comb += self.builder.add.eq(1)
                self._follow(m)
                m.d.comb += followed.eq(1)
                with m.If(f.op == Op.END_CHAIN):
                    m.next = "CHECK"
            with m.Else():
                self._between_chains(m)

    def _follow(self, m):
        """Update the position after one more instruction of a chain."""
        f, place = self.fields, self.place
        write = f.op == Op.V_WR
        m.d.sync += [
            place.length.eq(place.length + 1), place.written.eq(write | (f.op == Op.M_WR)),
            place.writes.eq(place.writes + write), place.open.eq(f.op != Op.END_CHAIN),
            place.closed.eq(place.closed | (f.op == Op.M_WR) | (write & (f.mem == Mem.MVM_Q)))]
        for op, spec in isa.specs(self.config).items():
            if spec.operation:
                with m.If(f.op == op):
                    m.d.sync += place.position.eq(spec.position + 1)

    def _overwrites(self):
        """Whether the instruction writes to addresses that the chain has read ahead of time."""
        f, builder = self.fields, self.builder
        chain, memory_written = builder.o, index_of(self.config, f.mem)
        return ((f.op == Op.V_WR) & (chain.gather | chain.product.from_entries) & (memory_written == chain.memory)
                & (self.bases.address < builder.source_end) & (builder.source < self.check.end))

    def _between_chains(self, m):
        f, place, address = self.fields, self.place, self.present.address
        m.d.comb += self.counted.eq(~one_of(f.op, [Op.V_RD, Op.M_RD]))
        with m.Switch(f.op):
            with m.Case(Op.V_RD, Op.M_RD):
                m.d.comb += self.builder.begin.eq(1)
                m.d.sync += [place.eq(0), place.open.eq(1), place.length.eq(1), place.loops.eq(place.loops),
                             self.source_address.eq(address), self.bad_range.eq(0), self.overlap.eq(0)]
            with m.Case(Op.S_WR):
                m.d.comb += [self.registers.write.eq(~one_of(f.mem, isa.BASES)), self.bases.write.eq(1)]
            with m.Case(Op.S_ADD):
                m.d.comb += self.bases.add.eq(1)
            with m.Case(Op.LOOP):
                m.d.comb += self.loops.enter.eq(1)
                m.d.sync += place.loops.eq(place.loops + 1)
            with m.Case(Op.END_LOOP):
                m.d.comb += [self.loops.back.eq(1), self.jumps.eq(self.loops.again)]
                m.d.sync += place.loops.eq(place.loops - ~self.loops.again)
            with m.Case(Op.END):
                m.next = "DRAIN"

    def _rules(self, m):
        """Registers that say which rules the chain as a whole breaks, by their errors."""
        c, v, config, source = self.builder.o, self.registers.values, self.config, self.builder.source
        sizes = {index: depth(config, mem) for mem, index in indices(config).items() if mem.kind.addressed}
        depths = Array(sizes.get(index, 0) for index in memory(config))
        entries, window, pool = c.memory == ENTRIES, self.builder.window, self.builder.pool
        vector = config.vector_words - 1
        unaligned = c.source.valid & c.mv_mul & ~entries & (
            ((source & vector) != 0) | (c.source.inc & (((v.stride_x | v.stride_y) & vector) != 0)))
        outside = c.source.valid & (self.builder.source_end > depths[c.memory])
        large = (v.rows > config.accumulator_rows) | (~entries & (v.columns > config.operand_columns))
        empty = (window & v.no_vectors) | ((window | pool) & v.no_pixels)
        size = v.zero | empty | (c.mv_mul & large)
        if config.softmax_words:
            size |= c.softmax & (v.words > config.softmax_words)
        rules = {Error.SIZE: size, Error.WINDOW: ~v.divides | (window & ~v.fits), Error.ALIGN: unaligned,
                 Error.RANGE: outside, Error.QUEUE: v.total_words > self.queued}
        broken = {error: Signal(name=f"broken_{error.name.lower()}") for error in rules}
        m.d.sync += [broken[error].eq(rule) for error, rule in rules.items()]
        return broken

    def _check(self, m, broken):
        """Check the chain as a whole, except for the modes of its tiles."""
        c, queue = self.builder.o, broken.pop(Error.QUEUE)
        with m.If(Cat(broken.values()).any()):
            first = Error.RANGE
            for error, wrong in reversed(broken.items()):
                first = Mux(wrong, error, first)
            self._stop(m, first, self.source_address)
        with m.Elif(self.bad_range | self.overlap):
            self._stop(m, Error.RANGE, self.bad_address)
        with m.Elif(c.mv_mul | c.matrix):
            m.next = "MODES"
        with m.Elif((c.memory == MVM) & queue):
            self._stop(m, Error.QUEUE, self.source_address)
        with m.Else():
            with m.If(c.memory == MVM):
                m.d.sync += self.queued.eq(self.queued - self.registers.values.total_words)
            m.next = "EMIT"

    def _look_modes_up(self, m):
        """Look the modes of a product's tiles up, or set those of loaded tiles."""
        c, v, request = self.builder.o, self.registers.values, self.modes.i
        m.d.comb += [request.valid.eq(1), request.p.set.eq(c.matrix), request.p.integer.eq(c.product.integer),
                     request.p.first.eq(c.product.tile), request.p.count.eq(Mux(c.matrix, v.iterations, v.tiles))]
        m.d.sync += [self.agreed.eq(self.modes.agree), self.total.eq(self.queued + v.total_words)]
        with m.If(self.modes.done):
            m.next = "AGREED"

    def _check_modes(self, m):
        """Check the modes of a product's tiles, and then MvmQ."""
        c = self.builder.o
        with m.If(c.mv_mul & ~self.agreed):
            self._stop(m, Error.FORMAT, self.source_address + 1)
        with m.Elif(c.mv_mul & ~c.push & (self.queued != 0)):
            self._stop(m, Error.QUEUE, self.source_address + 1)
        with m.Elif(c.push & (self.total > self.config.mvmq_words)):
            self._stop(m, Error.QUEUE, self.source_address + 2)
        with m.Else():
            with m.If(c.push):
                m.d.sync += self.queued.eq(self.total)
            m.next = "EMIT"
