"""One tile engine, which multiplies a lane group of every row by an operand and aligns the sums."""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for
from concord.hw.lib.arithmetic import adder_tree
from concord.hw.lib.pipeline import delay
from concord.hw.mvm.dot_products import SharedProducts, float_cycles, float_dot, groups, plane_cycles, plane_dot
from concord.hw.mvm.matrix_rf import record
from concord.hw.mvm.operand_buffer import operand
from concord.spec.machine.config import Config

_SHIFTS = 3  # levels of the shifter in one cycle


def shift_bits(config: Config) -> int:
    """Number of bits of the sum of two stored exponents."""
    return bits_for(sum(fmt.e_max - fmt.e_min for fmt in (config.weights, config.activations)))


class TileEngine(wiring.Component):
    """o[r] = sum over lanes of weights[r] * operand, in block mode times 2**(alignment + both stored exponents).

    The first rows use the hardware multipliers that the configuration has for the engine, the others lookup tables; the
    results are the same, and come at the same time. Elements with exponents of their own come as codes.

    Args:
        config: The machine.

    Members:
        operand: In {mantissas, exponent}. One lane group of the vector.
        integer: In(1). Integer mode; it comes with the operand.
        weights: In. One record for each row, `weights_after` cycles after the operand.
        o: Out. Results of all rows.

    Timing:
        One operand a cycle; results follow it by `latency` cycles. Never stalls; reset does nothing.
    """

    weights_after = 1

    def __init__(self, config: Config):
        self.config, self.width = config, result_bits(config)
        super().__init__({
            "operand": In(operand(config)), "integer": In(1),
            "weights": In(data.ArrayLayout(record(config), config.native_dim)),
            "o": Out(data.ArrayLayout(signed(self.width), config.native_dim))})

    @property
    def joins(self) -> int:
        """Cycles in which rows in lookup tables join their planes, and rows in multipliers are taken apart.

        Elements with exponents of their own have no planes: these are the cycles of `float_cycles`.
        """
        fmts = self.config.weights, self.config.activations
        return float_cycles(fmts) if any(fmt.precision for fmt in fmts) else plane_cycles(fmts[0].bits)

    @property
    def dot_latency(self) -> int:
        """Cycles from weights to dot products."""
        return (self.config.lanes - 1).bit_length() + self.joins

    @property
    def latency(self) -> int:
        """Cycles from operand to result: weights, dot products, alignment."""
        return self.weights_after + self.dot_latency + -(-shift_bits(self.config) // _SHIFTS)

    def elaborate(self, platform):
        m = Module()
        mantissas, exponent, integer = (
            delay(m, Value.cast(signal), self.weights_after)
            for signal in (self.operand.mantissas, self.operand.exponent, self.integer))
        integer_later = delay(m, integer, self.dot_latency)
        dots = self._dots(m, platform, data.View(self.operand.mantissas.shape(), mantissas))
        for weights, dot, o in zip(self.weights, dots, self.o, strict=True):
            amount = Mux(integer, 0, weights.exponent + exponent)[:shift_bits(self.config)]
            m.d.comb += o.eq(self._aligned(m, dot, delay(m, amount, self.dot_latency), integer_later))
        return m

    def _dots(self, m, platform, mantissas):
        """Dot products of all rows, `dot_latency` cycles later."""
        config, fmts, vector = self.config, (self.config.weights, self.config.activations), list(mantissas)
        rows = [list(weights.mantissas) for weights in self.weights]
        shared, dots, chosen = SharedProducts(fmts, config.lanes), [], list(groups(config, self.joins))
        total = adder_tree(m, vector) if any(group.rows > 1 for group in chosen) else None
        for group in chosen:
            taken = rows[len(dots):len(dots) + group.rows]
            dots += [delay(m, dot, self.joins - group.cycles) for dot in shared.dots(m, group, taken, vector, total)]
        in_tables = float_dot if any(fmt.precision for fmt in fmts) else plane_dot
        return dots + [in_tables(m, platform, row, vector, fmts=fmts) for row in rows[len(dots):]]

    def _aligned(self, m, value, amount, integer):
        """The sum, shifted to the grid of the accumulator."""
        if self.config.alignment:
            value = Mux(integer, value, value.shift_left(self.config.alignment))
        while len(amount):
            for k in range(min(_SHIFTS, len(amount))):
                place = 1 << shift_bits(self.config) - len(amount) + k
                value = Mux(amount[k], value.shift_left(place), value)[:self.width].as_signed()
            value = delay(m, value, 1)
            amount = delay(m, amount[_SHIFTS:], 1) if len(amount) > _SHIFTS else ()
        return value


def result_bits(config: Config) -> int:
    """Number of bits of a result: all if overflows are counted, else at most those of the accumulator."""
    fmts = config.weights, config.activations
    largest = config.lanes * fmts[0].lowest * fmts[1].lowest << config.alignment + sum(f.e_max - f.e_min for f in fmts)
    exact = largest.bit_length() + 1
    return exact if config.count_overflows else min(exact, config.sum_bits)
