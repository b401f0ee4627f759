"""Networks of PyTorch as float networks: what their forward does is traced, and each step becomes an operator."""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from math import prod

import torch
from concord.frontends.torch import functions
from concord.frontends.torch.modules import (
    COUNTING_ZEROS,
    NO_BORDER,
    OPERATORS,
    PASSING,
    TRANSPOSED,
    phases_of,
    unsupported,
)
from concord.net.graph import INPUT, Graph, Node
from concord.net.ops.joins import Concatenation, Multiplication
from concord.net.ops.operator import Shape, TensorType
from concord.net.ops.reshape import Enlarging
from concord.net.quantize.plan import Unsupported
from torch import fx, nn


def graph_of(net: nn.Module, shape: Sequence[int], name: str = "network") -> Graph:
    """The float network that a module computes in its evaluation mode.

    Args:
        net:   Network whose forward takes one tensor. It is not changed.
        shape: Shape of one sample.
        name:  Name of the network.

    Raises:
        Unsupported: some operations have no operator; there is a sentence for each.
        ValueError:  the network does not take such samples.
    """
    net = deepcopy(net).eval()
    try:
        traced = net.graph if isinstance(net, fx.GraphModule) else fx.Tracer().trace(net)
    except (fx.proxy.TraceError, TypeError, RuntimeError) as error:
        raise Unsupported(f"the network cannot be traced ({error}): no branches on values in its forward") from None
    reader = _Reader(net, tuple(shape))
    if problems := [problem for step in traced.nodes if (problem := reader.problem(step))]:
        raise Unsupported("\n".join(problems))
    answer(net, shape)
    for step in traced.nodes:
        reader.take(step)
    return Graph(name=name, shape=tuple(shape), sequence=False, axes=tuple(range(len(shape))),
                 nodes=tuple(reader.nodes))


def answer(net: nn.Module, shape: Sequence[int]) -> torch.Tensor:
    """What a network makes of one sample of zeros of a shape; the network is left in its mode.

    Raises:
        ValueError: the network does not take such samples.
    """
    training = net.training
    try:
        with torch.no_grad():
            return net.eval()(torch.zeros(1, *shape))
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        raise ValueError(f"the network does not take inputs of shape {list(shape)}: {error}") from error
    finally:
        net.train(training)


def check_answer(net: nn.Module, shape: Sequence[int], classes: int | None = None):
    """Refuse a network whose result for a sample of a shape is no vector, or has another number of classes.

    Raises:
        ValueError: the network does not take such samples, or gives something else.
    """
    made = answer(net, shape)
    if not isinstance(made, torch.Tensor) or made.dim() != 2 or classes not in (None, made.shape[-1]):
        got = list(made.shape[1:]) if isinstance(made, torch.Tensor) else type(made).__name__
        raise ValueError(f"the network answers an input with {got}, but one vector of {classes or 'all'} classes is "
                         "needed")


