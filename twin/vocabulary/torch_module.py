"""What a twin in PyTorch is beside its functions: gradients that pass roundings, training, compilation, and loops."""

import torch
from torch._higher_order_ops import while_loop
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
