"""The functions of generated source in PyTorch: each returns the bits of the machine, eager and compiled.

Numbers are float32 tensors that hold binary16 values; see `numpy_functions` for codes and images. Gradients pass
roundings unchanged, and quantisers inside their range.
"""

from functools import reduce

import torch
from concord.golden.mfu import activation
from concord.twin.vocabulary.shared import *
from torch._higher_order_ops import while_loop
from torch.nn.functional import conv2d, pad
from torch.nn.utils.parametrize import is_parametrized, register_parametrization


class Exact(torch.autograd.Function):
    """An exact value, with the gradient of a smooth one."""

    @staticmethod
    def forward(ctx, smooth, exact):
        return exact.view_as(exact)

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None


def straight(smooth, exact):
    """The exact value; its gradient is that of the smooth one, whatever rounded it."""
    return Exact.apply(smooth, exact.detach()) if smooth.requires_grad else exact


class Curve(torch.nn.Module):
    """A function of binary16 numbers by the table of its results for all 65,536 bit patterns."""

    def __init__(self, table, smooth):
        super().__init__()
        self.register_buffer("table", table.float())
        self.smooth = smooth

    def forward(self, a):
        exact = self.table[a.detach().half().view(torch.int16).long() & 0xFFFF]
        return straight(self.smooth(a), exact) if a.requires_grad else exact


class Rounded(torch.nn.Module):
    """A function that rounds a parameter to what firmware can hold."""

    def __init__(self, function, settings):
        super().__init__()
        self.function, self.settings = function, settings

    def forward(self, values):
        return self.function(values, **self.settings).to(values.dtype)


def train(module, name, function, **settings):
    """Make a tensor of a module a parameter that a function rounds whenever it is read; once."""
    if is_parametrized(module, name):
        return
    values = getattr(module, name)
    delattr(module, name)
    setattr(module, name, torch.nn.Parameter(values))
    register_parametrization(module, name, Rounded(function, settings))


def _table(function):
    """The table of a function of golden."""
    import numpy as np

    return torch.from_numpy(function(np.arange(1 << 16)).view(np.float16))


sigmoid = Curve(_table(activation.sigmoid), torch.sigmoid)
tanh = Curve(_table(activation.tanh), torch.tanh)


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


def power(x):
    """The largest power of two up to |x|, or 0."""
    if x.dtype == torch.float64:
        return (x.view(torch.int64) & 0x7FF << 52).view(torch.float64)
    return (x.view(torch.int32) & 0xFF << 23).view(torch.float32)


def add(a, b):
    """a + b, rounded to binary16."""
    return half(a + b)


def subtract(a, b):
    """a - b, rounded to binary16."""
    return half(a - b)


def multiply(a, b):
    """a * b, rounded to binary16."""
    return half(a * b)


def canonical(a):
    """Every NaN as the machine's NaN, 0x7e00."""
    return torch.where(a.isnan(), torch.nan, a)


def integers(x, lowest, highest):
    """Codes: numbers rounded to whole numbers, ties to even, and clipped; a NaN is 0."""
    smooth = x.clamp(lowest, highest)
    return straight(smooth, torch.where(x.isnan(), 0.0, torch.round(smooth)))


def blocks(x, size, bits, exponents=(-15, 16), rule="frexp", symmetric=False):
    """Codes: mantissas of `bits` bits under one exponent for each block of `size` neighbours."""
    y = finite(x)
    largest = maxima(y, size)
    above = 2 * power(largest)
    if rule == "ceil":
        above = torch.where(largest == above / 2, largest, above)
    lowest, highest = (2.0**exponent for exponent in exponents)
    unit, limit = spread(above.clamp(lowest, highest) * 2.0 ** (1 - bits), y, size), 2 ** (bits - 1)
    mantissas = torch.round(y / unit).clamp(symmetric - limit, limit - 1)
    return straight(x.double(), mantissas * unit)


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
    places = ((torch.arange(like.shape[-1], device=like.device) + 0.5) / size).floor().long()
    return of_blocks[..., places]


def floats(x, precision, lowest, highest, fraction=0):
    """Codes: multiples of 2**-fraction of `precision` significant bits, clipped; a NaN is 0."""
    y = x.detach().clamp(lowest, highest)
    exact = significant(torch.where(y.isnan(), 0.0, y), precision, 2.0**-fraction)
    beyond = 1 + 0.5 / (2**precision - 1)  # what only rounds to an end of the range does not clip
    return straight(x.clamp(lowest * beyond, highest * beyond), exact)


