"""The activation functions in PyTorch: the machine's bits, with gradients."""

from collections.abc import Callable

import torch
from concord.golden.mfu.multifunction import activate
from concord.spec.numbers.activation import Activation
from torch.autograd import Function

#: Derivative of each activation function, from the argument and the result; None where PyTorch's own function returns
#: the machine's bits, except for the sign of zero.
CURVES: dict[Activation, Callable[[torch.Tensor, torch.Tensor], torch.Tensor] | None] = {
    Activation.RELU: None,
    Activation.SIGMOID: lambda x, y: y * (1 - y),
    Activation.TANH: lambda x, y: 1 - y * y,
    Activation.EXP: lambda x, y: y,
    Activation.RECIPROCAL: lambda x, y: -y * y,
    Activation.RSQRT: lambda x, y: -y * y * y / 2,
    Activation.SQRT: lambda x, y: 1 / (2 * y),
}


class CurveFunction(Function):
    """The machine's activation function of binary16 numbers; the gradient is that of the function itself."""

    @staticmethod
    def forward(ctx, x, kind):
        bits = x.half().numpy().view("uint16")
        y = torch.from_numpy(activate(kind, bits).view("float16")).float()
        ctx.save_for_backward(CURVES[kind](x, y))
        return y

    @staticmethod
    def backward(ctx, gradient):
        (slope,) = ctx.saved_tensors
        return gradient * slope, None


def curve(kind: Activation, lowered: bool) -> Callable[[torch.Tensor], torch.Tensor]:
    """An activation function in real numbers, or the machine's."""
    if kind is Activation.NONE:
        return lambda x: x
    function = getattr(torch, kind)
    if not lowered:
        return function
    if CURVES[kind] is None:
        return lambda x: function(x) + 0.0  # -0 becomes +0
    return lambda x: CurveFunction.apply(x, kind)
