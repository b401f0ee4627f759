"""Dot products of rows whose weights are powers of two, by shifts of the operand in place of products."""

from amaranth import *
from concord.hw.lib.pipeline import delay
from concord.hw.lib.sums import sum_or_difference, within
from concord.spec.numbers.formats import Format

CYCLES = 2  #: Cycles beside those of the adder tree: the shift, and the sign of the sum.


def mantissa(code, fmt: Format):
    """The signed mantissa of the code of a weight, 0 or a power of two."""
    sign, field = code[-1], code[:fmt.field_bits]
    size = (Const(1, 1) << field)[1:]  # field 0 leaves nothing
    return Mux(sign, -size, size)[:fmt.bits].as_signed()


def shift_dot(m: Module, platform, weights, operand: list, *, fmts: tuple[Format, Format]):
    """sum over lanes of weights * operand, log2(lanes) + CYCLES cycles later.

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
