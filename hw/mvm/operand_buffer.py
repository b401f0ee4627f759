"""Holds the quantised operand of a product, all columns, while the operand of the next one arrives."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for
from concord.hw.lib.arithmetic import UNCHECKED, low_high
from concord.hw.lib.payloads import lane_group
from concord.hw.lib.pipeline import delay
from concord.hw.mvm.quantizer import quantized
from concord.spec.machine.config import Config


def operand(config: Config) -> data.StructLayout:
    """Operand of one tile engine in one cycle."""
    return lane_group(config.activations, config.lanes)


class OperandBuffer(wiring.Component):
    """A double buffer: words fill one half while the other half is read. A half holds one iteration of a product.

    Column c lies in bank c mod tile_engines, so that one read yields the columns of one step for all engines.

    Args:
        config: The machine; lanes and mfu_lanes are powers of two.

    Members:
        i: In(stream {mantissas, exponent, end, last}). Words from the quantiser.
        step: In(range). Step to read, the columns from step * tile_engines on.
        group: In(range). Lane group to read.
        release: In(1). The half that is read is free after this cycle.
        complete: Out. Number of complete columns in the half that is read.
        whole: Out(1). All columns of that half are complete.
        o: Out. One operand for each column of the step.

    Timing:
        `o` follows `step` and `group` by `latency` cycles. A word is readable in the cycle after it has been taken. `i`
        stalls while both halves hold operands.
    """

    latency = 2

    def __init__(self, config: Config):
        self.config = config
        self.steps = -(-config.operand_columns // config.tile_engines)
        super().__init__({
            "i": In(stream.Signature(quantized(config.activations, config.mfu_lanes))),
            "step": In(range(self.steps)), "group": In(range(config.groups)), "release": In(1),
            "complete": Out(range(config.operand_columns + 1)), "whole": Out(1),
            "o": Out(data.ArrayLayout(operand(config), config.tile_engines)),
        })

    def elaborate(self, platform):
        m = Module()
        column = Signal(range(self.config.operand_columns + 1))
        place = Signal(range(self.config.vector_words))
        filling, reading, full = Signal(), Signal(), Signal(2)
        taken = self.i.valid & self.i.ready

        m.d.comb += [
            self.i.ready.eq(~full.bit_select(filling, 1)),
            self.whole.eq(full.bit_select(reading, 1)),
            self.complete.eq(Mux(reading == filling, column, 0)),
        ]
        with m.If(taken):
            m.d.sync += [place.eq(Mux(self.i.p.end, 0, place + 1)), column.eq(column + self.i.p.end)]
            with m.If(self.i.p.last):
                m.d.sync += [column.eq(0), filling.eq(~filling), full.bit_select(filling, 1).eq(1)]
        with m.If(self.release):
            m.d.sync += [reading.eq(~reading), full.bit_select(reading, 1).eq(0)]

        self._memories(m, taken, column, place, filling, reading)
        return m

    def _memories(self, m, taken, column, place, filling, reading):
        """One bank of mantissas and one of exponents for each engine."""
        config, fmt, engines = self.config, self.config.activations, self.config.tile_engines
        row, word_bits = max(config.lanes, config.mfu_lanes), fmt.code_bits * config.mfu_lanes  # mantissas of one row
        per_row, per_group = row // config.mfu_lanes, row // config.lanes
        rows = config.native_dim // row
        high = bits_for(self.steps - 1) if self.steps > 1 else 0
        bank, index = low_high(column, engines)
        part, line = low_high(place, per_row)
        sub, read_line = low_high(self.group, per_group)
        later = delay(m, sub, self.latency)
        for e in range(engines):
            memory = Memory(shape=fmt.code_bits * row, depth=rows << high + 1, init=[], attrs=UNCHECKED)
            exponents = Memory(shape=fmt.exponent_bits, depth=2 << high, init=[], attrs=UNCHECKED)
            m.submodules[f"mantissas{e}"], m.submodules[f"exponents{e}"] = memory, exponents
            write, write_exponent = memory.write_port(granularity=word_bits), exponents.write_port()
            read, read_exponent = memory.read_port(), exponents.read_port()
            here = taken & (bank == e)
            m.d.comb += [
                write.addr.eq(Cat(line, index[:high], filling)),
                write.data.eq(Value.cast(self.i.p.mantissas).replicate(per_row)),
                write.en.eq(here << part if per_row > 1 else here),
                write_exponent.addr.eq(Cat(index[:high], filling)), write_exponent.data.eq(self.i.p.exponent),
                write_exponent.en.eq(here),
                read.addr.eq(Cat(read_line, self.step[:high], reading)),
                read_exponent.addr.eq(Cat(self.step[:high], reading)),
                Value.cast(self.o[e].mantissas).eq(
                    delay(m, read.data, 1).word_select(later, fmt.code_bits * config.lanes)),
                self.o[e].exponent.eq(delay(m, read_exponent.data, 1)),
            ]
