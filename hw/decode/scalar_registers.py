"""The scalar registers, and the values that chains derive from them."""

from dataclasses import dataclass
from itertools import pairwise

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.lib.payloads import reach_bits
from concord.spec.isa.chain import Registers
from concord.spec.isa.instructions import REGISTER_BITS, Reg
from concord.spec.machine.config import Config

DEPTH = 4  #: Steps from the factors of a product to the next step that may use it.

#: Registers that only machines with VectorRf have. On other machines they keep their reset values.
_WINDOWS = ("window_vectors", "window_x", "window_y", "window_step", "window_pitch", "window_group", "stride_vec",
            "skip_vec")


def most(config: Config) -> int:
    """Largest product; products that are larger count as this one, which no address or number of words reaches."""
    return (1 << reach_bits(config)) - 1


def derived(config: Config) -> data.StructLayout:
    """Values that chains use: the registers, and values derived from them. A product is at most `most(config)`."""
    reach = reach_bits(config)
    return data.StructLayout({
        **{name: signed(6) if name == "out_scale" else REGISTER_BITS for name in Registers.__slots__},
        "words": REGISTER_BITS,         # ceil(Rows / M)
        "row_tiles": REGISTER_BITS,     # ceil(Rows / N)
        "operand_words": 32,  # Columns * N/M
        "tiles": reach,         # row_tiles * Columns
        "total_words": reach,   # words * Iterations
        "span_source": reach + 1,  # largest offset of an iteration's source
        "span_out": reach,         # largest offset of an iteration's operands and results
        "span_vec": reach + 1,     # largest offset of an iteration's results in VectorRf
        "last_pixel": reach + 1,   # offset of a window's last pixel
        "span_group": reach,       # largest offset of a row tile's window
        "divides": 1,        # IterationsX divides Iterations
        "fits": 1,           # WindowVectors * WindowX * WindowY = Columns
        "zero": 1,           # one of the registers that must not be zero in any chain is zero
        "no_vectors": 1,     # WindowVectors is zero
        "no_pixels": 1,      # WindowX or WindowY is zero
        **({"passes": REGISTER_BITS} if config.dram_words else {}),  # Iterations / IterationsX
    })


@dataclass(frozen=True, slots=True)
class _Product:
    """One product of the multiplier: `left` * `right` becomes `target`, or is added to it if `adds`.

    `registers` are those on which the factors depend, and `reached` says whether ends of the addresses of operands and
    results follow from the product.
    """

    left: Value
    right: Value
    target: Signal
    registers: str
    adds: bool = False

    @property
    def reached(self) -> bool:
        return self.target.name in ("span_out", "span_vec")


