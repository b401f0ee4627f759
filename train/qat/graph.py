"""What a PyTorch network computes, as a list of the operations that can be quantised."""

import operator
from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass
from enum import StrEnum

import torch
from torch import fx, nn
from torch.nn import functional
from torch.nn.utils.fusion import fuse_conv_bn_eval, fuse_linear_bn_eval

#: What `Node.sources` calls the network's input.
INPUT = ""


class Kind(StrEnum):
    """What a node does."""

    LAYER = "layer"  #: a convolution or dense layer
    RELU = "relu"
    MAX = "max"  #: pooling
    AVERAGE = "average"  #: pooling
    ADD = "add"
    CONCAT = "concat"


@dataclass(slots=True)
class Node:
    """One operation.

    Attributes:
        name:    Unique; from the module or the operation.
        kind:    What it does.
        sources: Names of the nodes (or INPUT) that it takes.
        module:  With its parameters, where it has some.
        relu:    Whether a relu follows that nobody else precedes.
        norm:    Mean and deviation, float64[rows], of what a layer makes, where batch normalisation told them.
        fold:    float64[rows], by what batch normalisation multiplied the rows of a layer's weights.
    """

    name: str
    kind: Kind
    sources: tuple[str, ...]
    module: nn.Module | None = None
    relu: bool = False
    norm: tuple[torch.Tensor, torch.Tensor] | None = None
    fold: torch.Tensor | float = 1.0


MODULES = {
    nn.Conv2d: Kind.LAYER, nn.Linear: Kind.LAYER, nn.ReLU: Kind.RELU, nn.MaxPool2d: Kind.MAX,
    nn.AvgPool2d: Kind.AVERAGE, nn.AdaptiveAvgPool2d: Kind.AVERAGE}
#: In evaluation these pass their input on.
PASSING = (nn.Identity, nn.Dropout, nn.Dropout2d, nn.Flatten)
FUNCTIONS = {
    functional.relu: Kind.RELU, torch.relu: Kind.RELU, "relu": Kind.RELU, operator.add: Kind.ADD,
    operator.iadd: Kind.ADD, torch.add: Kind.ADD, "add": Kind.ADD, torch.cat: Kind.CONCAT}
FLATTENING = (torch.flatten, "flatten")


class Unsupported(ValueError):
    """Operations that cannot be quantised, a line for each."""


def nodes(network: nn.Module) -> list[Node]:
    """The operations of a network: batch normalisation folded into the layer before it, relus joined to what is before.

    Args:
        network: Its forward takes one tensor. It is left as it is.

    Raises:
        Unsupported: it does what cannot be quantised; a sentence for each place, before any slow work starts.
    """
    network = deepcopy(network).eval()
    modules = dict(network.named_modules())
    try:
        graph = fx.Tracer().trace(network)
    except (fx.proxy.TraceError, TypeError) as error:
        raise Unsupported(f"the network cannot be traced ({error}): no branches on values in its forward") from None
    found, passed, problems = [], {}, []
    for node in graph.nodes:
        problem = _take(node, modules, found, passed)
        if problem:
            problems.append(problem)
            passed[node.name] = INPUT
    if problems:
        raise Unsupported("\n".join(problems))
    return _joined(found)


def _take(node: fx.Node, modules: dict, found: list[Node], passed: dict[str, str]) -> str | None:
    """Put one traced node into `found`, or what it passes on into `passed`; what is in the way."""
    sources = tuple(passed[source.name] for source in node.all_input_nodes)
    module = modules.get(node.target) if node.op == "call_module" else None
    name = str(node.target).replace(".", "_") if module is not None else node.name
    if node.op == "placeholder":
        if INPUT in passed.values():
            return f"input {node.name!r}: a second one; give the network one tensor"
        passed[node.name] = INPUT
    elif node.op == "output":
        if len(sources) != 1 or (found and sources[0] != found[-1].name):
            return "output: give back the result of the last operation, and nothing else"
    elif isinstance(module, PASSING) or node.target in FLATTENING:
        passed[node.name] = sources[0]
    elif isinstance(module, nn.BatchNorm2d | nn.BatchNorm1d):
        return _fold(node, module, sources[0], found, passed)
    else:
        kind = MODULES.get(type(module)) if module is not None else _function(node)
        problem = _unknown(node, module) if kind is None else _options(module)
        if problem or any(other.name == name for other in found):
            return f"{name!r}: {problem or 'a module used twice would need two quantisers; give each use its own'}"
        found.append(Node(name, kind, sources, deepcopy(module)))
        passed[node.name] = name
    return None


