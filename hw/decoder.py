"""Instructions to checked chains."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.mode_table import ModeTable
from hw.scalar_registers import ScalarRegisters
from hw.types import MVM, OPERANDS, chain
from spec import isa
from spec.config import Config
from spec.isa import Error, Mem, Op, Reg, Stage
from spec.mfu import ActOp, AddOp, Tap

__all__ = ["Decoder"]

Fields = data.FlexibleLayout(isa.WORD, {
    name: data.Field(unsigned(field.width), field.lo) for name, field in isa.FIELDS.items()})


def _one_of(signal, values):
    """`signal` is among `values`."""
    return signal.matches(*values) if values else Const(0)


class Decoder(wiring.Component):
    """Collects the instructions of a chain, checks the whole of it, and hands it on; runs loops and scalar registers.

    The checks and their order are those of `spec.check`: each instruction as it comes, the chain at its end. A chain
    leaves whole or not at all.

    Members:
        i: In(stream). Instructions, as `Sequencer` gives them; `jump` and `target` go back to it.
        o: Out(stream `chain`). Checked chains.
        start: In(1). Forget everything but tile modes, and run.
        run: Out(1). A program is being decoded.
        drained: In(1). Nothing handed on is still under way.
        message_error: In(1). A message was malformed: stop before the next instruction; held until reset.
        running, done, error, error_address: Out. State for the control port.
        loaded: In(stream {tile, integer}). Tiles that the host has loaded.
        instructions, chains: Out. Executed in this cycle. pushed: Out. Words that they push to MvmQ.
        counting: Out(1). From the first instruction decoded to done.

    Timing:
        One instruction a cycle, then two cycles a chain and one for every 32 tiles of a product.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "i": In(stream.Signature(data.StructLayout({"address": 17, "word": isa.WORD, "outside": 1}))),
            "jump": Out(1), "target": Out(17),
            "o": Out(stream.Signature(chain(config))),
            "start": In(1), "run": Out(1), "drained": In(1), "message_error": In(1),
            "running": Out(1), "done": Out(1), "error": Out(4), "error_address": Out(17),
            "loaded": In(stream.Signature(data.StructLayout({"tile": 16, "integer": 1}))),
            "instructions": Out(4), "chains": Out(1), "pushed": Out(17), "counting": Out(1)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.registers = self.registers = ScalarRegisters(self.config)
        m.submodules.modes = self.modes = ModeTable(self.config.matrix_tiles)
        self._declare()
        m.d.comb += [self.fields.eq(self.i.p.word), self.registers.clear.eq(self.start),
                     self.registers.reg.eq(self.fields.mem), self.registers.value.eq(self.fields.a),
                     self.target.eq(self.loop_target[0])]
        illegal = self._illegal(m)
        end, outside = self._range(m)
        self._finish_chain(m)

        with m.FSM(name="decode") as fsm:
            m.d.comb += [self.run.eq(fsm.ongoing("RUN") | fsm.ongoing("CHECK") | fsm.ongoing("MODES")
                                     | fsm.ongoing("EMIT")),
                         self.running.eq(~fsm.ongoing("IDLE"))]
            with m.State("IDLE"):
                with m.If(self.loaded.valid):
                    m.d.comb += [self.modes.i.valid.eq(1), self.modes.i.p.set.eq(1), self.modes.i.p.count.eq(1),
                                 self.modes.i.p.first.eq(self.loaded.p.tile),
                                 self.modes.i.p.integer.eq(self.loaded.p.integer),
                                 self.loaded.ready.eq(self.modes.done)]
                with m.Elif(self.start & (self.error != Error.MESSAGE) & ~self.message_error):
                    m.d.sync += [self.done.eq(0), self.error.eq(0), self.error_address.eq(0), self.queued.eq(0),
                                 self.loops.eq(0), self.open.eq(0), self.length.eq(0)]
                    m.next = "RUN"
            with m.State("RUN"):
                self._run(m, illegal, end, outside)
            with m.State("CHECK"):
                self._check(m)
            with m.State("MODES"):
                self._check_modes(m)
            with m.State("EMIT"):
                m.d.comb += self.o.valid.eq(1)
                with m.If(self.o.ready):
                    m.d.comb += [self.instructions.eq(self.length), self.chains.eq(1),
                                 self.pushed.eq(Mux(self.chain.push, self.registers.values.total_words, 0))]
                    m.d.sync += self.length.eq(0)
                    m.next = "RUN"
            with m.State("DRAIN"):
                with m.If(self.drained):
                    m.d.sync += self.done.eq(1)
                    m.next = "IDLE"
        seen = Signal()
        m.d.sync += seen.eq((seen | self.i.ready) & self.running)
        m.d.comb += self.counting.eq((seen | self.i.ready) & self.running)
        with m.If(self.message_error & (self.error == Error.NONE)):
            m.d.sync += [self.error.eq(Error.MESSAGE), self.error_address.eq(0)]
        return m

    def _declare(self):
        """State that several steps share."""
        config = self.config
        self.fields = Signal(Fields)
        self.chain = Signal(chain(config))
        self.open, self.closed = Signal(), Signal()  # inside a chain; it takes nothing but end_chain any more
        self.length = Signal(4)  # instructions of the chain so far
        self.source_address = Signal(17)
        self.source_inc, self.source_first = Signal(), Signal(16)
        self.position = Signal(3)  # stages passed: 0 before MFU 0, 6 behind MFU 1
        self.written = Signal()  # the last instruction was a write
        self.writes = Signal(2)
        self.net_position = Signal(3)
        self.positions = Array(Signal(3, name=f"position{k}") for k in range(len(isa.VRFS)))
        self.taps = [Signal(3, name="tap0"), Signal(3, name="tap1")]  # their positions
        self.tapped = Signal(2)
        self.bad_range, self.bad_address = Signal(), Signal(17)
        self.queued = Signal(17)  # words of MvmQ, in program order
        self.loops = Signal(2)
        self.loop_target = [Signal(17, name=f"loop_target{k}") for k in range(isa.LOOP_DEPTH)]
        self.loop_left = [Signal(16, name=f"loop_left{k}") for k in range(isa.LOOP_DEPTH)]

    def _stop(self, m, error, address):
        m.d.sync += [self.error.eq(Mux(self.error == Error.NONE, error, self.error)),
                     self.error_address.eq(Mux(self.error == Error.NONE, address, self.error_address)),
                     self.length.eq(0)]
        m.next = "DRAIN"

    def _illegal(self, m):
        """The error of the instruction at hand on its own and by its place in the chain, or NONE."""
        f, error = self.fields, Signal(4)
        taken = {name: Signal(name=f"takes_{name}") for name in isa.FIELDS if name != "op"}
        with m.Switch(f.op):
            for op, spec in isa.SPECS.items():
                with m.Case(op):
                    m.d.comb += [taken[name].eq(1) for name in spec.fields]
        gaps = self.i.p.word & ~sum(((1 << field.width) - 1) << field.lo for field in isa.FIELDS.values())
        strange = (gaps != 0) | ~_one_of(f.op, isa.SPECS) | Cat(f[n].any() & ~t for n, t in taken.items()).any()

        memory_kinds = [op for op, s in isa.SPECS.items() if s.mems]
        refused = Cat((f.op == op) & ~_one_of(f.mem, isa.SPECS[op].mems) for op in memory_kinds).any()
        queue_address = _one_of(f.mem, isa.QUEUES) & ((f.a != 0) | f.inc)
        with m.If(self.i.p.outside):
            m.d.comb += error.eq(Error.END)
        with m.Elif(strange):
            m.d.comb += error.eq(Error.ILLEGAL)
        with m.Elif(_one_of(f.op, memory_kinds) & ~_one_of(f.mem, Mem)):
            m.d.comb += error.eq(Error.RANGE)
        with m.Elif(_one_of(f.op, memory_kinds) & (refused | queue_address)):
            m.d.comb += error.eq(Error.ILLEGAL)
        with m.Elif((f.op == Op.S_WR) & (~_one_of(f.mem, Reg) | ((f.mem == Reg.OUT_SCALE)
                                                                & (f.a[5:] != f.a[5].replicate(11))))):
            m.d.comb += error.eq(Error.ILLEGAL)
        with m.Elif(self._misplaced()):
            m.d.comb += error.eq(Error.ILLEGAL)
        with m.Elif((f.op == Op.MV_MUL) & (f.bias | f.unsigned) & ~f.integer):
            m.d.comb += error.eq(Error.FORMAT)
        with m.Elif(((f.op == Op.LOOP) & ((f.a == 0) | (self.loops == isa.LOOP_DEPTH)))
                    | (_one_of(f.op, [Op.END_LOOP]) & (self.loops == 0)) | ((f.op == Op.END) & (self.loops != 0))):
            m.d.comb += error.eq(Error.LOOP)
        return error

    def _misplaced(self):
        """The instruction does not follow from the chain so far."""
        f, c = self.fields, self.chain
        outside = [Op.V_RD, Op.M_RD, Op.S_WR, Op.LOOP, Op.END_LOOP, Op.END]
        stages = Cat((f.op == op) & (self.position > s.stage) for op, s in isa.SPECS.items() if s.stage is not None)
        source_only = self.length == 1
        again = Cat((f.mem == mem) & c.writes[k].valid for k, mem in enumerate(isa.VRFS)).any() | (
            (f.mem == Mem.NET_Q) & c.net)
        push = f.mem == Mem.MVM_Q
        return Mux(self.open, Cat(
            _one_of(f.op, outside),
            (f.op == Op.MV_MUL) & (~source_only | c.matrix | (c.memory == MVM) | (~f.bias & (f.b != 0))),
            stages.any(),
            (f.op != Op.M_WR) & c.matrix & ~self.closed,
            (f.op == Op.M_WR) & (~c.matrix | self.closed),
            (f.op == Op.V_WR) & ((self.writes == isa.WRITES) | again
                                 | (push & ~(c.mv_mul & (self.length == 2)))),
            (f.op != Op.END_CHAIN) & self.closed,
            (f.op == Op.END_CHAIN) & ~self.written,
        ).any(), ~_one_of(f.op, outside))

    def _range(self, m):
        """(one past the last address that the instruction at hand touches, whether that lies outside its memory)."""
        f, v, config = self.fields, self.registers.values, self.config
        words, end, limit = Signal(33), Signal(35), Signal(17)
        offset = Mux(f.inc, v.span_out, 0)
        depths = {mem: isa.depth(config, mem) for mem in isa.VRFS}
        m.d.comb += words.eq(v.words)
        with m.Switch(f.op):
            for op, spec in isa.SPECS.items():
                if spec.operand is not None:
                    with m.Case(op):
                        m.d.comb += limit.eq(depths[spec.operand])
            with m.Case(Op.V_WR):
                with m.Switch(f.mem):
                    for mem, size in depths.items():
                        with m.Case(mem):
                            m.d.comb += limit.eq(size)
            with m.Case(Op.M_WR):
                m.d.comb += [limit.eq(config.matrix_tiles), words.eq(v.iterations)]
            with m.Case(Op.MV_MUL):
                m.d.comb += [limit.eq(config.matrix_tiles), words.eq(v.tiles)]
        m.d.comb += end.eq(f.a + words + offset)
        bad_bias = (f.op == Op.MV_MUL) & f.bias & (f.b + v.words > config.bias_words)
        addressed = [op for op, spec in isa.SPECS.items() if spec.operand is not None] + [Op.MV_MUL, Op.M_WR]
        bounded = _one_of(f.op, addressed) | ((f.op == Op.V_WR) & _one_of(f.mem, isa.VRFS))
        return end, (bounded & (end > limit)) | bad_bias

    def _run(self, m, illegal, end, outside):
        """One instruction."""
        f = self.fields
        with m.If(self.message_error):
            self._stop(m, Error.MESSAGE, 0)
        with m.Elif(self.i.valid & (self.registers.fresh | (f.op == Op.S_WR))):
            m.d.comb += self.i.ready.eq(1)
            with m.If(illegal != Error.NONE):
                self._stop(m, illegal, self.i.p.address)
            with m.Elif(self.open):
                m.d.sync += [self.length.eq(self.length + 1), self.written.eq(_one_of(f.op, [Op.V_WR, Op.M_WR]))]
                self._collect(m, end, outside)
            with m.Else():
                self._between_chains(m)

    def _between_chains(self, m):
        f, c = self.fields, self.chain
        with m.Switch(f.op):
            with m.Case(Op.V_RD, Op.M_RD):
                m.d.sync += [
                    c.eq(0), c.matrix.eq(f.op == Op.M_RD), c.memory.eq(f.mem - 1), c.source.inc.eq(f.inc),
                    c.source.valid.eq(_one_of(f.mem, isa.VRFS)), c.source.lo.eq(f.a), self.source_first.eq(f.a),
                    self.source_address.eq(self.i.p.address), self.length.eq(1), self.open.eq(1), self.closed.eq(0),
                    self.position.eq(0), self.written.eq(0), self.writes.eq(0), self.tapped.eq(0),
                    self.bad_range.eq(0)]
            with m.Case(Op.S_WR):
                m.d.comb += [self.registers.write.eq(1), self.instructions.eq(1)]
            with m.Case(Op.LOOP):
                m.d.comb += self.instructions.eq(1)
                m.d.sync += [self.loops.eq(self.loops + 1), self.loop_left[0].eq(f.a),
                             self.loop_target[0].eq(self.i.p.address + 1),
                             self.loop_left[1].eq(self.loop_left[0]), self.loop_target[1].eq(self.loop_target[0])]
            with m.Case(Op.END_LOOP):
                m.d.comb += self.instructions.eq(1)
                with m.If(self.loop_left[0] == 1):
                    m.d.sync += [self.loops.eq(self.loops - 1), self.loop_left[0].eq(self.loop_left[1]),
                                 self.loop_target[0].eq(self.loop_target[1])]
                with m.Else():
                    m.d.comb += self.jump.eq(1)
                    m.d.sync += self.loop_left[0].eq(self.loop_left[0] - 1)
            with m.Case(Op.END):
                m.d.comb += self.instructions.eq(1)
                m.next = "DRAIN"

    def _collect(self, m, end, outside):
        """Add the instruction to the chain."""
        f, c = self.fields, self.chain
        with m.If(outside & ~self.bad_range & (f.op != Op.END_CHAIN)):
            m.d.sync += [self.bad_range.eq(1), self.bad_address.eq(self.i.p.address)]
        with m.Switch(f.op):
            with m.Case(Op.END_CHAIN):
                m.d.sync += self.open.eq(0)
                m.next = "CHECK"
            with m.Case(Op.MV_MUL):
                p = c.product
                m.d.sync += [c.mv_mul.eq(1), p.tile.eq(f.a), p.integer.eq(f.integer), p.unsigned.eq(f.unsigned),
                             p.bias.eq(f.bias), p.bias_address.eq(f.b)]
            with m.Case(Op.M_WR):
                m.d.sync += [c.product.tile.eq(f.a), c.product.integer.eq(f.integer), self.closed.eq(1)]
            with m.Case(Op.V_WR):
                self._collect_write(m, end)
            for op, spec in isa.SPECS.items():
                if spec.stage is not None:
                    with m.Case(op):
                        self._collect_operation(m, op, spec, end)

    def _collect_operation(self, m, op, spec, end):
        f, c = self.fields, self.chain
        control = c.control[spec.stage // 3]
        m.d.sync += [c.pointwise.eq(1), self.position.eq(spec.stage + 1)]
        if spec.operand is not None:
            operand = c.operands[OPERANDS.index(spec.operand - 1)]
            m.d.sync += [operand.valid.eq(1), operand.lo.eq(f.a), operand.hi.eq(end), operand.inc.eq(f.inc)]
        match Stage(spec.stage % 3):
            case Stage.ADD0:
                kinds = (AddOp.ADD, AddOp.A_SUB_B, AddOp.B_SUB_A, AddOp.MAX)
                m.d.sync += control.add.eq(kinds[(op - Op.VV_ADD0) % 8])
            case Stage.ACT0:
                kinds = (ActOp.RELU, ActOp.SIGM, ActOp.TANH)
                m.d.sync += control.act.eq(kinds[(op - Op.V_RELU0) % 8])
            case Stage.MUL0:
                m.d.sync += control.mul.eq(1)

    def _collect_write(self, m, end):
        f, c, v = self.fields, self.chain, self.registers.values
        m.d.sync += self.writes.eq(self.writes + 1)
        # The first two places that are written from become taps; a third is the chain's end.
        tap = Mux((self.tapped != 0) & (self.position != self.taps[0]), 1, 0)
        with m.If(self.tapped == 0):
            m.d.sync += [self.taps[0].eq(self.position), self.tapped.eq(1)]
        with m.Elif((self.tapped == 1) & (self.position != self.taps[0])):
            m.d.sync += [self.taps[1].eq(self.position), self.tapped.eq(2)]
        with m.Switch(f.mem):
            for k, mem in enumerate(isa.VRFS):
                with m.Case(mem):
                    w = c.writes[k]
                    m.d.sync += [w.valid.eq(1), w.lo.eq(f.a), w.hi.eq(end), w.inc.eq(f.inc),
                                 w.rising.eq(f.inc & (v.stride_out >= v.words)),
                                 w.select.tap.eq(tap), self.positions[k].eq(self.position)]
            with m.Case(Mem.NET_Q):
                m.d.sync += [c.net.eq(1), c.net_select.tap.eq(tap), self.net_position.eq(self.position)]
            with m.Case(Mem.MVM_Q):
                m.d.sync += [c.push.eq(1), self.closed.eq(1)]

    def _finish_chain(self, m):
        """What the chain says only once it is whole."""
        c, v, p, config = self.chain, self.registers.values, self.o.p, self.config
        m.d.comb += p.eq(c)
        m.d.comb += [
            p.words.eq(v.words), p.tail.eq(v.rows % config.mfu_lanes), p.vector_words.eq(v.vector_words),
            p.iterations.eq(v.iterations), p.iterations_x.eq(v.iterations_x), p.stride_x.eq(v.stride_x),
            p.stride_y.eq(v.stride_y), p.stride_out.eq(v.stride_out), p.source.hi.eq(self._source_end()),
            p.product.columns.eq(v.columns), p.product.row_tiles.eq(v.row_tiles), p.product.words.eq(v.words),
            p.product.rows.eq(v.rows), p.product.iterations.eq(v.iterations), p.product.out_scale.eq(v.out_scale),
            p.net_select.tapped.eq(self.net_position != self.position)]
        m.d.comb += [p.writes[k].select.tapped.eq(self.positions[k] != self.position) for k in range(len(isa.VRFS))]
        codes = (Tap.INPUT, Tap.ADD, Tap.ACTIVATION)
        for tap, place in enumerate(self.taps):
            for position in range(6):
                with m.If((self.tapped > tap) & (place == position)):
                    m.d.comb += p.control[position // 3].tap[tap].eq(codes[position % 3])

    def _source_end(self):
        c, v = self.chain, self.registers.values
        return self.source_first + Mux(c.mv_mul, v.vector_words, v.words) + Mux(c.source.inc, v.span_source, 0)

    def _check(self, m):
        """The chain as a whole, up to the modes of its tiles."""
        c, v, config = self.chain, self.registers.values, self.config
        depths = Array(isa.depth(config, mem) for mem in isa.VRFS)
        vector = config.words - 1
        unaligned = c.source.valid & c.mv_mul & (
            ((self.source_first & vector) != 0) | (c.source.inc & (((v.stride_x | v.stride_y) & vector) != 0)))
        outside = c.source.valid & (self._source_end() > depths[c.memory])
        with m.If(v.zero | (c.mv_mul & ((v.rows > config.accumulator_rows) | (v.columns > config.operand_columns)))):
            self._stop(m, Error.SIZE, self.source_address)
        with m.Elif(~v.divides):
            self._stop(m, Error.WINDOW, self.source_address)
        with m.Elif(unaligned):
            self._stop(m, Error.ALIGN, self.source_address)
        with m.Elif(outside):
            self._stop(m, Error.RANGE, self.source_address)
        with m.Elif(self.bad_range):
            self._stop(m, Error.RANGE, self.bad_address)
        with m.Elif(c.mv_mul | c.matrix):
            m.next = "MODES"
        with m.Elif((c.memory == MVM) & (v.total_words > self.queued)):
            self._stop(m, Error.QUEUE, self.source_address)
        with m.Else():
            with m.If(c.memory == MVM):
                m.d.sync += self.queued.eq(self.queued - v.total_words)
            m.next = "EMIT"

    def _check_modes(self, m):
        """The modes of a product's tiles, then MvmQ; or the modes that a load sets."""
        c, v, request = self.chain, self.registers.values, self.modes.i
        m.d.comb += [request.valid.eq(1), request.p.set.eq(c.matrix), request.p.integer.eq(c.product.integer),
                     request.p.first.eq(c.product.tile), request.p.count.eq(Mux(c.matrix, v.iterations, v.tiles))]
        total = self.queued + v.total_words
        with m.If(self.modes.done):
            with m.If(c.mv_mul & ~self.modes.agree):
                self._stop(m, Error.FORMAT, self.source_address + 1)
            with m.Elif(c.mv_mul & ~c.push & (self.queued != 0)):
                self._stop(m, Error.QUEUE, self.source_address + 1)
            with m.Elif(c.push & (total > self.config.mvmq_words)):
                self._stop(m, Error.QUEUE, self.source_address + 2)
            with m.Else():
                with m.If(c.push):
                    m.d.sync += self.queued.eq(total)
                m.next = "EMIT"
