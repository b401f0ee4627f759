"""One tile engine, which multiplies a lane group of every row by an operand and aligns the sums."""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for
from concord.hw.lib.pipeline import delay
from concord.hw.mvm.matrix_rf import record
from concord.hw.mvm.operand_buffer import operand
from concord.spec.config import Config
from concord.spec.formats import Format

__all__ = ["TileEngine", "adder_tree", "result_bits"]

ADDERS = 1  # adders in a row in one cycle; synthesis turns several into slower and larger carry-save adders
_SHIFTS = 3  # levels of the shifter in one cycle


class TileEngine(wiring.Component):
    """o[r] = sum over lanes of weights[r] * operand, in block mode times 2**(alignment + both stored exponents).

    A weight is cut into digits of two bits. The multiples 0, 1, 2 and 3 of an operand (-2 and -1 for the highest digit)
    are made once for all rows, and a digit chooses one of them: that takes fewer gates than a multiplier. The digits of
    a place are added up over the lanes, then the places.

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
    def digits(self) -> int:
        """Number of digits of a weight."""
        return -(-self.config.weights.bits // 2)

    @property
    def shift_bits(self) -> int:
        """Number of bits of the sum of two stored exponents."""
        fmts = self.config.weights, self.config.activations
        return bits_for(sum(fmt.e_max - fmt.e_min for fmt in fmts))

    @property
    def tree(self) -> int:
        """Cycles of the adder tree."""
        levels = (self.config.lanes - 1).bit_length() + (self.digits - 1).bit_length()
        return -(-levels // ADDERS)

    @property
    def latency(self) -> int:
        """Cycles from operand to result: multiples, digits, their sum, alignment."""
        return 2 + self.tree + -(-self.shift_bits // _SHIFTS)

    def elaborate(self, platform):
        m = Module()
        choices = [self._multiples(m, x) for x in self.operand.mantissas]
        exponent, integer = delay(m, self.operand.exponent, 1), delay(m, self.integer, 1)
        integer_later = delay(m, integer, 1 + self.tree)
        for r in range(self.config.native_dim):
            weights = self.weights[r]
            dot = self._dot(m, weights.mantissas, choices)
            amount = Mux(integer, 0, weights.exponent + exponent)[:self.shift_bits]
            m.d.comb += self.o[r].eq(self._aligned(m, dot, delay(m, amount, 1 + self.tree), integer_later))
        return m

    def _multiples(self, m, x):
        """Multiples of an operand for lower digits and for the highest digit, by digit; one cycle later."""
        fmt = self.config.activations
        thrice = _within(x + x.shift_left(1), 3 * fmt.lowest, 3 * fmt.highest)
        minus = _within(-x, -fmt.lowest, -fmt.highest)
        once, thrice, minus = delay(m, x, 1), delay(m, thrice[2:], 1), delay(m, minus[2:], 1)
        # Their two lowest bits follow from those of x, which leaves a choice between fewer inputs.
        low = Cat(once[0], once[0] ^ once[1])
        thrice, minus, zero = Cat(low, thrice).as_signed(), Cat(low, minus).as_signed(), Const(0)
        return (zero, once, once.shift_left(1), thrice), (zero, once, minus.shift_left(1), minus)

    def _dot(self, m, weights, choices):
        """Sum of the products of one row, 1 + tree cycles later."""
        fmts = self.config.weights, self.config.activations
        places = []
        for place in range(self.digits):
            top = place == self.digits - 1
            terms = [choice(weight.as_unsigned()[2 * place:2 * place + 2], multiples[top])
                     for weight, multiples in zip(weights, choices, strict=True)]
            places.append([delay(m, term, 1) for term in terms])
        ends = [self.config.lanes * a * b for a in _extremes(fmts[0]) for b in _extremes(fmts[1])]
        return _within(adder_tree(m, places), *ends)

    def _aligned(self, m, value, amount, integer):
        """The sum, shifted to the grid of the accumulator."""
        if self.config.alignment:
            value = Mux(integer, value, value.shift_left(self.config.alignment))
        while len(amount):
            for k in range(min(_SHIFTS, len(amount))):
                place = 1 << self.shift_bits - len(amount) + k
                value = Mux(amount[k], value.shift_left(place), value)[:self.width].as_signed()
            value = delay(m, value, 1)
            amount = delay(m, amount[_SHIFTS:], 1) if len(amount) > _SHIFTS else ()
        return value


def _extremes(fmt: Format) -> tuple[int, int]:
    """The lowest and the highest mantissa."""
    return fmt.lowest, fmt.highest


def result_bits(config: Config) -> int:
    """Number of bits of a result: all if overflows are counted, else at most those of the accumulator."""
    fmts = config.weights, config.activations
    largest = config.lanes * fmts[0].lowest * fmts[1].lowest << config.alignment + sum(f.e_max - f.e_min for f in fmts)
    exact = largest.bit_length() + 1
    return exact if config.count_overflows else min(exact, config.sum_bits)


def choice(digit, multiples):
    """The multiple that a digit selects. A digit of one bit is a sign and selects 0 or -1."""
    if len(digit) == 1:
        return Mux(digit, multiples[3], multiples[0])
    return Mux(digit[1], Mux(digit[0], multiples[3], multiples[2]), Mux(digit[0], multiples[1], multiples[0]))


def _within(value, *ends: int):
    """A signed value, reduced to the bits that the integers in `ends` need."""
    bits = max(end.bit_length() if end >= 0 else (~end).bit_length() for end in ends) + 1
    return value[:bits].as_signed()


def adder_tree(m: Module, places):
    """Sum of all terms, where those of place k count 4**k; each cycle has ADDERS additions in series.

    Args:
        places: One list of signed terms for each place; all lists have the same length, a power of two.
    """
    levels, spacing = 0, 2
    while len(places) > 1 or len(places[0]) > 1:
        if len(places[0]) > 1:
            places = [[a + b for a, b in zip(terms[::2], terms[1::2], strict=True)] for terms in places]
        else:
            pairs = zip(places[::2], places[1::2], strict=False)
            places = [[low + high.shift_left(spacing)] for (low,), (high,) in pairs] + places[len(places) & ~1:]
            spacing *= 2
        levels += 1
        if levels % ADDERS == 0:
            places = [[delay(m, term, 1) for term in terms] for terms in places]
    return delay(m, places[0][0], 1) if levels % ADDERS else places[0][0]
