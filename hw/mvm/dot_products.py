"""Dot products of rows: in hardware multipliers, of which one serves two rows where operands are short, or in tables.

The factor of a multiplier is high * 2**shift + low', in which low' = low + 2**(bits - 1) is a weight with its sign bit
inverted: it is not negative, so that the weights of two rows stand side by side without an adder. The products with the
operand of one lane are added up over the lanes before they are taken apart: T = high sum * 2**shift + low' sum, and
low' sum = low sum + 2**(bits - 1) * sum of the operands.

A pair of rows takes one multiplier for each lane: a low sum of at most `shift` bits is cut off. Three rows take two,
T1 = b * 2**shift + a and T2 = c * 2**shift + b: the low bits of T2 are those of b, which tells how much of the upper
part of T1 is b, and how much is the rest of a.

Where multipliers suffice for some lanes of all pairs, each pair has these, and lookup tables multiply its other lanes.
So the block RAM of a row, its multipliers and its tables lie beside each other on a chip.

In lookup tables, rows are multiplied bit by bit. Products of elements with exponents of their own are products of their
significands, shifted by the sum of their exponents.
"""

from collections.abc import Iterator
from typing import NamedTuple

from amaranth import *
from concord.hw.lib.arithmetic import adder_tree, extremes, gated_sum, shifted_sum, sum_or_difference, within
from concord.hw.lib.elements import Element, element
from concord.hw.lib.pipeline import copies, delay
from concord.hw.lib.timekeeper import rows as rows_of
from concord.spec.machine.config import Config
from concord.spec.numbers.formats import Format

PORT = 18  #: Number of bits of the factor of a multiplier, sign included.


class Group(NamedTuple):
    """Rows that share multipliers.

    Attributes:
        rows:        Number of rows.
        multipliers: Number of multipliers for each lane.
        cycles:      Number of cycles beside those of the adder tree: two for factors and products, and those that take
                     the sums of the rows apart.
    """

    rows: int
    multipliers: int
    cycles: int


PAIR, TRIPLE, SINGLE = Group(2, 1, 3), Group(3, 2, 5), Group(1, 1, 2)


