"""The functions of generated source in numpy: each returns the bits of the machine.

The first axis of every tensor is the batch. Numbers are float16. Codes are floats: whole numbers in integer mode, real
numbers mantissa * 2**exponent in block floating point. Images are [batch, rows, columns, channels]. A product adds up
in the wider type of codes and weights, in which every sum must be exact. Call the functions under
`np.errstate(all="ignore")`: as on the machine, an overflow is an infinity.

A writer copies these functions into the source of a twin, so that each of them needs only numpy and others of them. See
`layout` for those that other frameworks have too.
"""

import json
import math
from pathlib import Path

import numpy as np
import numpy as xp
from concord.golden.mfu import activation
from concord.twin.vocabulary.codes import *


def read(file):
    """The tensors of a safetensors file by name."""
    data = Path(file).read_bytes()
    begin = 8 + int.from_bytes(data[:8], "little")
    types = {"F16": np.float16, "F32": np.float32, "F64": np.float64, "I32": np.int32}
    tensors = {}
    for name, each in json.loads(data[8:begin]).items():
        if name != "__metadata__":
            first, last = each["data_offsets"]
            values = np.frombuffer(data[begin + first : begin + last], types[each["dtype"]])
            tensors[name] = values.reshape(each["shape"])
    return tensors


def stored(values):
    """A tensor of a file as a value."""
    return values


def binary16(values, shape):
    """Inputs [batch, ...] as binary16 numbers; None in their shape stands for time steps."""
    return shaped(np.asarray(values), shape).astype(np.float16)


def add(a, b):
    """a + b, rounded to binary16."""
    return a + b


def subtract(a, b):
    """a - b, rounded to binary16."""
    return a - b


def multiply(a, b):
    """a * b, rounded to binary16."""
    return a * b


def curve(table):
    """A function of binary16 numbers by the table of its results for all 65,536 bit patterns."""
    return lambda a: table[a.view(np.uint16)]


sigmoid = curve(activation.sigmoid(np.arange(1 << 16)).view(np.float16))
tanh = curve(activation.tanh(np.arange(1 << 16)).view(np.float16))
exp = curve(activation.exp(np.arange(1 << 16)).view(np.float16))
reciprocal = curve(activation.reciprocal(np.arange(1 << 16)).view(np.float16))
rsqrt = curve(activation.rsqrt(np.arange(1 << 16)).view(np.float16))
sqrt = curve(activation.sqrt(np.arange(1 << 16)).view(np.float16))


def dense(codes, weights, start=None, scale=0, wrap=0, fraction=0):
    """(weights @ codes + start) * 2**-scale: exact, then rounded once to binary16."""
    return rounded(cast(codes, weights.dtype) @ weights.T, start, scale, wrap, fraction)


def matmul(codes, others, wrap=0, fraction=0):
    """codes @ others, whose last two axes are exchanged: exact, then rounded once to binary16."""
    sums = cast(codes, xp.float64) @ cast(others, xp.float64).mT
    return rounded(sums, None, 0, wrap, fraction)


def convolution(codes, weights, start=None, scale=0, stride=(1, 1), padding=(0, 0, 0, 0),
                dilation=(1, 1), groups=1, fill=0, wrap=0, fraction=0):
    """`dense` of every window; weights are [rows, window rows, columns, channels / groups]."""
    codes = cast(codes, weights.dtype)
    sums = window_sums(codes, weights, stride, padding, dilation, groups, fill)
    return rounded(sums, start, scale, wrap, fraction)


def window_sums(codes, weights, stride, padding, dilation, groups, fill):
    """Sums of the products of each window, [batch, rows, columns, channels]."""
    seen = windows(codes, weights.shape[1:3], stride, padding, dilation, fill)
    if groups == 1:
        return xp.tensordot(seen, weights, [[3, 4, 5], [1, 2, 3]])
    seen = xp.reshape(seen, (*dimensions(seen)[:5], groups, weights.shape[-1]))
    kernels = xp.reshape(weights, (groups, -1, *weights.shape[1:]))
    sums = xp.einsum("brchwgi,gohwi->brcgo", seen, kernels)
    return xp.reshape(sums, (*dimensions(sums)[:3], weights.shape[0]))


