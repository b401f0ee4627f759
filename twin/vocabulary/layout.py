"""Functions of generated source whose results are elements of what they get, in another order or shape.

These files are the vocabulary in numpy, which calls itself `xp` where the array API has the name. A twin in another
framework has these functions too, by the names that its row in `twin/source/frameworks.py` spells, except for those
that say `np`, and those that the framework's own file says in another way. See `numpy_functions` for what tensors hold.
"""

import math
from functools import reduce

import numpy as np
import numpy as xp


def cast(x, dtype):
    """Numbers in another type; generated source says it as its framework does."""
    return x.astype(dtype)


def straight(smooth, exact):
    """The exact value; frameworks that train give it the gradient of the smooth one, others leave this out."""
    return exact


def dimensions(x):
    """The size of each axis; only graphs that do not know it are asked by a function."""
    return x.shape


def squeezed(shape):
    """A shape without its axes of one element."""
    return [size for size in shape if size != 1]


def shaped(values, shape):
    """Inputs with all axes of a sample, which may be flattened, or lack axes of one element."""
    steps, found = shape.count(None), tuple(values.shape)
    given, wanted = squeezed(found[1 + steps :]), squeezed(shape[steps:])
    if len(found) <= steps or given not in (wanted, [math.prod(wanted)]):
        raise ValueError(f"inputs of shape {found} are no batch of samples of shape {shape}")
    return values.reshape(*found[: 1 + steps], *shape[steps:])


def maximum(a, b):
    """The larger of a and b; +0 is larger than -0."""
    return xp.where((a == 0) & (b == 0), a + b, xp.maximum(a, b))


def relu(a):
    """max(a, +0)."""
    return xp.where(a <= 0, xp.zeros_like(a), a)


def canonical(a):
    """Every NaN as the machine's NaN, 0x7e00."""
    return xp.where(~xp.isnan(a), a, math.nan)


def join(*values):
    """Values one after the other along the last axis."""
    return xp.concat(values, axis=-1)


def part(x, first, last):
    """Elements from `first` to before `last`, along the last axis."""
    return x[..., first:last]


def flatten(x):
    """All elements of a sample as one vector."""
    return reshape(x, [math.prod(x.shape[1:])])


def reshape(x, shape):
    """Elements in their order in another shape."""
    return xp.reshape(x, (dimensions(x)[0], *shape))


def image(x, shape):
    """Samples of shape (channels, rows, columns) as [batch, rows, columns, channels]."""
    return xp.permute_dims(reshape(x, shape), (0, 2, 3, 1))


def transpose(x, axes):
    """Axes in another order; the batch is axis 0 and stays in front."""
    return xp.permute_dims(x, (0, *axes))


def take(index, *values):
    """The elements of all values one after the other, flattened, at the indices of a table."""
    return join(*(flatten(value) for value in values))[:, index]


def start(like, values):
    """The same stored values for every sample of a batch, that of `like`."""
    return xp.broadcast_to(values, (dimensions(like)[0], *values.shape))


def step(sequence, index):
    """One time step of a sequence."""
    return sequence[:, index]


def sequence(steps):
    """Values of all time steps as a sequence."""
    return xp.stack(steps, 1)


def windows(x, window, stride=(1, 1), padding=(0, 0, 0, 0), dilation=(1, 1), fill=0):
    """The windows of images, [batch, rows, columns, window rows, window columns, channels]."""
    top, bottom, left, right = padding
    if any(padding):
        x = np.pad(x, ((0, 0), (top, bottom), (left, right), (0, 0)), constant_values=fill)
    span = [(count - 1) * step + 1 for count, step in zip(window, dilation, strict=True)]
    seen = np.lib.stride_tricks.sliding_window_view(x, span, (1, 2))
    seen = seen[:, ::stride[0], ::stride[1], :, ::dilation[0], ::dilation[1]]
    return np.moveaxis(seen, 3, -1)


def patches(x, window, stride=(1, 1), padding=(0, 0, 0, 0), dilation=(1, 1), fill=0):
    """The windows of images, each as one vector, [batch, rows, columns, elements]."""
    seen = windows(x, window, stride, padding, dilation, fill)
    return xp.reshape(seen, (*dimensions(seen)[:3], math.prod(seen.shape[3:])))


def max_pool(x, window, stride=(1, 1), padding=(0, 0, 0, 0), fill=0):
    """The largest value of the window at every position, channel by channel."""
    seen = windows(x, window, stride, padding, fill=fill)
    pixels = [seen[:, :, :, i, j] for i in range(window[0]) for j in range(window[1])]
    return reduce(maximum, pixels)