class _Reader:
    """Takes the steps of a trace one after the other.

    Attributes:
        nodes: Nodes so far.
    """

    def __init__(self, net: nn.Module, shape: Shape):
        self.modules = dict(net.named_modules())
        self.nodes: list[Node] = []
        self.line = len(shape) == 2  # images of one dimension, which have one row
        plane = (shape[0], 1, shape[1]) if self.line else shape
        self.types = {INPUT: TensorType(shape=plane)}
        self.named: dict[str, str] = {}  # names of the nodes that give the results of steps
        self.zeros: dict[str, tuple[int, ...]] = {}  # zeros around the results of steps, where there are some

    def problem(self, step: fx.Node) -> str | None:
        """Why a step has no operator, or None."""
        module = self._module(step)
        if step.op in ("placeholder", "output") or self._passes(step, module) or functions.is_operator(step, module):
            return None
        if type(module) not in (*OPERATORS, *TRANSPOSED) or isinstance(module, nn.Softmax) and self._ends(step):
            return f"{self._name(step)!r}: {_unknown(step, module)}"
        problem = unsupported(module)
        return problem and f"{self._name(step)!r}: {problem}"

    def _ends(self, step: fx.Node) -> bool:
        """Whether nothing but the output reads a step, or what is flattened of it."""
        return all(user.op == "output" or functions.flattens(user, self._module(user)) and self._ends(user)
                   for user in step.users)

    def take(self, step: fx.Node):
        """Take one more step, which has an operator.

        Raises:
            Unsupported: the step does not fit those before it.
        """
        module, sources = self._module(step), [self.named[source.name] for source in step.all_input_nodes]
        zeros = next((self.zeros[one.name] for one in step.all_input_nodes if one.name in self.zeros), NO_BORDER)
        if step.op == "placeholder":
            if self.named:
                raise Unsupported(f"input {step.name!r}: a second one; give the network one tensor")
            self.named[step.name] = INPUT
        elif step.op == "output":
            if len(sources) != 1 or (self.nodes and sources[0] != self.nodes[-1].name):
                raise Unsupported("output: give back the result of the last operation, and nothing else")
        elif self._passes(step, module):
            self.named[step.name] = sources[0]
            around = functions.border(step, module) or NO_BORDER
            self.zeros[step.name] = tuple(a + b for a, b in zip(zeros, around, strict=True))
        elif zeros != NO_BORDER and not isinstance(module, COUNTING_ZEROS):
            raise Unsupported(f"{self._name(step)!r}: zeros can be put around the input of a convolution or average "
                              "only; use a padding of its own")
        else:
            self._add(step, module, sources, zeros)

    def _module(self, step: fx.Node) -> nn.Module | None:
        """The module that a step calls, or one that does what the step does."""
        return self.modules.get(step.target) if step.op == "call_module" else functions.module_of(step)

    def _passes(self, step: fx.Node, module: nn.Module | None) -> bool:
        """Whether the result of a step is its input, or its input with zeros around it."""
        return functions.border(step, module) is not None or functions.asks(step) or isinstance(module, PASSING) or (
            functions.called(step) and step.target in functions.DROPOUTS)

    def _add(self, step: fx.Node, module: nn.Module | None, sources: list[str], zeros: tuple[int, ...]):
        if functions.flattens(step, module):
            sources = sources[:1]  # others are sizes
        if functions.is_product(step):  # an image stands before a vector of its channels
            sources = sorted(sources, key=lambda source: -prod(self.types[source].shape))
        name, kinds = self._name(step), [self.types[source] for source in sources]
        if any(node.name == name for node in self.nodes):
            name = step.name
        try:
            if isinstance(module, TRANSPOSED):
                op, sources, kinds = self._phases(name, module, sources, kinds)
            elif functions.is_operator(step, module):
                op = functions.operator_of(step, module, *(kind.shape for kind in kinds))
            else:
                op = OPERATORS[type(module)](module, kinds[0].shape, zeros)
            if self.line and isinstance(op, Enlarging):
                op = replace(op, factor=(1, op.factor[1]))
            self.types[name] = op.result(*kinds)
        except ValueError as error:
            raise Unsupported(f"{name!r}: {error}") from error
        self.nodes.append(Node(name=name, op=op, sources=tuple(sources)))
        self.named[step.name] = name
        if isinstance(module, nn.SiLU):  # its sigmoid has been added
            self.named[step.name] = f"{name}_product"
            self.types[self.named[step.name]] = kinds[0]
            self.nodes.append(Node(name=f"{name}_product", op=Multiplication(), sources=(sources[0], name)))

    def _phases(self, name: str, module: nn.Module, sources: list[str], kinds: list[TensorType]):
        """Add the convolutions of a transposed convolution; returns what puts them together, and what it reads."""
        found, op = phases_of(module, kinds[0].shape)
        if len(found) == 1:
            return found[0], sources, kinds
        names = [f"{name}_phase_{index}" for index in range(len(found))]
        made = [one.result(*kinds) for one in found]
        self.nodes += [Node(name=each, op=one, sources=tuple(sources)) for each, one in zip(names, found, strict=True)]
        joined = Concatenation()
        self.nodes.append(Node(name=f"{name}_phases", op=joined, sources=tuple(names)))
        return op, [f"{name}_phases"], [joined.result(*made)]

    def _name(self, step: fx.Node) -> str:
        """The name of a step: that of its module, or of its operation."""
        return str(step.target).replace(".", "_") if step.op == "call_module" else step.name


def _unknown(step: fx.Node, module: nn.Module | None) -> str:
    what = getattr(step.target, "__name__", step.target) if module is None else type(module).__name__
    if str(what).lower() in ("softmax", "logsoftmax", "log_softmax"):
        return f"leave {what} out: it does not change the order of the classes"
    return f"there is no quantised form of {what}: use " + ", ".join(sorted(kind.__name__ for kind in OPERATORS))
