"""Functions and methods of tensors in a traced network, and the modules and operators that do the same."""

import operator
from collections.abc import Callable
from math import inf

import torch
from concord.net.arithmetic.windows import Window
from concord.net.ops.joins import Addition, ChannelGating, Concatenation, Multiplication
from concord.net.ops.operator import Operator, Shape
from concord.net.ops.pointwise import Exp, Reciprocal, Rsqrt, Sqrt
from concord.net.ops.pooling import AveragePooling, GlobalAverage
from concord.net.ops.reshape import Flatten
from torch import fx, nn
from torch.nn import functional


def _clamp(min=None, max=None) -> nn.Module | None:
    """Limits that are numbers; None where one is a tensor, or where they leave one number."""
    low, high = -inf if min is None else min, inf if max is None else max
    numbers = isinstance(low, int | float) and isinstance(high, int | float)
    return nn.Hardtanh(low, high) if numbers and low < high else None


#: Functions whose arguments after the tensor are those of a module.
MODULES: dict[object, Callable[..., nn.Module | None]] = {
    functional.max_pool2d: lambda *args, return_indices=False, **options: nn.MaxPool2d(*args, **options),
    torch.max_pool2d: nn.MaxPool2d,
    functional.avg_pool2d: nn.AvgPool2d,
    functional.adaptive_avg_pool2d: nn.AdaptiveAvgPool2d,
    functional.max_pool1d: lambda *args, return_indices=False, **options: nn.MaxPool1d(*args, **options),
    functional.avg_pool1d: nn.AvgPool1d,
    functional.adaptive_avg_pool1d: nn.AdaptiveAvgPool1d,
    functional.relu6: nn.ReLU6, functional.hardtanh: nn.Hardtanh,
    **dict.fromkeys((torch.clamp, torch.clip, "clamp", "clip"), _clamp),
    **dict.fromkeys((functional.relu, torch.relu, torch.relu_, "relu", "relu_"), nn.ReLU),
    **dict.fromkeys((functional.sigmoid, torch.sigmoid, "sigmoid"), nn.Sigmoid),
    **dict.fromkeys((functional.tanh, torch.tanh, "tanh"), nn.Tanh),
    functional.interpolate: lambda *args, antialias=False, **options: nn.Upsample(*args, **options),
    functional.leaky_relu: nn.LeakyReLU, functional.silu: nn.SiLU,
    **dict.fromkeys((functional.softmax, torch.softmax, "softmax"), lambda dim=None, **_: nn.Softmax(dim)),
    functional.gelu: lambda approximate="none": nn.GELU(approximate),
}
#: Functions and methods that are an operator, and no module.
CURVES: dict[object, Operator] = {
    name: op for op in (Exp(), Reciprocal(), Rsqrt(), Sqrt()) for name in (getattr(torch, op.kind), op.kind)}
SUMS = (operator.add, operator.iadd, torch.add, "add", "add_")
PRODUCTS = (operator.mul, operator.imul, torch.mul, torch.multiply, "mul", "mul_")
CONCATENATIONS = (torch.cat, torch.concat)
MEANS = (torch.mean, "mean")
#: Functions and methods whose result is their input in evaluation.
DROPOUTS = (functional.dropout, functional.dropout2d, functional.alpha_dropout, "contiguous")
FLATTENING = (torch.flatten, "flatten")
RESHAPING = (torch.reshape, "reshape", "view")
#: Modules that put a border around an image.
BORDERS = (nn.ZeroPad1d, nn.ZeroPad2d, nn.ConstantPad1d, nn.ConstantPad2d)


def called(node: fx.Node) -> bool:
    """Whether a node calls a function or a method."""
    return node.op in ("call_function", "call_method")


def module_of(node: fx.Node) -> nn.Module | None:
    """The module that does what a function or method does to the tensor that is its first argument, or None."""
    if called(node) and node.target in MODULES:
        return MODULES[node.target](*node.args[1:], **node.kwargs)
    return None


