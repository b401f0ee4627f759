"""One tile engine, which multiplies a lane group of every row by an operand and aligns the sums."""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for
from concord.hw.lib.arithmetic import adder_tree, extremes, within
from concord.hw.lib.pipeline import delay
from concord.hw.lib.timekeeper import rows
from concord.hw.mvm.dot_products import (
    SharedProducts,
    float_dot,
    groups,
    joins,
    levels,
    plane_dot,
    plane_latency,
    shared_lanes,
)
from concord.hw.mvm.matrix_rf import record
from concord.hw.mvm.operand_buffer import operand
from concord.hw.mvm.row_groups import along, lateness
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
        weights: In. One record for each row, `weights_after` cycles and the lateness of the row after the operand.
        o: Out. Results of all rows.

    Timing:
        One operand a cycle; the result of a row follows it by `latency` cycles and the lateness of the row
        (`hw.mvm.row_groups`). Never stalls; reset does nothing.
    """

    weights_after = 2

    def __init__(self, config: Config):
        self.config, self.width = config, result_bits(config)
        super().__init__({
            "operand": In(operand(config)), "integer": In(1),
            "weights": In(data.ArrayLayout(record(config), rows(config))),
            "o": Out(data.ArrayLayout(signed(self.width), rows(config)))})

    @property
    def dot_latency(self) -> int:
        """Cycles from weights to dot products."""
        return levels(self.config.lanes) + joins(self.config)

    @property
    def latency(self) -> int:
        """Cycles from operand to the result of the first row: weights, dot products, alignment."""
        return self.weights_after + self.dot_latency + -(-shift_bits(self.config) // _SHIFTS)

    def elaborate(self, platform):
        m = Module()
        config, before = self.config, data.StructLayout({"operand": self.operand.shape(), "integer": 1})
        vectors = [data.View(before, register) for register in along(
            m, delay(m, Cat(self.operand, self.integer), self.weights_after - 1), config)]
        integers = along(m, delay(m, self.integer, self.weights_after - 1 + self.dot_latency), config)
        dots = self._dots(m, platform, [list(vector.operand.mantissas) for vector in vectors])
        for weights, vector, integer, dot, o in zip(self.weights, vectors, integers, dots, self.o, strict=True):
            amount = Mux(vector.integer, 0, weights.exponent + vector.operand.exponent)[:shift_bits(config)]
            m.d.comb += o.eq(self._aligned(m, dot, delay(m, amount, self.dot_latency), integer))
        return m

    def _dots(self, m, platform, vectors):
        """Dot products of all rows, `dot_latency` cycles later.

        Args:
            vectors: The operand for each row.
        """
        config, fmts = self.config, (self.config.weights, self.config.activations)
        rows = [list(weights.mantissas) for weights in self.weights]
        dots = self._shared_dots(m, platform, rows, vectors)
        others = list(zip(rows, vectors, strict=True))[len(dots):]
        if any(fmt.precision for fmt in fmts):
            return dots + [float_dot(m, platform, row, vector, fmts=fmts) for row, vector in others]
        late = self.dot_latency - plane_latency(config, config.lanes)
        return dots + [delay(m, plane_dot(m, platform, row, vector, fmts=fmts), late) for row, vector in others]

    def _shared_dots(self, m, platform, rows, vectors):
        """Dot products of the rows that share multipliers, which are the first ones."""
        config, cycles, dots = self.config, joins(self.config), []
        chosen, lanes = list(groups(config, cycles)), shared_lanes(config, cycles) or config.lanes
        shared, total, late = SharedProducts((config.weights, config.activations), lanes), None, lateness(config)
        if any(group.rows > 1 for group in chosen):
            total = adder_tree(m, vectors[0][:lanes])
        for group in chosen:
            first, past = len(dots), len(dots) + group.rows
            if total is not None and first:
                total = delay(m, total, late[first] - late[first - 1])
            ready, parts = levels(lanes) + group.cycles, [row[:lanes] for row in rows[first:past]]
            found = [(dot, ready) for dot in shared.dots(m, group, parts, vectors[first][:lanes], total)]
            if lanes < config.lanes:
                found = [self._both(m, platform, *dot, row[lanes:], vectors[first][lanes:])
                         for dot, row in zip(found, rows[first:past], strict=True)]
            dots += [delay(m, dot, self.dot_latency - after) for dot, after in found]
        return dots

    def _both(self, m, platform, dot, ready, weights, vector):
        """A dot product of some lanes after `ready` cycles plus that of the others, and the cycles of their sum."""
        config, other = self.config, plane_latency(self.config, len(weights))
        planes = plane_dot(m, platform, weights, vector, fmts=(config.weights, config.activations))
        both = max(ready, other)
        total = delay(m, dot, both - ready) + delay(m, planes, both - other)
        ends = (config.lanes * a * b for a in extremes(config.weights) for b in extremes(config.activations))
        return delay(m, within(total, *ends), 1), both + 1

    def _aligned(self, m, value, amount, integer):
        """The sum, shifted to the grid of the accumulator."""
        if self.config.alignment:
            value = Mux(integer, value, value.shift_left(self.config.alignment))
        while len(amount):
            for k in range(min(_SHIFTS, len(amount))):
                distance = 1 << shift_bits(self.config) - len(amount) + k
                value = Mux(amount[k], value.shift_left(distance), value)[:self.width].as_signed()
            value = delay(m, value, 1)
            amount = delay(m, amount[_SHIFTS:], 1) if len(amount) > _SHIFTS else ()
        return value


def result_bits(config: Config) -> int:
    """Number of bits of a result: all if overflows are counted, else at most those of the accumulator."""
    fmts = config.weights, config.activations
    largest = config.lanes * fmts[0].lowest * fmts[1].lowest << config.alignment + sum(f.e_max - f.e_min for f in fmts)
    exact = largest.bit_length() + 1
    return exact if config.count_overflows else min(exact, config.sum_bits)
