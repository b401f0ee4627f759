"""Exponents of an instruction become shifts: the unit of its exact sums, and by how much operands and sums move."""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.lib.arithmetic import clamp
from concord.hw.lib.pipeline import delay
from concord.hw.trainer.instruction_decoder import Kind
from concord.hw.trainer.measure import LSB, ExponentState
from concord.hw.trainer.wires import SHIFT
from concord.spec.numbers.lazy import ACCUMULATOR_BITS, E_MIN, EXPONENT_BITS, LazyFormat, Width

REACH = 24  #: The unit of a sum of two tensors is at most so many bits finer than the coarser one of the two.
MOMENTUM_REACH = ACCUMULATOR_BITS - Width.LINEAR - 1  #: The same of a momentum.
BIAS_REACH = 39  #: A bias stands alone where its unit is so many bits coarser than that of the sums, and more.
_FORMAT = LazyFormat()
_PARAMETER_UNIT = _FORMAT.bits - 1 + _FORMAT.shift  # the unit of a joint value, below the exponent of the parameters
_WIDE = signed(12)

#: Shifts to the right. `right`: of exact sums to mantissas. `first` and `second`: of the two operands of a sum to its
#: unit, or of momentum and gradient. `bias`: of the bias to the unit of the sums; with `bias_only` it stands alone.
#: `gradient`: of S to g; `parameter`: of P to the unit of the residual.
Shifts = data.StructLayout({
    "right": SHIFT, "first": SHIFT, "second": SHIFT, "bias": SHIFT, "bias_only": 1, "gradient": SHIFT,
    "parameter": SHIFT})

#: What `Resolver` wants to know of an instruction: planes of a, or of all operands, and of y; the shift of a mean;
#: whether there is a bias.
Facts = data.StructLayout({"operand_planes": 3, "planes": 3, "shift": 6, "bias": 1})


class Resolver(wiring.Component):
    """Makes shifts of exponents.

    Members:
        kind, facts: In. The instruction.
        states: In(4 of ExponentState). Exponents, as `instruction_decoder.EXPONENTS` has them.
        rate, decay: In(8). E + 126 of learning rate and momentum.
        lsb: Out. Exponent of one unit of the exact sums. plain: Out. That of plain sums.
        differs, plain_differs: Out(1). Sums before had another unit.
        shifts: Out(Shifts).

    Timing:
        A pipeline without handshakes, of `LATENCY` cycles.
    """

    LATENCY = 5

    def __init__(self):
        super().__init__({
            "kind": In(Kind), "facts": In(Facts), "states": In(data.ArrayLayout(ExponentState, 4)),
            "rate": In(EXPONENT_BITS), "decay": In(EXPONENT_BITS), "lsb": Out(LSB), "plain": Out(LSB),
            "differs": Out(1), "plain_differs": Out(1), "shifts": Out(Shifts)})

    def elaborate(self, platform):
        m = Module()
        first, second, bias = self._units(m)
        lsb, plain = self._lsb(m, first, second, bias)
        later = [delay(m, unit, 3) for unit in (first, second)]
        self._shifts(m, *later, lsb, plain)
        return m

    def _units(self, m):
        """Units of the two operands and of the bias, a cycle later: those of momentum and gradient for an update."""
        e = [state.now + E_MIN for state in self.states]
        first, second, bias = (Signal(_WIDE, name=name) for name in ("first", "second", "bias"))
        below = (self.facts.operand_planes << 3) - 1
        m.d.sync += [first.eq(e[0] - below), second.eq(e[1] - (Width.PARAMETER - 1)),
                     bias.eq(e[2] - (Width.PARAMETER - 1))]
        with m.If(self.kind.pool | self.kind.pool_back):
            m.d.sync += first.eq(e[0] - below - self.facts.shift)
        with m.If(self.kind.add):
            m.d.sync += second.eq(e[1] - below)
        with m.If(self.kind.update):
            m.d.sync += [first.eq(self.decay + e[3] + E_MIN - 2 * (Width.GRADIENT - 1)),
                         second.eq(self.states[1].next + E_MIN - (Width.LINEAR - 1))]
        return first, second, bias

    def _lsb(self, m, first, second, bias):
        """The unit of the sums, three cycles later, and with a bias, which may stand alone; that of plain sums."""
        total, low, high, lsb = (Signal(_WIDE, name=name) for name in ("total", "low", "high", "plain_lsb"))
        above = first > second
        m.d.sync += [total.eq(first + second), low.eq(Mux(above, second, first)),
                     high.eq(Mux(above, first, second) - Mux(self.kind.update, MOMENTUM_REACH, REACH))]
        one = delay(m, first, 1)
        m.d.sync += lsb.eq(Mux(self.kind.product, total, Mux(
            self.kind.pool | self.kind.pool_back, one, Mux(high > low, high, low))))
        units, apart, alone, found = delay(m, bias, 2), Signal(_WIDE), Signal(), Signal(_WIDE)
        m.d.comb += [apart.eq(units - lsb), alone.eq(self.facts.bias & (apart > BIAS_REACH))]
        m.d.sync += [found.eq(Mux(alone, units, lsb)), self.shifts.bias_only.eq(alone)]
        m.d.sync += self.shifts.bias.eq(delay(m, clamp(-apart, -BIAS_REACH, Width.PARAMETER + 1), 1))
        return found, delay(m, first, 3)

    def _shifts(self, m, first, second, lsb, plain):
        """Shifts from one unit to another one, clamped to where they change nothing any more."""
        states, below = self.states, (self.facts.planes << 3) - 1
        y = Signal(_WIDE)
        m.d.sync += y.eq(states[3].next + E_MIN - below)
        up = self.rate + states[3].next + 2 * (E_MIN - (Width.GRADIENT - 1))
        parameter, update = Signal(_WIDE), Signal(_WIDE)
        m.d.sync += [parameter.eq(states[2].now + E_MIN - _PARAMETER_UNIT), update.eq(up)]
        add = self.kind.add
        for name, after, before, low, high in (
                ("right", y, lsb, -32, 63), ("first", lsb, first, -REACH, Mux(add, 17, 63)),
                ("second", lsb, second, -REACH, Mux(add, 17, 63)), ("gradient", second, states[1].lsb, -32, 63),
                ("parameter", parameter, update, -32, 63)):
            m.d.sync += self.shifts[name].eq(clamp((after - before).as_signed(), low, high))
        m.d.sync += [self.lsb.eq(lsb), self.plain.eq(plain)]
        m.d.sync += [self.differs.eq(states[3].written & (states[3].lsb != lsb)),
                     self.plain_differs.eq(states[2].written & (states[2].lsb != plain))]
