"""The functions of generated source that are written alike in every framework, by the names of the array API.

`xp` is the module of the framework whose tensors a function gets. In the source of a twin, it is this module itself.
See `numpy_functions` for what tensors hold.
"""

import math
import sys
from types import ModuleType


def namespace(x) -> ModuleType:
    """The module of a framework whose tensor or array is given: numpy, torch or tensorflow."""
    return sys.modules[type(x).__module__.partition(".")[0]]


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
    xp = namespace(a)
    return xp.where((a == 0) & (b == 0), a + b, xp.maximum(a, b))


def relu(a):
    """max(a, +0)."""
    xp = namespace(a)
    return xp.where(a <= 0, xp.zeros_like(a), a)


def join(*values):
    """Values one after the other along the last axis."""
    xp = namespace(values[0])
    return xp.concat(values, -1)


def part(x, first, last):
    """Elements from `first` to before `last`, along the last axis."""
    return x[..., first:last]


def flatten(x):
    """All elements of a sample as one vector."""
    return reshape(x, [math.prod(x.shape[1:])])


def reshape(x, shape):
    """Elements in their order in another shape."""
    xp = namespace(x)
    return xp.reshape(x, (x.shape[0], *shape))


def image(x, shape):
    """Samples of shape (channels, rows, columns) as [batch, rows, columns, channels]."""
    xp = namespace(x)
    return xp.moveaxis(reshape(x, shape), 1, -1)


def start(like, values):
    """The same stored values for every sample of a batch, that of `like`."""
    xp = namespace(values)
    return xp.broadcast_to(values, (like.shape[0], *values.shape))


def step(sequence, index):
    """One time step of a sequence."""
    return sequence[:, index]


def sequence(steps):
    """Values of all time steps as a sequence."""
    xp = namespace(steps[0])
    return xp.stack(steps, 1)