def _unknown(node: fx.Node, module: nn.Module | None) -> str:
    what = getattr(node.target, "__name__", node.target) if module is None else type(module).__name__
    return f"there is no quantised form of {what}: use " + ", ".join(sorted(kind.__name__ for kind in MODULES))


def _function(node: fx.Node) -> Kind | None:
    """What a function or method of tensors does."""
    if node.op not in ("call_function", "call_method"):
        return None
    kind = FUNCTIONS.get(node.target)
    tensors = len(node.all_input_nodes)
    return None if kind is Kind.ADD and tensors != 2 or kind is Kind.CONCAT and node.kwargs.get(
        "dim", (*node.args, 0)[1]) != 1 else kind


def _options(module: nn.Module | None) -> str | None:
    """What of a module's options cannot be quantised."""
    match module:
        case nn.Conv2d():
            same = all(len(set(pair)) == 1 for pair in (module.stride, module.padding))
            if not same or set(module.dilation) != {1} or module.padding_mode != "zeros":
                return "use one stride and one padding both ways, zeros around, and no dilation"
        case nn.MaxPool2d() | nn.AvgPool2d():
            options = (module.kernel_size, module.stride, module.padding)
            if not all(isinstance(value, int) for value in options) or module.ceil_mode or (
                    getattr(module, "dilation", 1) != 1) or (isinstance(module, nn.AvgPool2d) and module.padding):
                return "use one size, stride and padding both ways, no ceil_mode, no dilation, no padding of averages"
        case nn.AdaptiveAvgPool2d():
            if module.output_size not in (1, (1, 1)):
                return "use an average over the whole image, output_size 1"
    return None


def _fold(node: fx.Node, norm: nn.Module, source: str, found: list[Node], passed: dict[str, str]) -> str | None:
    """Batch normalisation becomes a part of the layer before it."""
    before = next((other for other in found if other.name == source), None)
    users = len(node.all_input_nodes[0].users)
    if before is None or before.kind is not Kind.LAYER or users > 1:
        return f"{node.target!r}: batch normalisation only folds into a layer that nobody else reads; put it behind one"
    fuse = fuse_conv_bn_eval if isinstance(before.module, nn.Conv2d) else fuse_linear_bn_eval
    before.module = fuse(before.module.eval(), deepcopy(norm).eval())
    factor = (norm.running_var.double() + norm.eps).rsqrt()
    before.fold = before.fold * factor * (norm.weight.detach().double() if norm.affine else 1.0)
    if norm.affine:
        before.norm = norm.bias.detach().double(), norm.weight.detach().double().abs()
    passed[node.name] = source
    return None


def _joined(found: list[Node]) -> list[Node]:
    """Relus joined to what they follow.

    Raises:
        Unsupported: a relu follows what is used without it too.
    """
    kept, renamed = [], {}
    for node in found:
        node.sources = tuple(renamed.get(name, name) for name in node.sources)
        before = next((other for other in kept if other.name == node.sources[0]), None)
        if node.kind is not Kind.RELU:
            kept.append(node)
        elif before is None or before.kind is Kind.CONCAT or len(users(found, before.name)) > 1:
            raise Unsupported(f"{node.name!r}: a relu must follow a layer, pooling or sum that is not used without it")
        else:
            before.relu, renamed[node.name] = True, before.name
    return kept


def users(found: Iterable[Node], name: str) -> list[Node]:
    """The nodes that take what one makes."""
    return [node for node in found if name in node.sources]
