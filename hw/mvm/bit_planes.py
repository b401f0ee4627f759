"""Dot products of rows by the bits of their weights, in lookup tables."""

from amaranth import *
from concord.hw.lib.pipeline import delay
from concord.hw.lib.sums import adder_tree, extremes, gated_sum, shifted_sum, within
from concord.spec.numbers.formats import Format


def cycles(bits: int) -> int:
    """Number of cycles in which the planes of weights of `bits` bits are joined."""
    return (bits - 1).bit_length()


def plane_dot(m: Module, platform, weights, operand: list, *, fmts: tuple[Format, Format]):
    """sum over lanes of weights * operand, log2(lanes) + cycles(bits) cycles later.

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
