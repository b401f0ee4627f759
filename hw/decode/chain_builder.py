"""Builds a chain instruction by instruction."""

from functools import reduce
from itertools import product
from operator import or_

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from concord.hw.decode.instruction_check import ChainPosition, Fields, end_bits, field_of, is_mem, is_op, kind_of
from concord.hw.decode.scalar_registers import derived
from concord.hw.lib import packed_words
from concord.hw.lib.payloads import DRAM, ENTRIES, INDEX, OPERANDS, chain, held_mark, indices, reach_bits
from concord.spec.isa import instructions as isa
from concord.spec.isa.instructions import Op
from concord.spec.isa.memories import VRFS, Mem, addressed
from concord.spec.isa.operations import MFUS, TAP_BEFORE, TAPS, Stage
from concord.spec.machine.config import Config


class ChainBuilder(wiring.Component):
    """Collects the fields of a chain from its instructions.

    Members:
        begin, add: In(1). `begin`: the instruction is the source of a new chain. `add`: it continues the chain.
        kind, fields, address: In. Kind and fields of the instruction, and its address with its base register.
        end: In. One past the last address that the instruction uses, two cycles after `begin` or `add`.
        place: In. Position of the decoder. values: In. Scalar registers and values derived from them.
        parts: Out(`chain`). Fields that follow from single instructions, so far.
        o: Out(`chain`). The chain, which is complete once its last instruction has been added.
        source: Out. First address of the source. source_end: Out. One past its last address.
        window, pool: Out(1). The columns of the product lie in a window; the pooling unit reduces windows.

    Timing:
        Takes an instruction every two cycles. Ends of addresses follow an instruction three cycles later, and
        `source_end` the source, and the instruction after it, four cycles later.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "begin": In(1), "add": In(1), "kind": In(kind_of(config)), "fields": In(Fields),
            "address": In(reach_bits(config)), "end": In(end_bits(config)), "place": In(ChainPosition),
            "values": In(derived(config)), "parts": Out(chain(config)), "o": Out(chain(config)),
            "source": Out(reach_bits(config)), "source_end": Out(end_bits(config)), "window": Out(1), "pool": Out(1)})

    def elaborate(self, platform):
        m = Module()
        f, c, k, v = self.fields, self.parts, self.kind, self.values
        position = self.place.position.shape()
        self.net_position, self.entries_position = Signal(position), Signal(position)
        self.positions = [Signal(position, name=f"position{k}") for k in range(len(VRFS))]
        self.taps, self.tapped = [Signal(position, name=f"tap{k}") for k in range(TAPS)], Signal(range(TAPS + 1))
        self.rises, self.entries_rise, self.outside_position = Signal(), Signal(), Signal(position)
        m.d.sync += [self.rises.eq(v.stride_out >= v.words), self.entries_rise.eq(v.stride_vec >= v.row_tiles)]
        on_chip = [mem for mem in addressed(self.config) if mem.kind.on_chip]
        with m.If(self.begin):
            memory = reduce(or_, (Mux(is_mem(k, mem), index, 0) for mem, index in indices(self.config).items()))
            m.d.sync += [
                c.eq(0), c.matrix.eq(is_op(k, Op.M_RD)), c.memory.eq(memory),
                c.source.inc.eq(f.inc), c.source.valid.eq(is_mem(k, *on_chip)),
                c.source.lo.eq(self.address), self.source.eq(self.address),
                c.mode.integer.eq(f.integer), c.mode.unsigned.eq(f.unsigned), self.tapped.eq(0),
                self.window.eq(0), self.pool.eq(0)]
            if self.config.dram_words:
                m.d.sync += [c.outside.raw.eq(field_of(f, "raw")),
                             c.outside.vectors.eq(is_op(k, Op.M_RD) & is_mem(k, *VRFS))]
        with m.Elif(self.add):
            with m.If(is_op(k, Op.MV_MUL)):
                m.d.sync += [
                    c.mv_mul.eq(1), self.window.eq(f.window), c.product.unsigned.eq(f.unsigned),
                    c.product.bias.eq(f.bias), c.product.bias_address.eq(f.b)]
            if self.config.dram_words:
                with m.If(is_op(k, Op.M_WR)):
                    m.d.sync += [c.outside.diagonal.eq(field_of(f, "diagonal")),
                                 c.outside.transposed.eq(field_of(f, "transposed"))]
            with m.If(is_op(k, Op.MV_MUL, Op.M_WR)):
                tile = self.address if self.config.dram_words else f.a
                m.d.sync += [c.product.tile.eq(tile), c.product.integer.eq(f.integer)]
            if self.config.vector_rf:
                with m.If(is_op(k, Op.V_POOL_MAX)):
                    m.d.sync += self.pool.eq(1)
            if self.config.softmax_words:
                with m.If(is_op(k, Op.V_SOFTMAX)):
                    m.d.sync += c.softmax.eq(1)
            with m.If(is_op(k, Op.V_WR)):
                self._write(m)
            with m.If(k.pointwise):
                m.d.sync += c.pointwise.eq(1)
        for op, spec in isa.specs(self.config).items():
            if spec.operation:
                with m.If(self.add & is_op(k, op)):
                    self._operation(m, spec)
        self._ends(m)
        self._finish(m)
        return m

    def _operation(self, m, spec):
        f, c = self.fields, self.parts
        control = c.control[spec.mfu]
        m.d.sync += control[spec.stage.name.lower()].eq(spec.operation.code)
        if spec.operand is not None:
            operand = c.operands[OPERANDS.index(INDEX[spec.operand])]
            m.d.sync += [operand.valid.eq(1), operand.lo.eq(self.address), operand.inc.eq(f.inc),
                         *(operand[name].eq(field_of(f, name)) for name in held_mark(self.config))]

    def _ends(self, m):
        """Fill in the ends of addresses, which come late."""
        c, k, config = self.parts, self.kind, self.config
        write = is_op(k, Op.V_WR)
        targets = [(c.writes[n], write & is_mem(k, mem)) for n, mem in enumerate(VRFS)]
        if config.vector_rf:
            targets.append((c.entries, write & is_mem(k, Mem.VECTOR_RF)))
        if config.dram_words:
            targets += [(c.outside.writes, write & is_mem(k, Mem.DRAM)),
                        (c.outside.tiles, is_op(k, Op.MV_MUL, Op.M_WR))]
        for operand, memory in zip(c.operands, OPERANDS, strict=True):
            ops = [op for op, spec in isa.specs(config).items()
                   if spec.operand is not None and INDEX[spec.operand] == memory]
            targets.append((operand, is_op(k, *ops)))
        for n, (target, chosen) in enumerate(targets):
            due = Signal(2, name=f"due{n}")
            m.d.sync += due.eq(Cat(self.add & chosen, due))
            with m.If(due[1]):
                m.d.sync += target.hi.eq(self.end)

    def _write(self, m):
        f, c, k, position = self.fields, self.parts, self.kind, self.place.position
        # The first two stages whose values are written become taps; a third one is the end of the chain.
        tap = (self.tapped != 0) & (position != self.taps[0])
        with m.If(self.tapped == 0):
            m.d.sync += [self.taps[0].eq(position), self.tapped.eq(1)]
        with m.Elif((self.tapped == 1) & tap):
            m.d.sync += [self.taps[1].eq(position), self.tapped.eq(2)]
        for n, mem in enumerate(VRFS):
            w = c.writes[n]
            with m.If(is_mem(k, mem)):
                m.d.sync += [w.valid.eq(1), w.lo.eq(self.address), w.inc.eq(f.inc), w.rising.eq(f.inc & self.rises),
                             w.select.tap.eq(tap), self.positions[n].eq(position)]
        if self.config.vector_rf:
            w = c.entries
            with m.If(is_mem(k, Mem.VECTOR_RF)):
                m.d.sync += [w.valid.eq(1), w.lo.eq(self.address), w.inc.eq(f.inc),
                             w.rising.eq(f.inc & self.entries_rise), w.select.tap.eq(tap),
                             w.mode.integer.eq(f.integer), w.mode.unsigned.eq(f.unsigned),
                             self.entries_position.eq(position)]
        if self.config.dram_words:
            w = c.outside.writes
            with m.If(is_mem(k, Mem.DRAM)):
                m.d.sync += [w.valid.eq(1), w.lo.eq(self.address), w.inc.eq(f.inc), w.select.tap.eq(tap),
                             self.outside_position.eq(position), c.outside.raw.eq(field_of(f, "raw"))]
            with m.If(is_mem(k, Mem.BIAS_RF)):
                m.d.sync += c.outside.bias.eq(1)
            with m.If(c.outside.raw):
                m.d.sync += [c.outside.inside.eq(self.address), c.outside.inside_inc.eq(f.inc)]
        with m.If(is_mem(k, Mem.NET_Q)):
            m.d.sync += [c.net.eq(1), c.net_select.tap.eq(tap), self.net_position.eq(position)]
        with m.If(is_mem(k, Mem.MVM_Q)):
            m.d.sync += c.push.eq(1)

    def _finish(self, m):
        """Fields that need the whole chain: lengths, and the writes that are taps."""
        c, v, o, config = self.parts, self.values, self.o, self.config
        m.d.comb += o.eq(c)
        length, rest, reach, end = Mux(c.mv_mul, v.operand_words, v.words), Const(0), v.span_source, end_bits(config)
        if config.vector_rf:
            length, rest = self._source_length(m)
        if config.dram_words:
            length, reach = self._outside(m, length)
        # Stages: how far iterations move, and the length; its sum with the source; the sum of all.
        span, number, moved = Signal.like(v.span_source), Signal(end), Signal(end)
        m.d.sync += [span.eq(Mux(c.source.inc, reach, 0)), number.eq(length), moved.eq(self.source + span),
                     self.source_end.eq(moved + number + rest)]
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
        stages = product(range(MFUS), Stage)
        for position, (mfu, stage) in enumerate(stages):
            for tap, at in enumerate(self.taps):
                with m.If((self.tapped > tap) & (at == position)):
                    m.d.comb += o.control[mfu].tap[tap].eq(TAP_BEFORE[stage])

    def _source_length(self, m):
        """Number of words, or entries, from the first to the last that an iteration of the source reads, in two parts.

        The second part is the registered sum of what pixels and groups of a window add.
        """
        c, v, entries = self.parts, self.values, self.parts.memory == ENTRIES
        vectors = Mux(self.window, v.window_vectors, Mux(entries, v.columns, v.operand_words))
        numbers = Mux(entries, v.row_tiles, v.words)
        pixels, group, rest = Signal.like(v.last_pixel), Signal.like(v.span_group), Signal(end_bits(self.config))
        m.d.sync += [pixels.eq(Mux(self.window | self.pool, v.last_pixel, 0)),
                     group.eq(Mux(self.window, v.span_group, 0)), rest.eq(pixels + group)]
        return Mux(c.mv_mul, vectors, numbers), rest

    def _outside(self, m, length):
        """Fields of chains that name Dram. Returns the length of an iteration of any source, and how far it moves.

        Sizes in all modes are registers, which follow the scalar registers. The mode is there in the cycle after the
        write of the chain, and chooses one.
        """
        c, v, o, config = self.parts.outside, self.values, self.o.outside, self.config
        inside = Mux(c.writes.valid, self.parts.mode.integer, self.parts.entries.mode.integer)
        load, count = self.parts.matrix & (self.parts.memory == DRAM), Signal(isa.REGISTER_BITS + 1)
        sizes = [Signal.like(count, name=f"entries{integer}") for integer in range(2)]
        m.d.sync += [size.eq(packed_words.entries_words(config, v.row_tiles, integer))
                     for integer, size in enumerate(sizes)]
        tile = packed_words.tile_words(config, self.parts.product.integer, c.diagonal)
        moves = Mux(c.bias, v.words << 1, Mux(inside, sizes[1], sizes[0]))
        m.d.sync += count.eq(Mux(load, tile, moves))
        m.d.comb += [
            o.place.eq(self.source), o.passes.eq(v.passes), o.load.eq(load),
            o.reads.valid.eq(self.parts.memory == DRAM), o.reads.inc.eq(self.parts.source.inc),
            o.reads.lo.eq(self.source), o.reads.hi.eq(self.source_end), o.count.eq(count),
            o.writes.select.tapped.eq(self.outside_position != self.place.position),
            *(o[name].eq(v[name]) for name in ("stride_x", "stride_y", "stride_out"))]
        span = packed_words.tiles_span(m, config, v.iterations, self.parts.product.integer, c.diagonal)
        reads = c.raw & (self.parts.memory == DRAM)
        return Mux(load, tile, Mux(reads, moves, length)), Mux(load, span, v.span_source)

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
