"""One tile engine, which multiplies a lane group of every row by an operand and aligns the sums."""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for
from concord.hw.lib.arithmetic import adder_tree
from concord.hw.lib.pipeline import copies, delay
from concord.hw.mvm.dot_products import SharedProducts, float_cycles, float_dot, groups, plane_cycles, plane_dot
from concord.hw.mvm.matrix_rf import ROWS, record
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

    weights_after = 2

    def __init__(self, config: Config):
        self.config, self.width = config, result_bits(config)
        super().__init__({
            "operand": In(operand(config)), "integer": In(1),
            "weights": In(data.ArrayLayout(record(config), config.native_dim)),
            "o": Out(data.ArrayLayout(signed(self.width), config.native_dim))})

    @property
    def joins(self) -> int:
        """Cycles in which rows in lookup tables join their planes, or multiply rows in multipliers and take them apart.

        Multipliers need two cycles more than planes. Elements with exponents of their own have no planes: these are the
        cycles of `float_cycles`.
        """
        fmts = self.config.weights, self.config.activations
        if any(fmt.precision for fmt in fmts):
            return float_cycles(fmts)
        return plane_cycles(fmts[0].bits) + 2 * (self.config.multipliers > 0)

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
        # An operand goes to all rows. A register of it for every few rows keeps wires short.
        before = data.StructLayout({"operand": self.operand.shape(), "integer": 1})
        vectors = [data.View(before, copy) for copy in copies(
            m, delay(m, Cat(self.operand, self.integer), self.weights_after - 1), -(-self.config.native_dim // ROWS))]
        integers = [delay(m, vector.integer, self.dot_latency) for vector in vectors]
        dots = self._dots(m, platform, [list(vector.operand.mantissas) for vector in vectors])
        for r, (weights, dot, o) in enumerate(zip(self.weights, dots, self.o, strict=True)):
            vector = vectors[r // ROWS]
            amount = Mux(vector.integer, 0, weights.exponent + vector.operand.exponent)[:shift_bits(self.config)]
            m.d.comb += o.eq(self._aligned(m, dot, delay(m, amount, self.dot_latency), integers[r // ROWS]))
        return m

    def _dots(self, m, platform, vectors):
        """Dot products of all rows, `dot_latency` cycles later.

        Args:
            vectors: Equal operands, of which each one is for the next few rows.
        """
        config, fmts = self.config, (self.config.weights, self.config.activations)
        rows = [list(weights.mantissas) for weights in self.weights]
        shared, dots, chosen = SharedProducts(fmts, config.lanes), [], list(groups(config, self.joins))
        total = adder_tree(m, vectors[0]) if any(group.rows > 1 for group in chosen) else None
        for group in chosen:
            taken, vector = rows[len(dots):len(dots) + group.rows], vectors[len(dots) // ROWS]
            dots += [delay(m, dot, self.joins - group.cycles) for dot in shared.dots(m, group, taken, vector, total)]
        if any(fmt.precision for fmt in fmts):
            return dots + [float_dot(m, platform, row, vectors[r // ROWS], fmts=fmts)
                           for r, row in enumerate(rows[len(dots):], len(dots))]
        return dots + [delay(m, plane_dot(m, platform, row, vectors[r // ROWS], fmts=fmts),
                             self.joins - plane_cycles(fmts[0].bits))
                       for r, row in enumerate(rows[len(dots):], len(dots))]

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
