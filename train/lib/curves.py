"""The activation functions in PyTorch: one row for each, which modules, traced calls and gradients are read from."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from concord.golden.mfu.multifunction import activate
from concord.spec.numbers.activation import Activation
from torch import nn
from torch.autograd import Function
from torch.nn import functional


@dataclass(frozen=True, kw_only=True, slots=True)
class TorchCurve:
    """An activation function.

    Attributes:
        module: Module that computes it.
        calls:  Functions, and names of methods, that compute it.
        slope:  Derivative, from the argument and the result; None where PyTorch's own function returns the machine's
            bits, except for the sign of zero.
    """

    module: type[nn.Module]
    calls: tuple[object, ...]
    slope: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] | None = None


CURVES = {
    Activation.RELU: TorchCurve(
        module=nn.ReLU, calls=(functional.relu, torch.relu, torch.relu_, "relu", "relu_")),
    Activation.SIGMOID: TorchCurve(
        module=nn.Sigmoid, calls=(functional.sigmoid, torch.sigmoid, "sigmoid"), slope=lambda x, y: y * (1 - y)),
    Activation.TANH: TorchCurve(
        module=nn.Tanh, calls=(functional.tanh, torch.tanh, "tanh"), slope=lambda x, y: 1 - y * y),
}


class CurveFunction(Function):
    """The machine's activation function of binary16 numbers; the gradient is that of the function itself."""

    @staticmethod
    def forward(ctx, x, kind):
        bits = x.half().numpy().view("uint16")
        y = torch.from_numpy(activate(kind, bits).view("float16")).float()
        ctx.save_for_backward(CURVES[kind].slope(x, y))
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
    if CURVES[kind].slope is None:
        return lambda x: function(x) + 0.0  # -0 becomes +0
    return lambda x: CurveFunction.apply(x, kind)
