"""PyTorch networks as lists of operations that can be quantised."""

from collections.abc import Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass

import torch
from concord.net.arithmetic.windows import Window
from concord.net.quantize.plan import Unsupported
from concord.spec.numbers.activation import Activation
from concord.train.qat import functions
from concord.train.qat.modules import (
    ACTIVATIONS,
    MODULES,
    NO_BORDER,
    PASSING,
    PLANES,
    Kind,
    border,
    plane,
    unsupported,
    window,
)
from torch import fx, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval, fuse_linear_bn_eval

#: Name of the network's input in `Node.sources`.
INPUT = ""


@dataclass(slots=True)
class Node:
    """One operation of a network.

    Attributes:
        name:       Unique name, from the module or the operation.
        kind:       What the operation does.
        sources:    Names of the nodes, or INPUT, whose results are its inputs.
        module:     Module with its parameters, or None for a function. A one-dimensional one has become
            two-dimensional.
        zeros:      Zeros left, right, above and below that are put around its input, beside the padding of the module.
        line:       Whether the module was one-dimensional.
        activation: Activation function that is the only reader of its result, and is then part of this node.
        ceiling:    Largest value that a relu lets through, 6 of a relu6, or None. Quantisers of its readers clip there.
        norm:       Mean and deviation, float64[rows], of a layer's results, if batch normalisation was folded into it.
        fold:       float64[rows], the factor by which batch normalisation multiplied each row of the layer's weights.
    """

    name: str
    kind: Kind
    sources: tuple[str, ...]
    module: nn.Module | None = None
    zeros: tuple[int, ...] = NO_BORDER
    line: bool = False
    activation: Activation = Activation.NONE
    ceiling: float | None = None
    norm: tuple[torch.Tensor, torch.Tensor] | None = None
    fold: torch.Tensor | float = 1.0

    def window(self, shape: Sequence[int]) -> Window | None:
        """The window of a convolution or pooling on an input of this shape; None for a dense layer."""
        return window(self.module, shape, self.zeros)


def nodes(network: nn.Module) -> list[Node]:
    """The operations of a network: batch normalisation is folded, and activation functions are part of their node.

    Args:
        network: Network whose forward takes one tensor. It is not changed. Where a traced operation of it has an
            entry "name" in `meta`, that is the name of its node.

    Raises:
        Unsupported: some operations cannot be quantised; there is a sentence for each, before any slow work starts.
    """
    network = deepcopy(network).eval()
    modules = dict(network.named_modules())
    try:
        graph = network.graph if isinstance(network, fx.GraphModule) else fx.Tracer().trace(network)
    except (fx.proxy.TraceError, TypeError, RuntimeError) as error:
        raise Unsupported(f"the network cannot be traced ({error}): no branches on values in its forward") from None
    found, passed, zeros, problems = [], {}, {}, []
    for node in graph.nodes:
        problem = _take(node, modules, found, passed, zeros)
        if problem:
            problems.append(problem)
            passed[node.name] = INPUT
    if problems:
        raise Unsupported("\n".join(problems))
    return _joined(found)


def _take(
    node: fx.Node, modules: dict, found: list[Node], passed: dict[str, str], zeros: dict[str, tuple[int, ...]]
) -> str | None:
    """Add one traced node to `found`, or its source to `passed`; return why it cannot be quantised, or None.

    `zeros` has the zeros around the results of traced nodes, where there are some.
    """
    sources = tuple(passed[source.name] for source in node.all_input_nodes)
    module = modules.get(node.target) if node.op == "call_module" else functions.module_of(node)
    name = str(node.target).replace(".", "_") if node.op == "call_module" else node.meta.get(
        "name", node.name)
    if any(other.name == name for other in found) and not isinstance(module, nn.Conv1d | nn.Conv2d | nn.Linear):
        name = node.name
    around = next((zeros[source.name] for source in node.all_input_nodes if source.name in zeros), NO_BORDER)
    kind = MODULES.get(type(module)) if module is not None else functions.kind_of(node)
    more, passing = border(node, module), isinstance(module, PASSING) or functions.passes(node)
    if around != NO_BORDER and not (more or passing or functions.asks(node) or _counts_zeros(kind, module)):
        return f"{name!r}: zeros can be put around the input of a convolution or average only; use a padding of its own"
    if node.op == "placeholder":
        if INPUT in passed.values():
            return f"input {node.name!r}: a second one; give the network one tensor"
        passed[node.name] = INPUT
    elif node.op == "output":
        if len(sources) != 1 or (found and sources[0] != found[-1].name):
            return "output: give back the result of the last operation, and nothing else"
    elif more or passing or functions.asks(node):
        passed[node.name] = sources[0]
        zeros[node.name] = tuple(a + b for a, b in zip(around, more or NO_BORDER, strict=True))
    elif isinstance(module, nn.BatchNorm2d | nn.BatchNorm1d):
        return _fold(node, module, sources[0], found, passed)
    else:
        problem = _unknown(node, module) if kind is None else unsupported(module)
        if problem or any(other.name == name for other in found):
            return f"{name!r}: {problem or 'a module used twice would need two quantisers; give each use its own'}"
        found.append(Node(name, kind, sources, plane(module), around, type(module) in PLANES))
        passed[node.name] = name
    return None


def _counts_zeros(kind: Kind | None, module: nn.Module | None) -> bool:
    """Whether an operation multiplies or adds zeros around its input as it does pixels."""
    return kind in (Kind.LAYER, Kind.AVERAGE) and not isinstance(module, nn.Linear)


def _unknown(node: fx.Node, module: nn.Module | None) -> str:
    what = getattr(node.target, "__name__", node.target) if module is None else type(module).__name__
    if str(what).lower() in ("softmax", "logsoftmax", "log_softmax"):
        return f"leave {what} out: it does not change the order of the classes"
    return f"there is no quantised form of {what}: use " + ", ".join(
        sorted(kind.__name__ for kind in MODULES if kind.__module__.startswith("torch.")))


def _fold(node: fx.Node, norm: nn.Module, source: str, found: list[Node], passed: dict[str, str]) -> str | None:
    """Fold batch normalisation into the layer before it; return why that cannot be done, or None."""
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
    """The nodes with each activation function as part of the node before it.

    Raises:
        Unsupported: a node before an activation function has another reader, too, or has one already.
    """
    kept, renamed = [], {}
    for node in found:
        node.sources = tuple(renamed.get(name, name) for name in node.sources)
        before = next((other for other in kept if other.name == node.sources[0]), None)
        if node.kind is not Kind.ACTIVATION:
            kept.append(node)
            continue
        function = ACTIVATIONS[type(node.module)]
        if before is not None and before.activation is not Activation.NONE:
            raise Unsupported(f"{node.name!r}: a {function} behind a {before.activation}; leave one of them out")
        if before is None or before.kind is Kind.CONCAT or len(users(found, before.name)) > 1:
            raise Unsupported(f"{node.name!r}: a {function} must follow a layer, pooling or sum that is not used "
                              "without it")
        before.activation, renamed[node.name] = function, before.name
        before.ceiling = getattr(node.module, "max_val", None)
    return kept


def users(found: Iterable[Node], name: str) -> list[Node]:
    """The nodes that read the result of the node `name`."""
    return [node for node in found if name in node.sources]


def readers(found: Iterable[Node], name: str) -> list[Node]:
    """The nodes that read the result of the node `name`, directly or behind maxima."""
    return [reader for user in users(found, name)
            for reader in (readers(found, user.name) if user.kind is Kind.MAX else [user])]