class ScalarRegisters(wiring.Component):
    """Holds the registers that `s_wr` writes. After each write, one multiplier computes the derived values in turn.

    Members:
        write, reg, value: In. Writes `value` to a register (`spec.isa.instructions.Reg`); `reg` stands since the cycle
            before.
        clear: In(1). Sets all registers to their reset values.
        values: Out. Registers and derived values, valid while `fresh` is high.
        fresh: Out(1). The derived values are up to date.
        reaches: Out(1). Those are from which ends of the addresses of operands and results follow, two cycles after a
            write at the latest.

    Timing:
        Values are fresh `latency` cycles after a write, and 16 cycles later where Iterations or IterationsX is written
        and IterationsX is neither 0 nor 1; earlier after a write of registers that often change, whose products come
        last. A product takes three cycles: the multiplier, the cap and the sum have registers between them.
    """

    codes = (Reg,)

    def __init__(self, config: Config):
        self.config = config
        self.latency = 17 if config.vector_rf else 10
        super().__init__({
            "write": In(1), "reg": In(8), "value": In(REGISTER_BITS), "clear": In(1),
            "values": Out(derived(config)), "fresh": Out(1, init=1), "reaches": Out(1, init=1)})

    def elaborate(self, platform):
        m = Module()
        config, v = self.config, self.values
        resets, shapes = Registers.reset(config), derived(config)
        registers = {name: Signal(shapes[name].shape, init=getattr(resets, name), name=name)
                     for name in Registers.__slots__}
        held = {name: signal for name, signal in registers.items() if config.vector_rf or name not in _WINDOWS}
        with m.If(self.clear):
            m.d.sync += [signal.eq(signal.init) for signal in held.values()]
        with m.Elif(self.write):
            with m.Switch(self.reg):
                for name, signal in held.items():
                    with m.Case(Reg[name.upper()]):
                        m.d.sync += signal.eq(self.value)
        m.d.comb += [v[name].eq(signal) for name, signal in registers.items()]

        # These values are initially those of the registers after reset, so that a program without s_wr need not wait.
        words, row_tiles = (Signal(REGISTER_BITS, name=name, init=-(-resets.rows // size)) for name, size in (
            ("words", config.mfu_lanes), ("row_tiles", config.native_dim)))
        zeros = {name: Signal(name=f"no_{name}") for name in ("rows", "columns", "iterations", "iterations_x")}
        m.d.sync += [
            words.eq((v.rows + config.mfu_lanes - 1) // config.mfu_lanes),
            row_tiles.eq((v.rows + config.native_dim - 1) // config.native_dim),
            *(zero.eq(v[name] == 0) for name, zero in zeros.items()),
            v.no_vectors.eq(v.window_vectors == 0), v.no_pixels.eq((v.window_x == 0) | (v.window_y == 0))]
        m.d.comb += [v.words.eq(words), v.row_tiles.eq(row_tiles), v.zero.eq(Cat(zeros.values()).any()),
                     v.operand_words.eq(v.columns * config.vector_words)]
        quotient, done = self._quotient(m)
        self._products(m, quotient, done)
        if config.dram_words:
            m.d.comb += v.passes.eq(quotient)
        return m

    def _quotient(self, m):
        """Divide Iterations by IterationsX, one bit in each cycle. Returns (quotient, done)."""
        quotient, rest = Signal(REGISTER_BITS, init=1), Signal(REGISTER_BITS)
        left = Signal(range(REGISTER_BITS + 2))
        divisor = self.values.iterations_x
        divides_anew = Signal()
        m.d.sync += divides_anew.eq(self.reg.matches(Reg.ITERATIONS, Reg.ITERATIONS_X))
        with m.If(self.clear | (self.write & divides_anew)):
            m.d.sync += left.eq(REGISTER_BITS + 1)
        with m.Elif(left == REGISTER_BITS + 1):  # the registers hold the written value now
            m.d.sync += [quotient.eq(self.values.iterations), rest.eq(0),
                         left.eq(Mux(divisor < 2, 0, REGISTER_BITS))]
        with m.Elif(left != 0):
            shifted = Cat(quotient[-1], rest)
            fits = shifted >= divisor
            m.d.sync += [
                left.eq(left - 1), quotient.eq(Cat(fits, quotient)), rest.eq(Mux(fits, shifted - divisor, shifted))]
        divides = Signal(init=1)
        m.d.sync += divides.eq(rest == 0)
        m.d.comb += self.values.divides.eq(divides)
        return quotient, left == 0

    def _table(self, quotient):
        """The products, in the order in which they are computed, and the assignments of the derived values."""
        v, passes, shapes = self.values, _less(quotient), derived(self.config)
        # The initial values are those after reset, so that a program without s_wr need not wait.
        targets = {name: Signal(shapes[name].shape, init=init, name=name) for name, init in {
            "tiles": 1, "total_words": self.config.vector_words, "span_out": 0, "span_source": 0, "last_pixel": 0,
            "span_group": 0, "span_vec": 0}.items()}
        connections = [v[name].eq(signal) for name, signal in targets.items()]
        area = Signal(reach_bits(self.config), init=1)
        windows, growing = [], []
        if self.config.vector_rf:
            # A row of pixels that is too large makes an area of 0, which Columns never is in a legal chain.
            row = Mux(area[REGISTER_BITS:].any(), 0, area[:REGISTER_BITS])
            windows = [
                _Product(v.window_vectors, v.window_x, area, "window_vectors window_x"),
                _Product(_less(v.window_x), v.window_step, targets["last_pixel"], "window_x window_step"),
                _Product(_less(v.iterations), v.stride_vec, targets["span_vec"], "iterations stride_vec"),
                _Product(_less(v.iterations_x), v.stride_x, targets["span_source"], "iterations_x stride_x"),
                _Product(row, v.window_y, area, "window_y"),  # `DEPTH` steps after the one that it needs
                _Product(_less(v.window_y), v.window_pitch, targets["last_pixel"], "window_y window_pitch", adds=True),
                _Product(passes, v.skip_vec, targets["span_vec"], "iterations iterations_x skip_vec", adds=True)]
            growing = [_Product(_less(v.row_tiles), v.window_group, targets["span_group"], "rows window_group")]
        else:
            windows = [_Product(_less(v.iterations_x), v.stride_x, targets["span_source"], "iterations_x stride_x")]
        table = [
            *windows,
            _Product(passes, v.stride_y, targets["span_source"], "iterations iterations_x stride_y", adds=True),
            _Product(_less(v.iterations), v.stride_out, targets["span_out"], "iterations stride_out"),
            *growing,
            _Product(v.row_tiles, v.columns, targets["tiles"], "rows columns"),
            _Product(v.words, v.iterations, targets["total_words"], "rows iterations")]
        return table, connections, area

    def _products(self, m, quotient, divided):
        """Compute the derived products, one in each cycle, after the quotient."""
        table, connections, area = self._table(quotient)
        fits = Signal(init=1)
        m.d.sync += fits.eq(area == self.values.columns)
        m.d.comb += [*connections, self.values.fits.eq(fits)]
        last = len(table) + DEPTH - 2
        step = Signal(range(last + 1), init=last)
        a, b = Signal(REGISTER_BITS), Signal(REGISTER_BITS)
        reach = reach_bits(self.config)
        product, capped = Signal(2 * REGISTER_BITS), Signal(reach)
        beyond = product[reach:].any().replicate(reach) if reach < len(product) else 0
        done, reached = (step == last) & divided, max(k for k, each in enumerate(table) if each.reached)
        m.d.sync += [product.eq(a * b), capped.eq(product | beyond),
                     self.fresh.eq(done), self.reaches.eq(self.reaches | done)]
        first = Signal.like(step)  # the step from which on products change with the register at `reg`
        later = Signal()  # that step comes after those of the ends of addresses
        with m.Switch(self.reg):
            for reg in Reg:
                depend = [k for k, each in enumerate(table) if reg.name.lower() in each.registers.split()]
                begin = _first(table, depend[0]) if depend else last
                with m.Case(reg):  # the words of Rows are known a cycle later
                    m.d.sync += [first.eq(begin - (reg == Reg.ROWS)), later.eq(begin > reached)]
        with m.If(self.clear):
            m.d.sync += [step.eq(0), self.fresh.eq(0), self.reaches.eq(0)]
        with m.Elif(self.write):
            # The product of this step is computed now; it is the first one of its sum if it is computed again.
            m.d.sync += [step.eq(Mux(first > step, step + divided, first)), self.fresh.eq(0),
                         self.reaches.eq((self.reaches | done) & later)]
        with m.Elif(divided & (step != last)):
            m.d.sync += step.eq(step + 1)
        with m.Switch(step):
            for k, each in enumerate(table):
                with m.Case(k):
                    m.d.sync += [a.eq(each.left), b.eq(each.right)]
        due = [Signal(len(table), name=f"due{k}") for k in range(DEPTH - 1)]  # products under way, bit by bit
        m.d.sync += [due[0].eq(Cat(step == k for k in range(len(table)))),
                     *(later.eq(sooner) for sooner, later in pairwise(due))]
        for k, each in enumerate(table):
            with m.If(due[-1][k]):
                m.d.sync += each.target.eq(capped + (each.target if each.adds else 0))


def _first(table, k):
    """The last step up to `k` from which on no product adds to, or multiplies, what an earlier step computes."""
    targets = [id(each.target) for each in table[:k]]
    earlier = [targets.index(id(each.target)) for each in table[k:] if id(each.target) in targets]
    return _first(table, min(earlier)) if earlier else k


def _less(value):
    """`value` less 1, as a factor; it wraps at 0, which no legal chain has."""
    return (value - 1)[:REGISTER_BITS]
