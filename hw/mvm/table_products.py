"""Dot products of rows in lookup tables: by the bits of their weights, or by shifts where weights are powers of two."""

from amaranth import *
from concord.hw.lib.arithmetic import adder_tree, extremes, gated_sum, shifted_sum, sum_or_difference, within
from concord.hw.lib.pipeline import delay
from concord.spec.numbers.formats import Format


def plane_cycles(bits: int) -> int:
    """Number of cycles in which the planes of weights of `bits` bits are joined."""
    return (bits - 1).bit_length()


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
    places = [1] * len(planes)  # number of bits of the weights in each plane
    while len(planes) > 1:
        planes, places = _joined(m, planes, places, [len(operand) * end for end in extremes(fmts[1])])
    return within(planes[0], *(len(operand) * a * b for a in extremes(fmts[0]) for b in extremes(fmts[1])))


def _plane(m, platform, gates, operand):
    """Sum of the operands whose gate is 1, log2(lanes) cycles later."""
    if len(gates) == 1:
        return Mux(gates[0], operand[0], 0)
    lanes = list(zip(gates, operand, strict=True))
    return adder_tree(m, [delay(m, gated_sum(m, platform, *one, *other), 1)
                          for one, other in zip(lanes[::2], lanes[1::2], strict=True)])


def _joined(m, planes, places, sums):
    """Neighbouring planes in pairs, and the number of bits of each, one cycle later.

    Args:
        sums: The least and the largest sum of a plane.
    """
    values, counts = [], []
    for k in range(0, len(planes) - 1, 2):
        top = k + 2 == len(planes)
        value = shifted_sum(planes[k], planes[k + 1], places[k], minus=top and places[k + 1] == 1)
        count = places[k] + places[k + 1]
        ends = (-(1 << count - 1), (1 << count - 1) - 1) if top else (0, (1 << count) - 1)
        values.append(delay(m, within(value, *(a * b for a in ends for b in sums)), 1))
        counts.append(count)
    if len(planes) % 2:
        values.append(delay(m, planes[-1], 1))
        counts.append(places[-1])
    return values, counts


SHIFT_CYCLES = 2  #: Cycles beside those of the adder tree: the shift, and the sign of the sum.


def mantissa(code, fmt: Format):
    """The signed mantissa of the code of a weight, 0 or a power of two."""
    sign, field = code[-1], code[:fmt.field_bits]
    size = (Const(1, 1) << field)[1:]  # field 0 leaves nothing
    return Mux(sign, -size, size)[:fmt.bits].as_signed()


def shift_dot(m: Module, platform, weights, operand: list, *, fmts: tuple[Format, Format]):
    """sum over lanes of weights * operand, log2(lanes) + SHIFT_CYCLES cycles later.

    A term has the sign of its weight. The sum of two terms is one adder, which adds or subtracts, under the sign of the
    first term: the sum of all lanes has the sign of lane 0, and is negated once.

    Args:
        weights: Codes of one row, [lane].
        operand: Mantissas of the vector, [lane].
        fmts: Formats of weights and operand.
    """
    largest = fmts[0].highest * max(-fmts[1].lowest, fmts[1].highest)
    terms = [(delay(m, _shifted(weight[:fmts[0].field_bits], x, largest), 1), delay(m, weight[-1], 1))
             for weight, x in zip(weights, operand, strict=True)]
    while len(terms) > 1:
        largest *= 2
        terms = [_sum(m, platform, *one, *other, largest) for one, other in zip(terms[::2], terms[1::2], strict=True)]
    value, sign = terms[0]
    value = _extended(value, largest)
    return delay(m, sum_or_difference(m, platform, C(0, len(value)), value, sign).as_signed(), 1)


def _shifted(field, x, largest: int):
    """x * 2**(field - 1), or 0 for field 0; no magnitude is above `largest`."""
    value = Mux(field.any(), Mux(field[0], x.shift_left(1), x), 0)
    for k in range(1, len(field)):
        value = Mux(field[k], value.shift_left(1 << k), value)
    return within(value[1:].as_signed(), -largest, largest)


def _sum(m, platform, one, sign, other, other_sign, largest):
    """A term plus or minus another one, under the sign of the first, one cycle later."""
    value = sum_or_difference(m, platform, _extended(one, largest), _extended(other, largest), sign ^ other_sign)
    return delay(m, value.as_signed(), 1), delay(m, sign, 1)


def _extended(value, largest: int):
    """The bits of a signed value, as many as `largest` and its negative need."""
    return Cat(value, value[-1].replicate(largest.bit_length() + 1 - len(value)))
