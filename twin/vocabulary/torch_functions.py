"""The functions of generated source in PyTorch that differ from those in numpy, with the same bits, eager and compiled.

Numbers are float32 tensors that hold binary16 values; see `numpy_functions` for codes and images, and for all other
functions. Gradients pass roundings unchanged, and quantisers inside their range. Functions that begin with `real_` are
those of twins without quantisers.
"""

import torch
from concord.twin.vocabulary.codes import power
from concord.twin.vocabulary.layout import shaped
from concord.twin.vocabulary.numpy_functions import rounded, rounded_total, shares, window_sums
from concord.twin.vocabulary.torch_module import straight
from torch.nn.functional import conv2d, pad


def stored(values):
    """A tensor of a file as a value: binary16 numbers as float32."""
    values = torch.as_tensor(values)
    return values.float() if values.dtype == torch.float16 else values


def binary16(values, shape):
    """Inputs [batch, ...] as binary16 numbers; None in their shape stands for time steps."""
    values = shaped(tensor(values), shape)
    device = values.device.type
    if torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device):
        raise ValueError("torch.autocast would round the sums of a twin: call it with autocast off")
    short = values.dtype in (torch.float16, torch.float32)
    return half(values.float() if short else values.double())


def tensor(values):
    """An array or a tensor as it is, and numbers of Python in float64."""
    return torch.as_tensor(values, dtype=None if hasattr(values, "dtype") else torch.float64)


def half(x):
    """Numbers rounded once to binary16, ties to even, as float32."""
    y = x.detach()
    kept = torch.compiler.is_compiling() and torch._inductor.config.emulate_precision_casts
    # A compiler may drop the casts of an exported program, and a cast from float64 rounds twice.
    casts = not torch.compiler.is_compiling() or (kept and not torch.compiler.is_exporting())
    if casts and y.dtype == torch.float32:
        return straight(x, y.half().float())
    unit = (power(y) * 2.0**-10).clamp(min=2.0**-24)
    y = torch.where(y.abs() < 65520, torch.round(y / unit) * unit, y * torch.inf)
    return straight(x.float(), y.float())


def add(a, b):
    """a + b, rounded to binary16."""
    return half(a + b)


def subtract(a, b):
    """a - b, rounded to binary16."""
    return half(a - b)


def multiply(a, b):
    """a * b, rounded to binary16."""
    return half(a * b)


def finite(x):
    """Numbers as float64; a NaN is 0, and an infinity is the largest number."""
    y = x.detach().double()
    return torch.where(y.isnan(), 0.0, y).clamp(-65504, 65504)


def maxima(y, size):
    """The largest magnitude of each block of `size` neighbours."""
    return pad(y.abs(), (0, -y.shape[-1] % size)).unflatten(-1, (-1, size)).amax(-1)


def spread(of_blocks, like, size):
    """A value of each block for each of its elements."""
    # Quotients by floats: PyTorch's compiler leaves out the last elements of a loop in which it
    # sees i // size.
    blocks = ((torch.arange(like.shape[-1], device=like.device) + 0.5) / size).floor().long()
    return of_blocks[..., blocks]


def floats(x, precision, lowest, highest, fraction=0):
    """Codes: multiples of 2**-fraction of `precision` significant bits, clipped; a NaN is 0."""
    y = x.detach().clamp(lowest, highest)
    exact = significant(torch.where(y.isnan(), 0.0, y), precision, 2.0**-fraction)
    beyond = 1 + 0.5 / (2**precision - 1)  # what only rounds to an end of the range does not clip
    return straight(x.clamp(lowest * beyond, highest * beyond), exact)


def significant(y, precision, unit):
    """y rounded to multiples of a unit of `precision` significant bits, ties to even."""
    step = (power(y) * 2.0 ** (1 - precision)).clamp(min=unit)
    return torch.round(y / step) * step


def convolution(codes, weights, start=None, scale=0, stride=(1, 1), padding=(0, 0, 0, 0),
                dilation=(1, 1), groups=1, fill=0, wrap=0, fraction=0):
    """`dense` of every window; weights are [rows, window rows, columns, channels / groups]."""
    codes = codes.to(weights.dtype)
    if codes.device.type != "cpu":  # an accelerator's convolutions may round in between
        sums = window_sums(codes, weights, stride, padding, dilation, groups, fill)
        return rounded(sums, start, scale, wrap, fraction)
    top, bottom, left, right = padding
    codes = pad(codes, (0, 0, left, right, top, bottom), value=fill).permute(0, 3, 1, 2)
    sums = conv2d(codes, weights.permute(0, 3, 1, 2), None, stride, 0, dilation, groups)
    return rounded(sums.permute(0, 2, 3, 1), start, scale, wrap, fraction)


def windows(x, window, stride=(1, 1), padding=(0, 0, 0, 0), dilation=(1, 1), fill=0):
    """The windows of images, [batch, rows, columns, window rows, window columns, channels]."""
    top, bottom, left, right = padding
    x = pad(x, (0, 0, left, right, top, bottom), value=fill)
    for axis in range(2):
        x = x.unfold(1 + axis, (window[axis] - 1) * dilation[axis] + 1, stride[axis])
    return x[..., ::dilation[0], ::dilation[1]].movedim(3, -1)


def words(x, lanes):
    """Vectors cut into words, filled up with zeros: [batch, positions * words, lanes]."""
    return pad(x, (0, -x.shape[-1] % lanes)).flatten(1).unflatten(1, (-1, lanes))


def scaled(codes, exponents, more=0):
    """codes * 2**(exponents + more), exactly."""
    return codes.double() * torch.exp2(exponents.double() + more)


def accumulated(codes, weights, start=None, scale=0, bits=32, units=(0, 0), shift=0):
    """(weights @ codes + start) * 2**-scale, modulo an accumulator, rounded once to binary16.

    Codes and weights are multiples of 2**units[0] and 2**units[1]. A total counts
    2**(units[0] + units[1] - shift). Weights are [rows, columns], or [batch, ..., rows, columns].
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
    return straight((smooth * 2.0**-scale).float(), rounded_total(totals, scale))


def softmax(a, fractions, wholes):
    """exp(a) by its sum along the last axis: whole numbers of two tables, rounded once."""
    return straight(torch.softmax(a, -1), shares(a.detach(), fractions, wholes))


def real_stored(values):
    """A tensor of a file as a value."""
    return values


def real_reals(values, shape):
    """Inputs [batch, ...] as float64; None in their shape stands for time steps."""
    return shaped(tensor(values), shape).double()


def real_sigmoid(a):
    """1 / (1 + exp(-a))."""
    return torch.sigmoid(a)


def real_softmax(a):
    """exp(a) / sum(exp(a)) along the last axis."""
    return torch.softmax(a, -1)


def real_convolution(x, weights, start=0.0, scale=0, stride=(1, 1), padding=(0, 0, 0, 0),
                dilation=(1, 1), groups=1, fill=0):
    """`dense` of every window; weights are [rows, window rows, columns, channels / groups]."""
    top, bottom, left, right = padding
    x = pad(x, (0, 0, left, right, top, bottom), value=fill).permute(0, 3, 1, 2)
    sums = conv2d(x, weights.permute(0, 3, 1, 2), None, stride, 0, dilation, groups)
    return (sums.permute(0, 2, 3, 1) + start) * 2.0**-scale
