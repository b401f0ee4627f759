"""The decoder, which turns instructions into checked chains."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.decode.base_registers import BaseRegisters
from concord.hw.decode.chain_builder import ChainBuilder
from concord.hw.decode.instruction_check import ChainPosition, InstructionCheck, is_mem, is_op
from concord.hw.decode.loop_stack import LoopStack
from concord.hw.decode.mode_table import ModeTable
from concord.hw.decode.scalar_registers import ScalarRegisters
from concord.hw.lib.outside import Failure
from concord.hw.lib.payloads import DRAM, ENTRIES, MVM, Fetched, Load, chain, indices, memory, reach_bits
from concord.spec.isa import instructions as isa
from concord.spec.isa.instructions import Error, Op
from concord.spec.isa.memories import Mem, depth
from concord.spec.machine.config import Config

#: Errors that the tiles and MvmQ show at the end of a chain, and the instructions, from the chain's first one on.
_STOPS = {"format": (Error.FORMAT, 1), "held": (Error.QUEUE, 1), "full": (Error.QUEUE, 2)}


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
        memory_error: In({valid, tag}). Pulse, on machines with Dram: an access of the chain whose instruction at `tag`
            names Dram has failed; the decoder stops before the next instruction.
        running, done, error, error_address: Out. State for the control port.
        loaded: In(stream Load). Tiles that the host has loaded.
        instructions, chains: Out. Number executed in this cycle. pushed: Out. Words pushed to MvmQ.
        counting: Out(1). High from the first decoded instruction to the end of the program.

    Timing:
        Two cycles for each instruction, three more for each chain, two more if it reads what is packed in Dram, and,
        for a product, six more and one for every 32 tiles. Two instructions are held in registers: what is known of the
        next one's word is found before it is the present one. So a jump costs five cycles, and a base register that is
        set two. After a register is written, an instruction that names words waits until their ends are known. A
        product, the end of a chain and a write of tiles wait until all values are derived from the register.

        The present instruction is started, and executed in the next cycle. Its errors are known two cycles after that,
        and what its addresses reach three cycles after. Younger instructions that were executed then have changed
        nothing outside of the decoder, since chains, which are passed on last, and the end of a program wait for that.
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
            **({"memory_error": In(Failure)} if config.dram_words else {}),
            "instructions": Out(4), "chains": Out(1), "pushed": Out(isa.END_BITS), "counting": Out(1)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.registers = self.registers = ScalarRegisters(self.config)
        m.submodules.bases = self.bases = BaseRegisters(self.config)
        m.submodules.loops = self.loops = LoopStack()
        m.submodules.modes = self.modes = ModeTable(self.config.matrix_tiles)
        m.submodules.check = self.check = InstructionCheck(self.config)
        m.submodules.builder = self.builder = ChainBuilder(self.config)
        self.kind, self.fields, self.place = self.check.kind, self.check.fields, Signal(ChainPosition)
        self.free, resting = Signal(), Signal()  # an instruction may be started; no program runs
        self.starts, self.taken = Signal(), Signal()  # the present instruction is started; it is executed
        self.address, self.source_address = Signal(isa.END_BITS), Signal(isa.END_BITS)
        # The first instruction of the chain whose addresses leave its memory, or else the one that overwrites entries
        # or windows that the chain reads.
        self.bad_range, self.overlap, self.bad_address = Signal(), Signal(), Signal(isa.END_BITS)
        self.bad, self.reached = Signal(), Signal(isa.END_BITS)  # there is one, and its address, with those found now
        self.queued = Signal(isa.END_BITS)  # words of MvmQ, in program order
        self.agreed = Signal()  # the tiles of a product have its mode
        # Words in MvmQ after a push, whether these are too many, whether it has words, and words after the chain.
        self.total, self.full = Signal(reach_bits(self.config) + 1), Signal()
        self.some, self.left = Signal(), Signal(isa.END_BITS)
        self.loading, self.looks = Signal(), Signal()  # a tile of the host, or a chain, is at the table of modes
        # What the instruction that is executed does.
        self.now = Signal(data.StructLayout(dict.fromkeys((
            "begin", "add", "end_chain", "count", "set", "set_base", "add_base", "loop", "end_loop", "end"), 1)))
        # What stops the program, and the error that is to be reported then, unless there was one before it.
        self.stops = Signal(data.StructLayout(dict.fromkeys(("message", "instruction", "chain", *_STOPS), 1)))
        self.report, self.reported, self.report_address = Signal(), Signal(4), Signal(isa.END_BITS)
        self.jumps, emitted = Signal(), Signal.like(self.instructions)
        self.lost = Signal(Failure)  # an access to Dram that failed
        self._take(m)
        self._execute(m)
        self._connect(m)
        self._modes(m)
        failed, address = self._fail(m, emitted)
        wrong, *why = self._rules(m)
        self._addresses(m)
        self._report(m, address, *why)
        m.d.sync += resting.eq(~self.running)
        with m.If(resting):
            m.d.sync += [self.place.eq(0), self.queued.eq(0)]

        with m.FSM(name="decode") as fsm:
            sizes = ("PACKED", "SIZED") if self.config.dram_words else ()
            m.d.comb += [self.run.eq(Cat(fsm.ongoing(state) for state in (
                "RUN", "SETTLE", "CHECKED", "MODES", "AGREED", "EMIT", *sizes)).any()),
                         self.running.eq(~fsm.ongoing("IDLE"))]
            with m.State("IDLE"):
                self._idle(m)
            with m.State("RUN"):
                self._run(m)
                with m.If(failed):
                    m.d.sync += self.free.eq(0)
                    m.next = "DRAIN"
            with m.State("SETTLE"):  # the errors of the last instructions, and what is wrong with the chain, are found
                m.next = "CHECKED"
                if self.config.dram_words:
                    with m.If(self._packed()):
                        m.next = "PACKED"
                with m.If(failed):
                    m.next = "DRAIN"
            with m.State("CHECKED"):
                with m.If(failed):
                    m.next = "DRAIN"
                with m.Elif(wrong):
                    self._stop(m, "chain")
                with m.Else():
                    self._admit(m)
            if self.config.dram_words:
                self._size(m, failed)
            with m.State("MODES"):
                self._look_modes_up(m)
            with m.State("AGREED"):
                self._check_modes(m)
            with m.State("EMIT"):
                m.d.comb += self.o.valid.eq(1)
                with m.If(self.o.ready):
                    total = self.registers.values.total_words
                    m.d.sync += [self.free.eq(1), self.queued.eq(self.left)]
                    m.d.comb += [emitted.eq(self.place.length), self.chains.eq(1),
                                 self.pushed.eq(Mux(self.builder.o.push, total, 0))]
                    m.next = "RUN"
            with m.State("DRAIN"):
                late = Signal(4)  # errors of the last instructions are known when its last bit is high
                m.d.sync += late.eq(Cat(1, late))
                with m.If(self.drained & late[-1]):
                    m.d.sync += [self.done.eq(1), late.eq(0)]
                    m.next = "IDLE"

        seen = Signal()
        m.d.comb += self.counting.eq((seen | self.taken) & self.running)
        m.d.sync += seen.eq(self.counting)
        with m.If(self.report & (self.error == Error.NONE)):
            m.d.sync += [self.error.eq(self.reported), self.error_address.eq(self.report_address)]
        with m.Elif(self.message_error & (self.error == Error.NONE)):
            m.d.sync += [self.error.eq(Error.MESSAGE), self.error_address.eq(0)]
        if self.config.dram_words:
            with m.Elif(self.lost.valid & (self.error == Error.NONE)):
                m.d.sync += [self.error.eq(Error.MEMORY), self.error_address.eq(self.lost.tag)]
        return m

    def _take(self, m):
        """Hold the next and the present instruction in registers; a jump drops both, and the one that comes."""
        check, bases = self.check, self.bases
        first, held, moving, take = Signal(), Signal(), Signal(), Signal()  # `moving`: a base register, before `first`
        next_address = Signal(isa.END_BITS)
        m.d.comb += [
            self.jump.eq(self.jumps), take.eq(self.i.valid & self.i.ready),
            self.i.ready.eq(self.run & (self.jumps | (~first & ~moving))),
            self.starts.eq(self.free & held & ~self.jumps & (
                self.registers.fresh | self.kind.at_once | (self.kind.reaches & self.registers.reaches))),
            *(unit.load.eq(~first) for unit in (check, bases)), *(unit.advance.eq(~held) for unit in (check, bases))]
        with m.If(~first):
            m.d.sync += next_address.eq(self.i.p.address)
        with m.If(~held):
            m.d.sync += self.address.eq(next_address)
        with m.If(~self.run | self.jumps):
            m.d.sync += [first.eq(0), held.eq(0), moving.eq(0), self.jumps.eq(self.run & ~take)]
        with m.Else():
            m.d.sync += [first.eq(Mux(first, held, take)), held.eq(Mux(held, ~self.starts, first))]
            with m.If(first & ~held & bases.moves):
                m.d.sync += moving.eq(1)
            with m.Elif(self.taken):
                m.d.sync += moving.eq(0)

    def _connect(self, m):
        """Connect the sub-units to the present instruction."""
        v, check, builder, registers = self.registers.values, self.check, self.builder, self.registers
        bases, loops = self.bases, self.loops
        m.d.comb += [
            self.target.eq(loops.target), *self._outside(m),
            loops.count.eq(self.fields.a), loops.body.eq(self.address + 1),
            registers.clear.eq(self.start), registers.reg.eq(self.fields.mem), registers.value.eq(self.fields.a),
            check.word.eq(self.i.p.word), check.outside.eq(self.i.p.outside), check.place.eq(self.place),
            check.chain.eq(builder.parts), check.values.eq(v),
            check.address.eq(bases.address), check.sum_outside.eq(bases.outside), bases.fields.eq(self.i.p.word),
            bases.clear.eq(self.start), builder.address.eq(bases.address), builder.kind.eq(self.kind),
            builder.fields.eq(self.fields), builder.end.eq(check.end), builder.place.eq(self.place),
            builder.values.eq(v)]

    def _outside(self, m) -> list:
        """Statements that drive the chain, with the addresses of its instructions that name Dram."""
        if not self.config.dram_words:
            return [self.o.p.eq(self.builder.o)]
        written = Signal(isa.END_BITS)
        with m.If(self.now.add & is_op(self.kind, Op.V_WR) & is_mem(self.kind, Mem.DRAM)):
            m.d.sync += written.eq(self.address)
        with m.If(~self.running):
            m.d.sync += self.lost.valid.eq(0)
        with m.Elif(self.memory_error.valid & ~self.lost.valid):
            m.d.sync += self.lost.eq(self.memory_error)
        reads, writes = self.o.p.outside.reads, self.o.p.outside.writes
        return [self.o.p.eq(self.builder.o), reads.address.eq(self.source_address), writes.address.eq(written)]

    def _stop(self, m, why):
        m.d.sync += self.stops[why].eq(1)
        m.next = "DRAIN"

    def _report(self, m, address, chain_error, chain_address):
        """Report why the program stops.

        Args:
            m:             The module.
            address:       Address of the instruction whose error is found in this cycle.
            chain_error:   Error of the present chain, and `chain_address`, the address of its instruction.
            chain_address: See there.
        """
        found = Signal.like(self.check.error)
        where = Signal(isa.END_BITS)
        m.d.sync += [found.eq(self.check.error), where.eq(address), self.report.eq(self.stops.as_value().any()),
                     self.reported.eq(Error.MESSAGE), self.report_address.eq(0)]
        reasons = {"instruction": (found, where), "chain": (chain_error, chain_address)} | {
            why: (error, self.source_address + offset) for why, (error, offset) in _STOPS.items()}
        for why, (error, at) in reasons.items():
            with m.If(self.stops[why]):
                m.d.sync += [self.reported.eq(error), self.report_address.eq(at)]

    def _idle(self, m):
        """Wait for a start, and store the modes of tiles that the host loads."""
        m.d.comb += self.loaded.ready.eq(~self.loading)
        with m.If(self.start & (self.error != Error.MESSAGE) & ~self.message_error):
            m.d.sync += [self.done.eq(0), self.error.eq(Error.NONE), self.error_address.eq(0), self.free.eq(1)]
            m.next = "RUN"

    def _fail(self, m, emitted):
        """Report the error of an instruction, three cycles after it; what younger ones do then has no effect.

        Args:
            emitted: Number of instructions of the chain that is passed on in this cycle.

        Returns:
            A bit that is high from the second cycle after the instruction to the end of the program, and the address of
            the instruction of two cycles before.
        """
        executed, counted = Signal(2), Signal(2)
        address = [Signal(isa.END_BITS, name=f"address{k}") for k in range(2)]
        failed, found = Signal(), Signal()
        m.d.comb += [found.eq(executed[-1] & (self.check.error != Error.NONE) & ~failed),
                     self.instructions.eq(emitted | (counted[-1] & ~found & ~failed))]
        m.d.sync += [
            executed.eq(Cat(self.taken, executed)), counted.eq(Cat(self.now.count, counted)),
            address[0].eq(self.address), address[1].eq(address[0]), failed.eq((failed | found) & self.running),
            self.stops.eq(0), self.stops.instruction.eq(found)]
        return failed | found, address[1]

    def _addresses(self, m):
        """Note what is wrong with the addresses of a chain's instructions, as late as that is known."""
        follows, overwrites = Signal(3), Signal()
        source, reads, back = Signal(), Signal(), Signal()  # it writes to the memory that the chain reads ahead of time
        address = [Signal(isa.END_BITS, name=f"reached{k}") for k in range(3)]
        first = [Signal(reach_bits(self.config), name=f"first{k}") for k in range(2)]
        m.d.sync += [
            follows.eq(Cat(self.now.add, follows)),
            *(later.eq(sooner) for kept, now in ((address, self.address), (first, self.bases.address))
              for sooner, later in zip([now, *kept], kept, strict=False))]
        if self.config.vector_rf or self.config.dram_words:
            builder, end = self.builder, self.check.end
            chain = builder.o
            ahead = chain.gather | chain.product.from_entries
            if self.config.dram_words:
                ahead |= chain.memory == DRAM
            m.d.sync += [
                source.eq(Cat(is_mem(self.kind, mem) & (chain.memory == index)
                              for mem, index in indices(self.config).items()).any()),
                reads.eq(ahead & is_op(self.kind, Op.V_WR)),
                back.eq(source & reads), overwrites.eq(back & (first[1] < builder.source_end) & (builder.source < end))]
        m.d.comb += [self.reached.eq(self.bad_address), self.bad.eq(self.bad_range | self.overlap)]
        with m.If(follows[-1] & ~self.bad_range & (self.check.beyond | overwrites)):
            m.d.comb += [self.reached.eq(address[-1]), self.bad.eq(1)]
            m.d.sync += [self.bad_range.eq(self.check.beyond), self.overlap.eq(1)]
        m.d.sync += self.bad_address.eq(self.reached)
        with m.If(self.now.begin):
            m.d.sync += [self.bad_range.eq(0), self.overlap.eq(0)]

    def _run(self, m):
        """Start instructions, and go on after those that end a chain or the program."""
        broken = self.message_error
        if self.config.dram_words:
            broken = broken | self.lost.valid
        with m.If(broken | self.now.end_chain | self.now.end):
            m.d.sync += self.free.eq(0)
        with m.If(broken):
            if self.config.dram_words:
                m.d.sync += self.stops.message.eq(self.message_error)
                m.next = "DRAIN"
            else:
                self._stop(m, "message")
        with m.Elif(self.now.end_chain):
            m.next = "SETTLE"
        with m.Elif(self.now.end):
            m.next = "DRAIN"

    def _packed(self):
        """Whether the chain reads packed tiles, entries or integers: its write says how many words these have."""
        outside = self.builder.o.outside
        return outside.load | (outside.raw & outside.reads.valid)

    def _size(self, m, failed):
        """States that wait until the end of what a chain reads packed from Dram is known."""
        for state, following in (("PACKED", "SIZED"), ("SIZED", "CHECKED")):
            with m.State(state):
                m.next = following
                with m.If(failed):
                    m.next = "DRAIN"

    def _execute(self, m):
        """Execute the instruction that was started: bits of `now` say what it does."""
        k, now, place, starts = self.kind, self.now, self.place, self.starts
        inside, outside = starts & place.open, starts & ~place.open
        source, set_register = is_op(k, Op.V_RD, Op.M_RD), is_op(k, Op.S_WR)
        m.d.sync += [
            self.taken.eq(starts), now.add.eq(inside), now.end_chain.eq(inside & is_op(k, Op.END_CHAIN)),
            now.begin.eq(outside & source), now.count.eq(outside & ~source),
            now.set.eq(outside & set_register & ~k.base), now.set_base.eq(outside & set_register),
            now.add_base.eq(outside & is_op(k, Op.S_ADD)), now.loop.eq(outside & is_op(k, Op.LOOP)),
            now.end_loop.eq(outside & is_op(k, Op.END_LOOP)), now.end.eq(outside & is_op(k, Op.END))]
        m.d.comb += [
            self.builder.add.eq(now.add), self.builder.begin.eq(now.begin), self.registers.write.eq(now.set),
            self.bases.write.eq(now.set_base), self.bases.add.eq(now.add_base), self.loops.enter.eq(now.loop),
            self.loops.back.eq(now.end_loop)]
        with m.If(now.add):
            self._follow(m)
        with m.If(now.begin):
            m.d.sync += [place.eq(0), place.open.eq(1), place.length.eq(1), place.loops.eq(place.loops),
                         self.source_address.eq(self.address)]
        with m.If(now.loop):
            m.d.sync += place.loops.eq(place.loops + 1)
        with m.If(now.end_loop):
            m.d.sync += [place.loops.eq(place.loops - ~self.loops.again), self.jumps.eq(self.loops.again)]

    def _follow(self, m):
        """Update the position after one more instruction of a chain."""
        k, place = self.kind, self.place
        write, matrix = is_op(k, Op.V_WR), is_op(k, Op.M_WR)
        m.d.sync += [
            place.length.eq(place.length + 1), place.written.eq(write | matrix),
            place.writes.eq(place.writes + write), place.open.eq(~is_op(k, Op.END_CHAIN)),
            place.closed.eq(place.closed | matrix | (write & is_mem(k, Mem.MVM_Q)))]
        for op, spec in isa.specs(self.config).items():
            if spec.operation:
                with m.If(is_op(k, op)):
                    m.d.sync += place.position.eq(spec.position + 1)

    def _rules(self, m):
        """Registers that say which rule the chain as a whole breaks first, apart from tiles and a full MvmQ.

        Returns:
            (whether it breaks one, error, address of the instruction).
        """
        c, v, config, source = self.builder.o, self.registers.values, self.config, self.builder.source
        sizes = {index: depth(config, mem) for mem, index in indices(config).items() if mem.kind.addressed}
        depths = Array(sizes.get(index, 0) for index in memory(config))
        entries, window, pool = c.memory == ENTRIES, self.builder.window, self.builder.pool
        vector = config.vector_words - 1
        unaligned = c.source.valid & c.mv_mul & ~entries & (
            ((source & vector) != 0) | (c.source.inc & (((v.stride_x | v.stride_y) & vector) != 0)))
        reads = c.source.valid | c.outside.reads.valid if config.dram_words else c.source.valid
        vectors = c.outside.vectors if config.dram_words else None
        outside = reads & (self.builder.source_end > depths[c.memory])
        large = (v.rows > config.accumulator_rows) | (~entries & (v.columns > config.operand_columns))
        empty = (window & v.no_vectors) | ((window | pool) & v.no_pixels)
        size = v.zero | empty | (c.mv_mul & large)
        if config.softmax_words:
            size |= c.softmax & (v.words > config.softmax_words)
        if config.dram_words:  # the words of a tile's vectors lie in one native vector
            size |= vectors & ((v.rows > config.native_dim) | (v.iterations_x > config.native_dim))
            ends, steps = (source & vector) + v.words[:len(c.outside.place) + 1], (v.stride_x | v.stride_y) & vector
            unaligned |= vectors & ((ends > config.vector_words) | (c.source.inc & (steps != 0)))
        rules = {Error.SIZE: size, Error.WINDOW: ~v.divides | (window & ~v.fits), Error.ALIGN: unaligned,
                 Error.RANGE: outside, Error.QUEUE: v.total_words > self.queued}
        broken = {error: Signal(name=f"broken_{error.name.lower()}") for error in rules}
        m.d.sync += [broken[error].eq(rule) for error, rule in rules.items()]
        pops = (c.memory == MVM) & ~c.mv_mul & ~c.matrix
        queue = broken.pop(Error.QUEUE) & pops
        wrong, first, address = Signal(), Signal(4), Signal(isa.END_BITS)
        less, code = Signal(isa.END_BITS), Const(Error.RANGE)
        for error, found in reversed(broken.items()):
            code = Mux(found, error, code)
        whole, reach = Cat(broken.values()).any(), self.bad
        m.d.sync += [wrong.eq(whole | reach | queue), first.eq(Mux(whole | reach, code, Error.QUEUE)),
                     address.eq(Mux(~whole & reach, self.reached, self.source_address)),
                     self.total.eq(self.queued + v.total_words), less.eq(self.queued - v.total_words),
                     self.full.eq(self.total > config.mvmq_words), self.some.eq(self.queued != 0),
                     self.left.eq(Mux(c.push, self.total, Mux(pops, less, self.queued)))]
        return wrong, first, address

    def _admit(self, m):
        """Go on with a chain that is legal apart from tiles and a full MvmQ."""
        c = self.builder.o
        m.next = "EMIT"
        with m.If(c.mv_mul | c.matrix):
            m.next = "MODES"

    def _look_modes_up(self, m):
        """Look the modes of a product's tiles up, or set those of loaded tiles."""
        m.d.comb += self.looks.eq(1)
        m.d.sync += self.agreed.eq(self.modes.agree)
        with m.If(self.modes.done & ~self.loading):
            m.next = "AGREED"

    def _modes(self, m):
        """Requests to the table of modes: of the chain, or of a tile that the host has loaded."""
        c, v, request = self.builder.o, self.registers.values, self.modes.i
        count = Mux(c.outside.vectors, v.passes, v.iterations) if self.config.dram_words else v.iterations
        tile = Signal(Load)
        with m.If(~self.loading):
            m.d.sync += [tile.eq(self.loaded.p), self.loading.eq(self.loaded.valid & self.loaded.ready)]
        with m.Elif(self.modes.done):
            m.d.sync += self.loading.eq(0)
        m.d.comb += request.valid.eq(self.loading | self.looks)
        with m.If(self.loading):
            m.d.comb += [request.p.set.eq(1), request.p.integer.eq(tile.integer), request.p.first.eq(tile.tile),
                         request.p.count.eq(1)]
        with m.Else():
            m.d.comb += [request.p.set.eq(c.matrix), request.p.integer.eq(c.product.integer),
                         request.p.first.eq(c.product.tile), request.p.count.eq(Mux(c.matrix, count, v.tiles))]

    def _check_modes(self, m):
        """Check the modes of a product's tiles, and then MvmQ."""
        c = self.builder.o
        with m.If(c.mv_mul & ~self.agreed):
            self._stop(m, "format")
        with m.Elif(c.mv_mul & ~c.push & self.some):
            self._stop(m, "held")
        with m.Elif(c.push & self.full):
            self._stop(m, "full")
        with m.Else():
            m.next = "EMIT"
