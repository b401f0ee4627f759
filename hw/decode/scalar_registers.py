"""The scalar registers, and the values that chains derive from them."""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from concord.spec.config import Config
from concord.spec.isa import REGISTER_BITS, Reg

__all__ = ["Derived", "ScalarRegisters"]

#: Values that chains use: the registers, and values derived from them.
Derived = data.StructLayout({
    **dict.fromkeys(
        ("rows", "columns", "iterations", "iterations_x", "stride_x", "stride_y", "stride_out"), REGISTER_BITS),
    "out_scale": signed(6),
    "words": REGISTER_BITS,         # ceil(Rows / M)
    "row_tiles": REGISTER_BITS,     # ceil(Rows / N)
    "operand_words": 32,  # Columns * N/M
    "tiles": 32,         # row_tiles * Columns
    "total_words": 32,   # words * Iterations
    "span_source": 33,   # largest offset of an iteration's source
    "span_out": 32,      # largest offset of an iteration's operands and results
    "divides": 1,        # IterationsX divides Iterations
    "zero": 1,           # one of the registers that must not be zero is zero
})


class ScalarRegisters(wiring.Component):
    """Holds the registers that `s_wr` writes. After each write, one multiplier computes the derived values in turn.

    Members:
        write, reg, value: In. Writes `value` to a register (`spec.isa.Reg`).
        clear: In(1). Sets all registers to their reset values.
        values: Out. Registers and derived values, valid while `fresh` is high.
        fresh: Out(1). The derived values are up to date.

    Timing:
        Values are fresh 8 cycles after a write, or 24 cycles where IterationsX is neither 0 nor 1.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "write": In(1), "reg": In(8), "value": In(REGISTER_BITS), "clear": In(1),
            "values": Out(Derived), "fresh": Out(1)})

    def elaborate(self, platform):
        m = Module()
        config, v = self.config, self.values
        resets = {"rows": config.native_dim, "columns": 1, "iterations": 1, "iterations_x": 1, "stride_x": 0,
                  "stride_y": 0, "stride_out": config.vector_words, "out_scale": 0}
        names = {Reg.ROWS: "rows", Reg.COLUMNS: "columns", Reg.ITERATIONS: "iterations",
                 Reg.ITERATIONS_X: "iterations_x", Reg.OUT_SCALE: "out_scale", Reg.STRIDE_X: "stride_x",
                 Reg.STRIDE_Y: "stride_y", Reg.STRIDE_OUT: "stride_out"}
        registers = {name: Signal(signed(6) if name == "out_scale" else REGISTER_BITS, init=init, name=name)
                     for name, init in resets.items()}
        with m.If(self.clear):
            m.d.sync += [registers[name].eq(init) for name, init in resets.items()]
        with m.Elif(self.write):
            with m.Switch(self.reg):
                for reg, name in names.items():
                    with m.Case(reg):
                        m.d.sync += registers[name].eq(self.value)
        m.d.comb += [v[name].eq(signal) for name, signal in registers.items()]

        rows, columns, iterations = registers["rows"], registers["columns"], registers["iterations"]
        m.d.comb += [
            v.words.eq((rows + config.mfu_lanes - 1) // config.mfu_lanes),
            v.row_tiles.eq((rows + config.native_dim - 1) // config.native_dim),
            v.operand_words.eq(columns * config.vector_words),
            v.zero.eq((rows == 0) | (columns == 0) | (iterations == 0) | (registers["iterations_x"] == 0)),
        ]
        self._products(m, registers, self._quotient(m, registers))
        return m

    def _quotient(self, m, registers):
        """Divide Iterations by IterationsX, one bit in each cycle. Returns (quotient, done)."""
        quotient, rest = Signal(REGISTER_BITS), Signal(REGISTER_BITS)
        left = Signal(range(REGISTER_BITS + 2))
        divisor = registers["iterations_x"]
        with m.If(self.clear | self.write):
            m.d.sync += left.eq(REGISTER_BITS + 1)
        with m.Elif(left == REGISTER_BITS + 1):  # the registers hold the written value now
            m.d.sync += [quotient.eq(registers["iterations"]), rest.eq(0), left.eq(Mux(divisor < 2, 0, REGISTER_BITS))]
        with m.Elif(left != 0):
            shifted = Cat(quotient[-1], rest)
            fits = shifted >= divisor
            m.d.sync += [
                left.eq(left - 1), quotient.eq(Cat(fits, quotient)), rest.eq(Mux(fits, shifted - divisor, shifted))]
        m.d.comb += self.values.divides.eq(rest == 0)
        return quotient, left == 0

    def _products(self, m, registers, division):
        """Compute the derived products, one in each cycle, after the quotient."""
        v = self.values
        quotient, divided = division
        table = [
            (v.row_tiles, registers["columns"]),
            (v.words, registers["iterations"]),
            ((registers["iterations"] - 1)[:REGISTER_BITS], registers["stride_out"]),
            ((registers["iterations_x"] - 1)[:REGISTER_BITS], registers["stride_x"]),
            ((quotient - 1)[:REGISTER_BITS], registers["stride_y"]),
        ]
        step = Signal(range(len(table) + 2), init=len(table) + 1)
        a, b = Signal(REGISTER_BITS), Signal(REGISTER_BITS)
        product, spans = Signal(32), (Signal(32), Signal(32))
        # These are the values after reset, so that a program without s_wr need not wait.
        tiles = Signal(32, init=1)
        total_words = Signal(32, init=self.config.vector_words)
        span_out = Signal(32)
        targets = [tiles, total_words, span_out, *spans]
        m.d.comb += [v.tiles.eq(tiles), v.total_words.eq(total_words), v.span_out.eq(span_out),
                     v.span_source.eq(spans[0] + spans[1]), self.fresh.eq((step == len(table) + 1) & divided)]
        m.d.comb += product.eq(a * b)
        with m.If(self.clear | self.write):
            m.d.sync += step.eq(0)
        with m.Elif(divided & (step != len(table) + 1)):
            m.d.sync += step.eq(step + 1)
            with m.Switch(step):
                for k, (left, right) in enumerate(table):
                    with m.Case(k):
                        m.d.sync += [a.eq(left), b.eq(right)]
                        if k:
                            m.d.sync += targets[k - 1].eq(product)
                with m.Case(len(table)):
                    m.d.sync += targets[-1].eq(product)