def rounded(sums, start, scale, wrap, fraction):
    """Exact sums as binary16; modulo 2**(wrap - fraction) before, if the accumulator may wrap."""
    sums = sums if start is None else sums + cast(start, sums.dtype)
    if wrap:
        limit, steps = 1 << wrap - 1, sums * 2.0**fraction
        steps = (cast(steps, xp.int64) + limit & 2 * limit - 1) - limit
        sums = straight(sums, cast(steps, sums.dtype) * 2.0**-fraction)
    # A sum of negative zeros is +0, too.
    return half(xp.where(sums != 0, sums, 0) * 2.0**-scale)


def accumulated(codes, weights, start=None, scale=0, bits=32, units=(0, 0), shift=0):
    """(weights @ codes + start) * 2**-scale, modulo an accumulator, rounded once to binary16.

    Codes and weights are multiples of 2**units[0] and 2**units[1]. A total counts
    2**(units[0] + units[1] - shift). Weights are [rows, columns], or [batch, ..., rows, columns].
    """
    left, right = np.rint(codes * 2.0 ** -units[0]), np.rint(weights * 2.0 ** -units[1])
    most = int(np.abs(left).max(initial=0)), int(np.abs(right).max(initial=0))
    # What 64 bits lose is a multiple of 2**64.
    wide = bits > 64 and most[0] * most[1] * left.shape[-1] << shift >= 1 << 62
    integers = np.frompyfunc(int, 1, 1) if wide or max(most) >= 1 << 63 else np.int64
    totals = integers(left) @ integers(np.swapaxes(right, -1, -2)) << shift
    if start is not None:
        totals = totals + integers(start)
    if bits < 64 or totals.dtype == object:
        half = 1 << bits - 1
        totals = (totals + half & 2 * half - 1) - half
    return rounded_total(totals, scale)


def rounded_total(totals, scale):
    """Whole numbers * 2**-scale, rounded once to binary16."""
    # Large totals keep 1 for what lies below every rounding point.
    large, high = (totals >= 1 << 53) | (totals < -1 << 53), totals // (1 << 28)
    cut = xp.where(totals == high * (1 << 28), high, high | 1)
    exact = xp.where(large, cast(cut, xp.float64) * 2.0**28, cast(totals, xp.float64))
    return half(exact * 2.0**-scale)


def total(a):
    """The sum along the last axis: exact, then rounded once to binary16."""
    sums = xp.sum(cast(a, xp.float64), axis=-1, keepdims=True)
    sums = xp.where(sums != 0, sums, 0)
    return half(sums)


def largest(a):
    """The largest element along the last axis; +0 is larger than -0."""
    while dimensions(a)[-1] > 1:
        middle = (dimensions(a)[-1] + 1) // 2
        a = maximum(a[..., :middle], a[..., -middle:])
    return a


def softmax(a, fractions, wholes):
    """exp(a) by its sum along the last axis: whole numbers of two tables, rounded once."""
    return shares(a, fractions, wholes)


def shares(a, fractions, wholes):
    """The bits of `softmax`."""
    x = cast(a, xp.float64)
    chords, powers = cast(fractions, xp.int64), cast(wholes, xp.int64)
    units = xp.floor(xp.where(xp.isfinite(x), x, -65536) * 65536)
    units = cast(units, xp.int64)
    # The distance from the largest number, in parts of 2**-16.
    distance = xp.max(units, axis=-1, keepdims=True) - units
    whole, chord, rest = distance // 65536, distance // 512 % 128, distance % 512
    terms = xp.take(chords[:, 0], chord) - xp.take(chords[:, 1], chord) * rest // 512
    row = xp.clip(whole, 0, wholes.shape[0] - 1)
    shift = xp.take(powers[:, 1], row)
    terms = xp.bitwise_right_shift(terms * xp.take(powers[:, 0], row), shift)
    terms = xp.where(whole < wholes.shape[0], terms, 0)
    total, terms = xp.sum(terms, axis=-1, keepdims=True), terms * (1 << 25)
    quotient = terms // total
    above = terms > quotient * total
    parts = 2.0 * cast(quotient, xp.float64) + cast(above, xp.float64)
    result = half(parts * 2.0**-26)
    defined = ~xp.any(xp.isnan(x) | (x == math.inf), axis=-1, keepdims=True)
    defined &= ~xp.all(x == -math.inf, axis=-1, keepdims=True)
    return xp.where(defined, result, math.nan)
