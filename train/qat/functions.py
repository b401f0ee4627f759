"""Functions and methods of tensors in a traced network, and the modules that do the same."""

import operator
from collections.abc import Callable

import torch
from concord.train.lib.curves import CURVES
from concord.train.qat.modules import Kind
from torch import fx, nn
from torch.nn import functional

#: Functions whose arguments behind the tensor are those of a module.
MODULES: dict[object, Callable[..., nn.Module]] = {
    functional.max_pool2d: lambda *args, return_indices=False, **options: nn.MaxPool2d(*args, **options),
    torch.max_pool2d: nn.MaxPool2d,
    functional.avg_pool2d: nn.AvgPool2d,
    functional.adaptive_avg_pool2d: nn.AdaptiveAvgPool2d,
    functional.max_pool1d: lambda *args, return_indices=False, **options: nn.MaxPool1d(*args, **options),
    functional.avg_pool1d: nn.AvgPool1d,
    functional.adaptive_avg_pool1d: nn.AdaptiveAvgPool1d,
    functional.relu6: nn.ReLU6, functional.hardtanh: nn.Hardtanh,
    **{call: each.module for each in CURVES.values() for call in each.calls},
}
#: Operations of functions and methods that no module does.
KINDS = {
    operator.add: Kind.ADD, operator.iadd: Kind.ADD, torch.add: Kind.ADD, "add": Kind.ADD, "add_": Kind.ADD,
    torch.cat: Kind.CONCAT, torch.concat: Kind.CONCAT}
MEANS = (torch.mean, "mean")
#: Functions and methods whose result is their input in evaluation.
DROPOUTS = (functional.dropout, functional.dropout2d, functional.alpha_dropout, "contiguous")
FLATTENING = (torch.flatten, "flatten")
RESHAPING = (torch.reshape, "reshape", "view")
#: Operations of a traced network that call a function or a method.
CALLS = ("call_function", "call_method")


def module_of(node: fx.Node) -> nn.Module | None:
    """The module that does what a function or method does to the tensor that is its first argument, or None."""
    if node.op not in CALLS:
        return None
    args = node.args[1:]
    if node.target in MODULES:
        return MODULES[node.target](*args, **node.kwargs)
    if node.target in MEANS:
        axes = node.kwargs.get("dim", args[0] if args else ())
        if sorted(axes if isinstance(axes, tuple | list) else [axes]) in ([2, 3], [-2, -1]):
            return nn.AdaptiveAvgPool2d(1)
    return None


def kind_of(node: fx.Node) -> Kind | None:
    """The operation of a function or method for which there is no module, or None if it has no quantised form."""
    kind = KINDS.get(node.target) if node.op in CALLS else None
    if kind is Kind.ADD and (len(node.all_input_nodes) != 2 or node.kwargs.get("alpha", 1) != 1):
        return None
    if kind is Kind.CONCAT and node.kwargs.get("dim", (*node.args, 0)[1]) != 1:
        return None
    return kind


def passes(node: fx.Node) -> bool:
    """Whether a function or method only flattens each sample, or leaves it as it is in evaluation."""
    if node.op in CALLS and node.target in RESHAPING:
        sizes = node.args[1] if len(node.args) == 2 and isinstance(node.args[1], tuple | list) else node.args[1:]
        return len(sizes) == 2 and isinstance(sizes[1], int) and sizes[1] == -1
    return node.op in CALLS and node.target in (*DROPOUTS, *FLATTENING)


def asks(node: fx.Node) -> bool:
    """Whether a node only computes numbers of elements for a reshape."""
    return _is_size(node) and all(user.target in RESHAPING or _is_size(user) for user in node.users)


def _is_size(node: fx.Node) -> bool:
    """Whether a node is the shape of a tensor or a number of this shape."""
    if node.target is operator.getitem:
        return isinstance(node.args[0], fx.Node) and _is_size(node.args[0])
    return (node.op, node.target) == ("call_method", "size") or (
        node.target is getattr and node.args[1] == "shape")
