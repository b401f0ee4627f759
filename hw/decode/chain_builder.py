"""A chain, put together instruction by instruction."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from concord.hw.decode.instruction_check import Fields, one_of, place
from concord.hw.decode.scalar_registers import DERIVED
from concord.hw.lib.payloads import OPERANDS, chain
from concord.spec import isa
from concord.spec.config import Config
from concord.spec.isa import Mem, Op, Stage
from concord.spec.mfu import TAPS, ActOp, AddOp, Tap

__all__ = ["ChainBuilder"]


class ChainBuilder(wiring.Component):
    """Collects what the instructions of a chain say.

    Members:
        begin, add: In(1). The instruction is the source of a new chain; it is one more of the chain.
        fields, end: In. The instruction, and one past its last address.
        place: In. Where the decoder is. values: In. Scalar registers and what is derived from them.
        parts: Out(`chain`). What the instructions so far say by themselves.
        o: Out(`chain`). The chain, complete once its last instruction has been added.
        source: Out. First address of the source. source_end: Out. One past its last.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "begin": In(1), "add": In(1), "fields": In(Fields), "end": In(35), "place": In(place),
            "values": In(DERIVED), "parts": Out(chain(config)), "o": Out(chain(config)), "source": Out(16),
            "source_end": Out(35)})

    def elaborate(self, platform):
        m = Module()
        f, c = self.fields, self.parts
        self.net_position = Signal(3)
        self.positions = [Signal(3, name=f"position{k}") for k in range(len(isa.VRFS))]
        self.taps, self.tapped = [Signal(3, name=f"tap{k}") for k in range(TAPS)], Signal(range(TAPS + 1))
        with m.If(self.begin):
            m.d.sync += [
                c.eq(0), c.matrix.eq(f.op == Op.M_RD), c.memory.eq(f.mem - 1), c.source.inc.eq(f.inc),
                c.source.valid.eq(one_of(f.mem, isa.VRFS)), c.source.lo.eq(f.a), self.source.eq(f.a),
                self.tapped.eq(0)]
        with m.Elif(self.add):
            with m.Switch(f.op):
                with m.Case(Op.MV_MUL):
                    p = c.product
                    m.d.sync += [c.mv_mul.eq(1), p.tile.eq(f.a), p.integer.eq(f.integer), p.unsigned.eq(f.unsigned),
                                 p.bias.eq(f.bias), p.bias_address.eq(f.b)]
                with m.Case(Op.M_WR):
                    m.d.sync += [c.product.tile.eq(f.a), c.product.integer.eq(f.integer)]
                with m.Case(Op.V_WR):
                    self._write(m)
                for op, spec in isa.SPECS.items():
                    if spec.stage is not None:
                        with m.Case(op):
                            self._operation(m, op, spec)
        self._finish(m)
        return m

    def _operation(self, m, op, spec):
        f, c = self.fields, self.parts
        control = c.control[spec.stage // 3]
        m.d.sync += c.pointwise.eq(1)
        if spec.operand is not None:
            operand = c.operands[OPERANDS.index(spec.operand - 1)]
            m.d.sync += [operand.valid.eq(1), operand.lo.eq(f.a), operand.hi.eq(self.end), operand.inc.eq(f.inc)]
        match Stage(spec.stage % 3):
            case Stage.ADD0:
                kinds = (AddOp.ADD, AddOp.A_SUB_B, AddOp.B_SUB_A, AddOp.MAX)
                m.d.sync += control.add.eq(kinds[(op - Op.VV_ADD0) % 8])
            case Stage.ACT0:
                kinds = (ActOp.RELU, ActOp.SIGM, ActOp.TANH)
                m.d.sync += control.act.eq(kinds[(op - Op.V_RELU0) % 8])
            case Stage.MUL0:
                m.d.sync += control.mul.eq(1)

    def _write(self, m):
        f, c, v, position = self.fields, self.parts, self.values, self.place.position
        # The first two places that are written from become taps; a third is the chain's end.
        tap = (self.tapped != 0) & (position != self.taps[0])
        with m.If(self.tapped == 0):
            m.d.sync += [self.taps[0].eq(position), self.tapped.eq(1)]
        with m.Elif((self.tapped == 1) & tap):
            m.d.sync += [self.taps[1].eq(position), self.tapped.eq(2)]
        with m.Switch(f.mem):
            for k, mem in enumerate(isa.VRFS):
                with m.Case(mem):
                    w = c.writes[k]
                    m.d.sync += [w.valid.eq(1), w.lo.eq(f.a), w.hi.eq(self.end), w.inc.eq(f.inc),
                                 w.rising.eq(f.inc & (v.stride_out >= v.words)), w.select.tap.eq(tap),
                                 self.positions[k].eq(position)]
            with m.Case(Mem.NET_Q):
                m.d.sync += [c.net.eq(1), c.net_select.tap.eq(tap), self.net_position.eq(position)]
            with m.Case(Mem.MVM_Q):
                m.d.sync += c.push.eq(1)

    def _finish(self, m):
        """What the chain says only once it is whole: lengths, and which writes are taps."""
        c, v, o, config = self.parts, self.values, self.o, self.config
        length = Mux(c.mv_mul, v.vector_words, v.words)
        m.d.comb += self.source_end.eq(self.source + length + Mux(c.source.inc, v.span_source, 0))
        m.d.comb += o.eq(c)
        m.d.comb += [
            *(o[name].eq(v[name]) for name in ("words", "vector_words", "iterations", "iterations_x", "stride_x",
                                               "stride_y", "stride_out")),
            *(o.product[name].eq(v[name]) for name in ("columns", "row_tiles", "words", "rows", "iterations",
                                                       "out_scale")),
            o.tail.eq(v.rows % config.mfu_lanes), o.source.hi.eq(self.source_end),
            o.net_select.tapped.eq(self.net_position != self.place.position),
            *(o.writes[k].select.tapped.eq(position != self.place.position)
              for k, position in enumerate(self.positions))]
        codes = (Tap.INPUT, Tap.ADD, Tap.ACTIVATION)
        for tap, at in enumerate(self.taps):
            for position in range(len(Stage)):
                with m.If((self.tapped > tap) & (at == position)):
                    m.d.comb += o.control[position // 3].tap[tap].eq(codes[position % 3])
