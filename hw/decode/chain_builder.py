"""Builds a chain instruction by instruction."""

from itertools import product

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from concord.hw.decode.instruction_check import END, Fields, Place, held, one_of
from concord.hw.decode.scalar_registers import Derived
from concord.hw.lib.payloads import ENTRIES, INDEX, OPERANDS, chain, held_mark, index_of
from concord.spec.isa import instructions as isa
from concord.spec.isa.instructions import Op
from concord.spec.isa.memories import VRFS, Mem, addressed
from concord.spec.isa.operations import MFUS, TAP_BEFORE, TAPS, Stage
from concord.spec.machine.config import Config


class ChainBuilder(wiring.Component):
    """Collects the fields of a chain from its instructions.

    Members:
        begin, add: In(1). `begin`: the instruction is the source of a new chain. `add`: it continues the chain.
        fields, address, end: In. Fields of the instruction, its address with its base register, and one past the last
            address that it uses.
        place: In. Position of the decoder. values: In. Scalar registers and values derived from them.
        parts: Out(`chain`). Fields that follow from single instructions, so far.
        o: Out(`chain`). The chain, which is complete once its last instruction has been added.
        source: Out. First address of the source. source_end: Out. One past its last address, once the instruction
            after the source has been added.
        window, pool: Out(1). The columns of the product lie in a window; the pooling unit reduces windows.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "begin": In(1), "add": In(1), "fields": In(Fields), "address": In(isa.END_BITS), "end": In(END),
            "place": In(Place),
            "values": In(Derived), "parts": Out(chain(config)), "o": Out(chain(config)),
            "source": Out(isa.END_BITS), "source_end": Out(END), "window": Out(1), "pool": Out(1)})

    def elaborate(self, platform):
        m = Module()
        f, c = self.fields, self.parts
        position = self.place.position.shape()
        self.net_position, self.entries_position = Signal(position), Signal(position)
        self.positions = [Signal(position, name=f"position{k}") for k in range(len(VRFS))]
        self.taps, self.tapped = [Signal(position, name=f"tap{k}") for k in range(TAPS)], Signal(range(TAPS + 1))
        with m.If(self.begin):
            m.d.sync += [
                c.eq(0), c.matrix.eq(f.op == Op.M_RD), c.memory.eq(index_of(self.config, f.mem)),
                c.source.inc.eq(f.inc), c.source.valid.eq(one_of(f.mem, addressed(self.config))),
                c.source.lo.eq(self.address), self.source.eq(self.address),
                c.mode.integer.eq(f.integer), c.mode.unsigned.eq(f.unsigned), self.tapped.eq(0),
                self.window.eq(0), self.pool.eq(0)]
        with m.Elif(self.add):
            with m.Switch(f.op):
                with m.Case(Op.MV_MUL):
                    product = c.product
                    m.d.sync += [
                        c.mv_mul.eq(1), self.window.eq(f.window), product.tile.eq(f.a), product.integer.eq(f.integer),
                        product.unsigned.eq(f.unsigned), product.bias.eq(f.bias), product.bias_address.eq(f.b)]
                if self.config.vector_rf:
                    with m.Case(Op.V_POOL_MAX):
                        m.d.sync += self.pool.eq(1)
                if self.config.softmax_words:
                    with m.Case(Op.V_SOFTMAX):
                        m.d.sync += c.softmax.eq(1)
                with m.Case(Op.M_WR):
                    m.d.sync += [c.product.tile.eq(f.a), c.product.integer.eq(f.integer)]
                with m.Case(Op.V_WR):
                    self._write(m)
                for op, spec in isa.specs(self.config).items():
                    if spec.operation:
                        with m.Case(op):
                            self._operation(m, spec)
        self._finish(m)
        return m

    def _operation(self, m, spec):
        f, c = self.fields, self.parts
        control = c.control[spec.mfu]
        m.d.sync += [c.pointwise.eq(1), control[spec.stage.name.lower()].eq(spec.operation.code)]
        if spec.operand is not None:
            operand = c.operands[OPERANDS.index(INDEX[spec.operand])]
            m.d.sync += [operand.valid.eq(1), operand.lo.eq(self.address), operand.hi.eq(self.end),
                         operand.inc.eq(f.inc), *(operand[name].eq(held(f)) for name in held_mark(self.config))]

    def _write(self, m):
        f, c, v, position = self.fields, self.parts, self.values, self.place.position
        # The first two stages whose values are written become taps; a third one is the end of the chain.
        tap = (self.tapped != 0) & (position != self.taps[0])
        with m.If(self.tapped == 0):
            m.d.sync += [self.taps[0].eq(position), self.tapped.eq(1)]
        with m.Elif((self.tapped == 1) & tap):
            m.d.sync += [self.taps[1].eq(position), self.tapped.eq(2)]
        with m.Switch(f.mem):
            for k, mem in enumerate(VRFS):
                with m.Case(mem):
                    w = c.writes[k]
                    m.d.sync += [w.valid.eq(1), w.lo.eq(self.address), w.hi.eq(self.end), w.inc.eq(f.inc),
                                 w.rising.eq(f.inc & (v.stride_out >= v.words)), w.select.tap.eq(tap),
                                 self.positions[k].eq(position)]
            if self.config.vector_rf:
                with m.Case(Mem.VECTOR_RF):
                    w = c.entries
                    m.d.sync += [w.valid.eq(1), w.lo.eq(self.address), w.hi.eq(self.end), w.inc.eq(f.inc),
                                 w.rising.eq(f.inc & (v.stride_vec >= v.row_tiles)), w.select.tap.eq(tap),
                                 w.mode.integer.eq(f.integer), w.mode.unsigned.eq(f.unsigned),
                                 self.entries_position.eq(position)]
            with m.Case(Mem.NET_Q):
                m.d.sync += [c.net.eq(1), c.net_select.tap.eq(tap), self.net_position.eq(position)]
            with m.Case(Mem.MVM_Q):
                m.d.sync += c.push.eq(1)

    def _finish(self, m):
        """Fields that need the whole chain: lengths, and the writes that are taps."""
        c, v, o, config = self.parts, self.values, self.o, self.config
        length = Mux(c.mv_mul, v.operand_words, v.words)
        if config.vector_rf:
            length = self._source_length()
        m.d.comb += self.source_end.eq(self.source + length + Mux(c.source.inc, v.span_source, 0))
        m.d.comb += o.eq(c)
        m.d.comb += [
            *(o[name].eq(v[name]) for name in ("words", "operand_words", "iterations", "iterations_x", "stride_x",
                                               "stride_y", "stride_out")),
            *(o.product[name].eq(v[name]) for name in ("columns", "row_tiles", "words", "rows", "iterations",
                                                       "out_scale")),
            o.tail.eq(v.rows % config.mfu_lanes), o.source.hi.eq(self.source_end),
            o.net_select.tapped.eq(self.net_position != self.place.position),
            *(o.writes[k].select.tapped.eq(position != self.place.position)
              for k, position in enumerate(self.positions))]
        if config.vector_rf:
            self._entries(m)
        places = product(range(MFUS), Stage)
        for position, (mfu, stage) in enumerate(places):
            for tap, at in enumerate(self.taps):
                with m.If((self.tapped > tap) & (at == position)):
                    m.d.comb += o.control[mfu].tap[tap].eq(TAP_BEFORE[stage])

    def _source_length(self):
        """Number of words, or entries, from the first to the last that an iteration of the source reads."""
        c, v, entries = self.parts, self.values, self.parts.memory == ENTRIES
        vectors = Mux(self.window, v.window_vectors, Mux(entries, v.columns, v.operand_words))
        numbers = Mux(entries, v.row_tiles, v.words)
        pixels = Mux(self.window | self.pool, v.last_pixel, 0)
        return Mux(c.mv_mul, vectors, numbers) + pixels + Mux(self.window, v.span_group, 0)

    def _entries(self, m):
        """Fields of chains that read windows, or read or write VectorRf."""
        c, v, o, entries = self.parts, self.values, self.o, self.parts.memory == ENTRIES
        windows = self.window | self.pool
        m.d.comb += [
            o.product.from_entries.eq(c.mv_mul & entries), o.gather.eq(self.pool | (entries & ~c.mv_mul)),
            o.pool.eq(self.pool),
            o.window.vectors.eq(Mux(self.window, v.window_vectors, v.columns)),
            o.window.x.eq(Mux(windows, v.window_x, 1)), o.window.y.eq(Mux(windows, v.window_y, 1)),
            o.window.step.eq(v.window_step), o.window.pitch.eq(v.window_pitch),
            o.window.group.eq(Mux(self.window, v.window_group, 0)),
            o.entries.stride.eq(v.stride_vec), o.entries.skip.eq(v.skip_vec),
            o.entries.select.tapped.eq(self.entries_position != self.place.position)]