def groups(config: Config, cycles: int) -> Iterator[Group]:
    """The groups of rows of one tile engine that `config.multipliers` suffice for; other rows use none.

    A group has multipliers for all lanes, or all groups have them for `shared_lanes`. Operands with exponents of their
    own leave all rows to lookup tables.

    Args:
        config: The machine.
        cycles: Largest number of cycles of a group.
    """
    if shared_lanes(config, cycles):
        yield from [PAIR] * (rows_of(config) // PAIR.rows)
        return
    rows, multipliers = rows_of(config), config.multipliers // (config.tile_engines * config.lanes)
    if config.weights.precision or config.activations.precision:
        return
    shared = SharedProducts((config.weights, config.activations), config.lanes)
    for group in PAIR, TRIPLE, SINGLE:
        while (shared.fits(group) and group.cycles <= cycles and group.rows <= rows
               and group.multipliers <= multipliers):
            rows, multipliers = rows - group.rows, multipliers - group.multipliers
            yield group


def shared_lanes(config: Config, cycles: int) -> int:
    """Number of lanes that each pair of rows multiplies in multipliers, while lookup tables multiply the others.

    It is a power of two. It is 0 where groups have multipliers for all lanes: because rows have no pairs, because these
    are too few or enough, or because both parts of a sum and their own sum would take more than `cycles` beside those
    of the adder tree.
    """
    if config.weights.precision or config.activations.precision or rows_of(config) % PAIR.rows:
        return 0
    pairs, multipliers = rows_of(config) // PAIR.rows, config.multipliers // config.tile_engines
    lanes = 1 << (multipliers // pairs).bit_length() >> 1
    if not 0 < lanes < config.lanes or lanes * pairs < multipliers // config.lanes * config.lanes:
        return 0
    late = max(levels(lanes) + PAIR.cycles, plane_latency(config, config.lanes - lanes))
    shared = SharedProducts((config.weights, config.activations), lanes)
    return lanes if shared.fits(PAIR) and late + 1 <= levels(config.lanes) + cycles else 0


def levels(terms: int) -> int:
    """Levels of adders that add up some terms."""
    return (terms - 1).bit_length()


def joins(config: Config) -> int:
    """Cycles in which rows in lookup tables join their planes, or multiply rows in multipliers and take them apart.

    Multipliers need two cycles more than planes. Elements with exponents of their own have no planes: these are the
    cycles of `float_cycles`.
    """
    fmts = config.weights, config.activations
    if any(fmt.precision for fmt in fmts):
        return float_cycles(fmts)
    return plane_cycles(fmts[0].bits) + 2 * (config.multipliers > 0)


class SharedProducts:
    """Arithmetic of the groups of one engine.

    Args:
        fmts: Formats of weights and operand.
        lanes: Number of products of a sum.
    """

    def __init__(self, fmts: tuple[Format, Format], lanes: int):
        self.weights, self.operand, self.lanes = *fmts, lanes
        self.shift = PORT - self.weights.bits

    def fits(self, group: Group) -> bool:
        """Whether rows of such formats can be taken apart."""
        half = 1 << self.shift - 1
        if group is PAIR:  # low' sums fit the bits below the shift
            largest = self.lanes * ((1 << self.weights.bits) - 1) * max(self.operand.highest, -self.operand.lowest)
            return self.shift >= self.weights.bits and largest < half
        if group is TRIPLE:  # so do the upper parts of sums, and their opposites
            return self.shift >= self.weights.bits and all(abs(end >> self.shift) < half for end in self._ends())
        return True

    def dots(self, m: Module, group: Group, rows: list, operand: list, total) -> list:
        """Dot products of the rows of a group, log2(lanes) + group.cycles cycles later.

        Args:
            rows: Weights, [row][lane].
            operand: Mantissas of the vector, [lane].
            total: The sum of the operand, log2(lanes) cycles later.
        """
        total = delay(m, total, 2) if group is not SINGLE else None
        if group is SINGLE:
            return [self._sum(m, rows[0], operand, extremes(self.weights))]
        low, high = self.weights.lowest << self.shift, (self.weights.highest + 1 << self.shift) - 1
        sums = [self._sum(m, [self._factor(*pair) for pair in zip(one, other, strict=True)], operand, (low, high))
                for one, other in zip(rows, rows[1:], strict=False)]
        return self._pair(m, *sums, total) if group is PAIR else self._triple(m, *sums, total)

    def _factor(self, low, high):
        """The weights of two rows as one factor."""
        inverted = Cat(low[:-1], ~low[-1])
        return Cat(inverted, Const(0, self.shift - len(inverted)), high).as_signed()

    def _sum(self, m, factors, operand, ends):
        """Sum over the lanes of factor times operand, log2(lanes) + 2 cycles later. A factor lies within `ends`.

        Each multiplier has registers of its own around it: it takes half of a cycle, and may lie far away from others.
        """
        ends = [a * b for a in ends for b in extremes(self.operand)]
        pairs = [(delay(m, factor, 1), *copies(m, x, 1)) for factor, x in zip(factors, operand, strict=True)]
        return adder_tree(m, [delay(m, within(factor * x, *ends), 1) for factor, x in pairs])

    def _pair(self, m, both, total):
        """The two sums of a pair, one cycle later."""
        low = shifted_sum(both[:self.shift].as_signed(), total, self.weights.bits - 1, minus=True)
        return [self._dot(delay(m, low, 1)), self._dot(delay(m, self._rounded(both), 1))]

    def _triple(self, m, first, second, total):
        """The three sums of a triple, three cycles later."""
        # Without what the inverted signs add: first = b * 2**shift + a, second = c * 2**shift + b.
        shift = self.weights.bits - 1
        first, second = (delay(m, shifted_sum(both, total, shift, minus=True)[:len(both)].as_signed(), 1)
                         for both in (first, second))
        # The upper part of `first` is b plus that of a. So the difference is c * 2**shift minus the upper part of a.
        upper = first >> self.shift
        difference = delay(m, second - upper, 1)
        upper, lower = delay(m, upper, 1), delay(m, first[:self.shift], 2)
        rest = difference[:self.shift].as_signed()
        return [self._dot(Cat(lower, delay(m, -rest, 1)).as_signed()), self._dot(delay(m, upper + rest, 1)),
                self._dot(delay(m, self._rounded(difference), 1))]

    def _rounded(self, value):
        """value / 2**shift, rounded to nearest."""
        return (value >> self.shift) + Cat(value[self.shift - 1], Const(0, 1)).as_signed()

    def _dot(self, value):
        """A dot product, reduced to its bits."""
        return within(value, *self._ends())

    def _ends(self):
        """The least and the largest dot products."""
        return [self.lanes * a * b for a in extremes(self.weights) for b in extremes(self.operand)]


def plane_cycles(bits: int) -> int:
    """Number of cycles in which the planes of weights of `bits` bits are joined."""
    return (bits - 1).bit_length()


def plane_latency(config: Config, lanes: int) -> int:
    """Cycles of `plane_dot` of some lanes."""
    return levels(lanes) + plane_cycles(config.weights.bits)


def plane_dot(m: Module, platform, weights, operand: list, *, fmts: tuple[Format, Format]):
    """sum over lanes of weights * operand, log2(lanes) + plane_cycles(bits) cycles later.

    Plane k is the sum over the lanes of operand times bit k of the weights: bits gate the operands, which takes no more
    than the adders that add them up. Planes are joined in pairs; the plane of the sign bits counts negatively.

    Args:
        weights: Mantissas of one row, [lane].
        operand: Mantissas of the vector, [lane].
        fmts: Formats of weights and operand.
    """
    bits = [weight.as_unsigned() for weight in weights]
    planes = [_plane(m, platform, [weight[k] for weight in bits], operand) for k in range(fmts[0].bits)]
    widths = [1] * len(planes)  # number of bits of the weights in each plane
    while len(planes) > 1:
        planes, widths = _joined(m, planes, widths, [len(operand) * end for end in extremes(fmts[1])])
    return within(planes[0], *(len(operand) * a * b for a in extremes(fmts[0]) for b in extremes(fmts[1])))


def _plane(m, platform, gates, operand):
    """Sum of the operands whose gate is 1, log2(lanes) cycles later."""
    if len(gates) == 1:
        return Mux(gates[0], operand[0], 0)
    lanes = list(zip(gates, operand, strict=True))
    sums = [gated_sum(m, platform, *one, *other) for one, other in zip(lanes[::2], lanes[1::2], strict=False)]
    sums += [Mux(gate, x, 0) for gate, x in lanes[len(lanes) & ~1:]]
    return adder_tree(m, [delay(m, one, 1) for one in sums])


def _joined(m, planes, widths, sums):
    """Neighbouring planes in pairs, and the number of bits of each, one cycle later.

    Args:
        sums: The least and the largest sum of a plane.
    """
    values, counts = [], []
    for k in range(0, len(planes) - 1, 2):
        top = k + 2 == len(planes)
        value = shifted_sum(planes[k], planes[k + 1], widths[k], minus=top and widths[k + 1] == 1)
        count = widths[k] + widths[k + 1]
        ends = (-(1 << count - 1), (1 << count - 1) - 1) if top else (0, (1 << count) - 1)
        values.append(delay(m, within(value, *(a * b for a in ends for b in sums)), 1))
        counts.append(count)
    if len(planes) % 2:
        values.append(delay(m, planes[-1], 1))
        counts.append(widths[-1])
    return values, counts


def float_cycles(fmts: tuple[Format, Format]) -> int:
    """Cycles of `float_dot` beside those of the adder tree: products of significands, their shift, the sign of the sum.

    The bits of the shorter significand gate the other one, and their sum takes a cycle for each level of adders.
    """
    return (min(fmt.precision for fmt in fmts if fmt.precision) - 1).bit_length() + 2


def float_dot(m: Module, platform, weights, operand: list, *, fmts: tuple[Format, Format]):
    """sum over lanes of weights * operand, log2(lanes) + float_cycles(fmts) cycles later.

    Products are exact integers, whose signs are kept apart. The sum of two of them is one adder, which adds or
    subtracts, under the sign of the first one: the sum of all lanes has the sign of lane 0, and is negated once.

    Args:
        weights: Codes of one row, or mantissas, [lane].
        operand: The same of the vector, [lane].
        fmts: Formats of weights and operand, of which one or both have a precision.
    """
    largest = fmts[0].lowest * fmts[1].lowest
    terms = [_product(m, platform, element(weight, fmts[0]), element(x, fmts[1]), fmts, largest)
             for weight, x in zip(weights, operand, strict=True)]
    while len(terms) > 1:
        largest *= 2
        terms = [_sum(m, platform, *one, *other, largest) for one, other in zip(terms[::2], terms[1::2], strict=True)]
    value, sign = terms[0]
    value = _extended(value, largest)
    return delay(m, sum_or_difference(m, platform, C(0, len(value)), value, sign).as_signed(), 1)


def _product(m, platform, weight: Element, x: Element, fmts, largest: int):
    """Magnitude, or signed mantissa times magnitude, of a product, and what is left of its sign."""
    cycles = float_cycles(fmts) - 1
    few, many = (weight, x) if 0 < fmts[0].precision <= (fmts[1].precision or fmts[0].precision) else (x, weight)
    bits, value = few.significand, many.significand
    value = value if value.shape().signed else Cat(value, Const(0, 1)).as_signed()
    sums = [gated_sum(m, platform, bits[k], value, bits[k + 1], value.shift_left(1)) if k + 1 < len(bits) else
            Mux(bits[k], value, 0) for k in range(0, len(bits), 2)]
    sums = [delay(m, each, 1) for each in sums] if len(bits) > 1 else sums
    for level in range(1, cycles - 1):
        sums = [delay(m, shifted_sum(sums[k], sums[k + 1], 1 << level) if k + 1 < len(sums) else sums[k], 1)
                for k in range(0, len(sums), 2)]
    shifts = [part.shift for part, fmt in zip((weight, x), fmts, strict=True) if fmt.precision]
    amount, value = delay(m, sum(shifts[1:], shifts[0]), cycles - 1), sums[0]
    for k in range(len(amount)):
        value = within(Mux(amount[k], value.shift_left(1 << k), value), largest << len(shifts))
    value = value[len(shifts):].as_signed()  # each element is twice as large as its significand and shift say
    return delay(m, value, 1), delay(m, weight.sign ^ x.sign, cycles)


def _sum(m, platform, one, sign, other, other_sign, largest):
    """A term plus or minus another one, under the sign of the first, one cycle later."""
    value = sum_or_difference(m, platform, _extended(one, largest), _extended(other, largest), sign ^ other_sign)
    return delay(m, value.as_signed(), 1), delay(m, sign, 1)


def _extended(value, largest: int):
    """The bits of a signed value, as many as `largest` and its negative need."""
    return Cat(value, value[-1].replicate(largest.bit_length() + 1 - len(value)))