def is_sum(node: fx.Node) -> bool:
    """Whether a node adds two tensors."""
    return called(node) and node.target in SUMS and len(node.all_input_nodes) == 2 and node.kwargs.get("alpha", 1) == 1


def is_product(node: fx.Node) -> bool:
    """Whether a node multiplies two tensors."""
    return called(node) and node.target in PRODUCTS and len(node.all_input_nodes) == 2


def is_concatenation(node: fx.Node) -> bool:
    """Whether a node joins tensors along their channels or elements."""
    return called(node) and node.target in CONCATENATIONS and node.kwargs.get("dim", (*node.args, 0)[1]) == 1


def is_mean(node: fx.Node) -> bool:
    """Whether a node is the mean of whole images; images of single pixels where it keeps their axes."""
    if not called(node) or node.target not in MEANS:
        return False
    axes = node.kwargs.get("dim", node.args[1] if len(node.args) > 1 else ())
    return sorted(axes if isinstance(axes, tuple | list) else [axes]) in ([2, 3], [-2, -1])


def keeps_axes(node: fx.Node) -> bool:
    """Whether a mean keeps the axes of the image."""
    return bool(node.kwargs.get("keepdim", node.args[2] if len(node.args) > 2 else False))


def flattens(node: fx.Node, module: nn.Module | None) -> bool:
    """Whether a node flattens each sample."""
    if called(node) and node.target in RESHAPING:
        sizes = node.args[1] if len(node.args) == 2 and isinstance(node.args[1], tuple | list) else node.args[1:]
        return len(sizes) == 2 and isinstance(sizes[1], int) and sizes[1] == -1
    return isinstance(module, nn.Flatten) or called(node) and node.target in FLATTENING


def border(node: fx.Node, module: nn.Module | None) -> tuple[int, ...] | None:
    """Zeros left, right, above and below that an operation puts around its input; None where it does something else."""
    if isinstance(module, BORDERS):
        zeros, value = module.padding, getattr(module, "value", 0)
    elif node.op == "call_function" and node.target is functional.pad:
        given = dict(zip(("input", "pad", "mode", "value"), node.args, strict=False)) | node.kwargs
        zeros, value = given["pad"], 0 if given.get("mode", "constant") == "constant" else None
        value = value if value is None else given.get("value") or 0
    else:
        return None
    fixed = all(isinstance(count, int) and count >= 0 for count in zeros)  # others follow from the tensor's shape
    return (*zeros, 0, 0)[:4] if value == 0 and len(zeros) in (2, 4) and fixed else None


def is_operator(node: fx.Node, module: nn.Module | None) -> bool:
    """Whether a node has an operator that no module of `frontends.torch.modules` stands for."""
    return flattens(node, module) or is_sum(node) or is_product(node) or is_concatenation(node) or is_mean(node) or (
        called(node) and node.target in CURVES)


def operator_of(node: fx.Node, module: nn.Module | None, shape: Shape, *others: Shape) -> Operator:
    """The operator of a node for which `is_operator` is true, whose inputs have these shapes."""
    if flattens(node, module):
        return Flatten()
    if is_mean(node):
        return AveragePooling(window=Window(size=shape[1:]), count_padding=True) if keeps_axes(node) else (
            GlobalAverage())
    if is_product(node):
        return Multiplication() if shape == others[0] else ChannelGating()
    if node.target in CURVES:
        return CURVES[node.target]
    return Addition() if is_sum(node) else Concatenation()


def asks(node: fx.Node) -> bool:
    """Whether a node only computes numbers of elements for a reshape."""
    return _is_size(node) and all(user.target in RESHAPING or _is_size(user) for user in node.users)


def _is_size(node: fx.Node) -> bool:
    """Whether a node is the shape of a tensor or a number of this shape."""
    if node.target is operator.getitem:
        return isinstance(node.args[0], fx.Node) and _is_size(node.args[0])
    return (node.op, node.target) == ("call_method", "size") or (
        node.target is getattr and node.args[1] == "shape")
