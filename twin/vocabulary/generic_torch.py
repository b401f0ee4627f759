"""Functions of generated source that few scripts need, in PyTorch; see `generic_numpy` for what they compute."""

from functools import reduce

import torch
from concord.twin.vocabulary.torch_functions import finite, half, maximum, significant, straight
from torch.nn.functional import pad


def words(x, lanes):
    """Vectors cut into words, filled up with zeros: [batch, places * words, lanes]."""
    return pad(x, (0, -x.shape[-1] % lanes)).flatten(1).unflatten(1, (-1, lanes))


def kept(x, mask):
    """x where the mask is 1, and +0 where it is 0."""
    return torch.where(mask != 0, x, 0.0)


def pool(x):
    """The largest pixel of [batch, places, pixels, channels], channel by channel."""
    return reduce(maximum, x.unbind(2))


def exponents_of(x, exponents, rule, precision=0):
    """Exponent of each block, the last axis: [..., block] to [..., 1]."""
    largest = finite(x).abs().amax(-1, keepdim=True)
    fraction, exponent = torch.frexp(largest)
    if rule == "ceil":
        exponent = exponent - (fraction == 0.5).int()
    if precision:  # magnitudes that round up to a power of two
        exponent = exponent + (fraction >= 1 - 2.0 ** -(precision + 1)).int()
    return torch.where(largest == 0, exponents[0], exponent).clamp(*exponents).double()


def mantissas_of(x, exponents, bits, lowest, highest, precision=0):
    """Mantissas under given exponents."""
    return nearest(scaled(finite(x), -exponents, bits - 1), precision).clamp(lowest, highest)


def nearest(x, precision):
    """x rounded to `precision` significant bits, if that is not 0, and to whole numbers."""
    return significant(x, precision, 1.0) if precision else torch.round(x)


def scaled(codes, exponents, more=0):
    """codes * 2**(exponents + more), exactly."""
    return codes.double() * torch.exp2(exponents.double() + more)


def shifted(codes, distance):
    """codes + distance, exactly."""
    return codes + distance


def accumulated(codes, weights, start=None, scale=0, bits=32, units=(0, 0), shift=0):
    """(weights @ codes + start) * 2**-scale, modulo an accumulator, rounded once to binary16.

    Codes and weights are multiples of 2**units[0] and 2**units[1]. A total counts
    2**(units[0] + units[1] - shift). Weights are [rows, columns], or [batch, rows, columns].
    """
    if bits > 64:
        raise ValueError(f"PyTorch has no integers for an accumulator of {bits} bits")
    left = torch.round(codes.detach().double() * 2.0 ** -units[0]).long()
    right = torch.round(weights.detach().double() * 2.0 ** -units[1]).long()
    totals = left @ right.mT << shift
    smooth = codes.double() @ weights.double().mT * 2.0 ** (shift - units[0] - units[1])
    if start is not None:
        totals, smooth = totals + start.long(), smooth + start
    if bits < 64:
        limit = 1 << bits - 1
        totals = (totals + limit & 2 * limit - 1) - limit
    # Large totals keep 1 for what lies below every rounding point.
    large = (totals >= 1 << 53) | (totals < -1 << 53)
    cut = totals >> 28 | ((totals & (1 << 28) - 1) != 0)
    exact = torch.where(large, cut.double() * 2.0**28, totals.double()) * 2.0**-scale
    return straight((smooth * 2.0**-scale).float(), half(exact))


def softmax(a, fractions, wholes):
    """exp(a) by its sum along the last axis: whole numbers of two tables, rounded once."""
    x = a.detach().double()
    places = torch.floor(torch.where(x.isfinite(), x, -65536.0) * 65536).long()
    distance = places.amax(-1, keepdim=True) - places  # from the largest, in parts of 2**-16
    base, slope = fractions.long()[distance >> 9 & 127].unbind(-1)
    rows = wholes.long()[(distance >> 16).clamp(max=len(wholes) - 1)]
    factor, shift = rows.unbind(-1)
    terms = (base - (slope * (distance & 511) >> 9)) * factor >> shift
    terms = torch.where(distance >> 16 < len(wholes), terms, 0)
    total = terms.sum(-1, keepdim=True)
    quotient = torch.div(terms << 25, total, rounding_mode="floor")
    rest = (terms << 25) - quotient * total
    result = half((2.0 * quotient.double() + (rest > 0)) * 2.0**-26)
    undefined = (x.isnan() | (x == torch.inf)).any(-1) | (x == -torch.inf).all(-1)
    exact = torch.where(undefined[..., None], torch.nan, result)
    return straight(torch.softmax(a, -1), exact)