def float_blocks(x, size, bits, precision, exponents=(-15, 16)):
    """Codes: floats under one exponent for each block of `size` neighbours."""
    y = finite(x)
    above = 2 * power(significant(maxima(y, size), precision, 2.0**-99))
    above = spread(above.clamp(*(2.0**exponent for exponent in exponents)), y, size)
    unit, limit = above * 2.0 ** (1 - bits), above * (1 - 2.0**-precision)
    return straight(x.double(), significant(y.clamp(-limit, limit), precision, unit))


def significant(y, precision, unit):
    """y rounded to multiples of a unit of `precision` significant bits, ties to even."""
    step = (power(y) * 2.0 ** (1 - precision)).clamp(min=unit)
    return torch.round(y / step) * step


def numbers(codes):
    """The values of codes, rounded to binary16."""
    return half(codes + torch.zeros_like(codes))


def dense(codes, weights, start=None, scale=0, wrap=0, fraction=0):
    """(weights @ codes + start) * 2**-scale: exact, then rounded once to binary16."""
    return rounded(codes.to(weights.dtype) @ weights.T, start, scale, wrap, fraction)


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


def window_sums(codes, weights, stride, padding, dilation, groups, fill):
    """Sums of the products of each window, [batch, rows, columns, channels]."""
    seen = windows(codes, weights.shape[1:3], stride, padding, dilation, fill)
    seen, kernels = seen.unflatten(-1, (groups, -1)), weights.unflatten(0, (groups, -1))
    return torch.einsum("brchwgi,gohwi->brcgo", seen, kernels).flatten(3)


def rounded(sums, start, scale, wrap, fraction):
    """Exact sums as binary16; modulo 2**(wrap - fraction) before, if the accumulator may wrap."""
    sums = sums if start is None else sums + start
    if wrap:
        limit, steps = 1 << wrap - 1, (sums.detach() * 2.0**fraction).long()
        wrapped = (steps + limit & 2 * limit - 1) - limit
        sums = straight(sums, wrapped.to(sums.dtype) * 2.0**-fraction)
    # A sum of negative zeros is +0, too.
    return half(torch.where(sums == 0, 0.0, sums) * 2.0**-scale)


def windows(x, window, stride=(1, 1), padding=(0, 0, 0, 0), dilation=(1, 1), fill=0):
    """The windows of images, [batch, rows, columns, window rows, window columns, channels]."""
    top, bottom, left, right = padding
    x = pad(x, (0, 0, left, right, top, bottom), value=fill)
    for axis in range(2):
        x = x.unfold(1 + axis, (window[axis] - 1) * dilation[axis] + 1, stride[axis])
    return x[..., ::dilation[0], ::dilation[1]].movedim(3, -1)


def patches(x, window, stride=(1, 1), padding=(0, 0, 0, 0), dilation=(1, 1), fill=0):
    """The windows of images, each as one vector, [batch, rows, columns, elements]."""
    return windows(x, window, stride, padding, dilation, fill).flatten(3)


def max_pool(x, window, stride=(1, 1), padding=(0, 0, 0, 0), fill=0):
    """The largest value of the window at every place, channel by channel."""
    seen = windows(x, window, stride, padding, fill=fill)
    pixels = [seen[:, :, :, i, j] for i in range(window[0]) for j in range(window[1])]
    return reduce(maximum, pixels)


def take(index, *values):
    """The elements of all values one after the other, flattened, at the places of a table."""
    return join(*(flatten(value) for value in values))[:, index.long()]


def transpose(x, axes):
    """Axes in another order; the batch is axis 0 and stays in front."""
    return x.permute(0, *axes)


def compiled(twin, dynamic=False):
    """The twin as a function that PyTorch compiles; no cast to half precision is dropped."""
    # On CPUs, versions before 2.13 drop casts all the same; `half` rounds without them there.
    torch._inductor.config.emulate_precision_casts = torch.__version__ >= (2, 13)
    return torch.compile(twin, dynamic=dynamic)


def repeat(time_step, sequence, *states):
    """The states after all time steps of a sequence; compiled code has a loop, too."""
    if torch.compiler.is_compiling() and not torch.is_grad_enabled():
        def more(t, *_):
            return t < sequence.shape[1]

        def each(t, *states):
            return t + 1, *own(time_step(sequence.index_select(1, t[None]).squeeze(1), *states))

        first = torch.zeros((), dtype=torch.int64, device=sequence.device)
        return while_loop(more, each, (first, *own(states)))[1:]
    for t in range(sequence.shape[1]):
        states = time_step(sequence[:, t], *states)
    return states


def own(states):
    """States that share no memory, as a loop in compiled code wants them."""
    return tuple(state.clone(memory_format=torch.contiguous_format) for state in states)
