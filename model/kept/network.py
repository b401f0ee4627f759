"""Networks that are quantised already, as models with the same integers and scales, without calibration or training."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod

from concord.model.floating.names import layer_names
from concord.model.floating.network import INPUT, FloatNetwork, Op
from concord.model.floating.shapes import window
from concord.model.kept.codes import Codes, bounds, codes, wanted, width
from concord.model.kept.exact import Multiples
from concord.model.kept.graph import has_images, prepared
from concord.model.kept.layers import product
from concord.model.kept.plan import ANEW, Plan, Planned, Quantised, Refused, Tensor
from concord.model.layers.add import Add
from concord.model.layers.concat import Concat
from concord.model.layers.layer import Layer
from concord.model.layers.pool import MaxPool
from concord.spec.activation import Activation
from concord.spec.formats import Format


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Kept:
    """The layers of a network that is quantised already.

    Attributes:
        layers:     Layers in order.
        sources:    As in `Model`.
        inexact:    For each layer whose bits may differ from those of its file, the reason, a clause. If it is empty,
            golden gives the same bits, see `kept/exact.py`.
        network:    The same network, where every quantiser is read by layers with weights and by averages alone.
        quantisers: For each of its quantisers by name, a layer that reads it, and the operand codes.
    """

    layers: tuple[Layer, ...]
    sources: Mapping[str, tuple[str, ...]]
    inexact: Mapping[str, str]
    network: FloatNetwork
    quantisers: Mapping[str, tuple[str, Codes]]

    @property
    def exact(self) -> bool:
        """Whether golden gives the same bits as the file."""
        return not self.inexact


def keep(network: FloatNetwork, weights: Format, inputs: Format) -> Kept:
    """Lower a network that is quantised already; its integers and scales stay as they are.

    Args:
        network: The network.
        weights: Format of the machine's weights.
        inputs:  Format of the machine's operands, in which quantisers must clip as they do in the file.

    Raises:
        ValueError: the machine cannot compute it as its file says; the message lists each node with the reason.
    """
    if network.sequence:
        raise ValueError(f"{network.name}: networks of sequences do not keep their integers; {ANEW}")
    network = prepared(network)
    plan = Plan(network)
    made = _Lowering(plan, weights, inputs, has_images(network))
    if plan.problems:
        count = len(plan.problems)
        raise ValueError(f"{network.name}: the machine cannot compute {count} node{'s' * (count > 1)} as the file says"
                         "\n" + "\n".join(f"  {name}: {reason}" for name, reason in plan.problems.items()))
    return made.kept(network)


class _Lowering:
    """Chooses the operand codes of each quantiser, and makes the layers."""

    def __init__(self, plan: Plan, weights: Format, inputs: Format, images: bool):
        self.plan, self.weights, self.inputs, self.images = plan, weights, inputs, images
        #: Operand codes of each quantiser, by its name.
        self.codes: dict[str, Codes] = {}
        self.in_steps: set[str] = set()  # names of quantisers whose source answers in their steps
        self.answers: dict[str, Codes] = {}  # by the name of a layer
        self.gives: dict[str, Multiples | None] = {}  # the same
        self.layers, self.inexact = [], {}
        self.names = layer_names(planned.name for planned in plan.layers)
        for quantiser in plan.quantisers:
            self._tried(quantiser.node.name, lambda quantiser=quantiser: self._choose(quantiser))
        for planned in plan.layers:
            self._tried(planned.name, lambda planned=planned: self.layers.append(self._layer(planned)))

    def kept(self, network: FloatNetwork) -> Kept:
        sources, before = {}, (INPUT,)
        for planned in self.plan.layers:
            name, taken = self.names[planned.name], tuple(map(self._origin, planned.sources))
            if taken != before:
                sources[name] = taken
            before = (name,)
        quantisers = {source.node.name: (self.names[planned.name], self.codes[source.node.name])
                      for planned in self.plan.layers for source in planned.sources if isinstance(source, Quantised)}
        return Kept(layers=tuple(self.layers), sources=sources, inexact=self.inexact, network=network,
                    quantisers=quantisers)

    def _tried(self, name: str, make: Callable[[], None]):
        try:
            make()
        except ValueError as error:  # also of numbers outside binary16
            self.plan.problems[name] = str(error)

    def _origin(self, source: Tensor | Quantised) -> str:
        tensor = source.source if isinstance(source, Quantised) else source
        return INPUT if tensor.layer is None else self.names[tensor.layer.name]

    def _choose(self, quantiser: Quantised):
        source, grid = quantiser.source, quantiser.grid
        first, last = bounds(grid, source.nonnegative, source.ceiling)
        answering = _answering(quantiser)
        direct = answering is not None and source.layer is answering
        found = codes(float(grid.scale), first, last, self.inputs, nonnegative=source.nonnegative, direct=direct)
        if found is None:
            raise Refused(f"its integers, without the zero point, are {first}..{last}, and the machine clips at "
                          f"{width(self.inputs)}; {wanted(first, last)}{ANEW}")
        self.codes[quantiser.node.name] = found
        if answering is not None and not found.apart:
            self.in_steps.add(quantiser.node.name)
            self.answers[answering.name] = found

    def _layer(self, planned: Planned) -> Layer:
        source, name = planned.sources[0], self.names[planned.name]
        if isinstance(source, Quantised):
            found = self.codes.get(source.node.name)
            if found is None:
                return None
            tensor, quantiser = source.source, source.node.name
            reads = None if tensor.layer is None else self.gives.get(tensor.layer.name)
            made = product(planned, tensor, found, reads, self.answers.get(planned.name), quantiser in self.in_steps,
                           self.weights, self.images, name)
            self.gives[planned.name] = made.gives
            if made.inexact:
                self.inexact[name] = made.inexact
            return made.layer
        self.gives[planned.name] = self._joined(planned, name)
        if planned.node.op is Op.ADD:
            return Add(name=name, inputs=prod(planned.shape), activation=planned.activation)
        if planned.node.op is Op.CONCAT:
            return Concat(name=name, sizes=tuple(prod(one.shape) for one in planned.sources))
        over = window(planned.node)
        return MaxPool(name=name, shape=tuple(source.shape), size=over.size, stride=over.stride, padding=over.padding,
                       dilation=over.dilation, activation=planned.activation)

    def _joined(self, planned: Planned, name: str) -> Multiples | None:
        """What binary16 holds of a sum, a concatenation or a maximum; notes a sum that is rounded."""
        parts = [None if one.layer is None else self.gives.get(one.layer.name) for one in planned.sources]
        if None in parts:
            if planned.node.op is Op.ADD:
                self.inexact[name] = "its terms are not quantised, so their sum is rounded"
            return None
        fraction, add = max(part.fraction for part in parts), planned.node.op is Op.ADD
        made = Multiples(fraction=fraction, largest=(sum if add else max)(part.largest for part in parts))
        if add and not made.held:
            self.inexact[name] = "its sums have more significant bits than binary16"
            return None
        return made


def _ahead(tensor: Tensor) -> list[Planned]:
    """The maxima ahead of a tensor, and the layer ahead of these, last one first; none behind the network's input."""
    found = []
    while tensor.layer is not None:
        found.append(tensor.layer)
        if tensor.layer.node.op is not Op.MAX_POOL:
            return found
        tensor = tensor.layer.sources[0]
    return []


def _answering(quantiser: Quantised) -> Planned | None:
    """The layer that can answer in steps of a quantiser: one before it, or before maxima, that nothing else reads."""
    reader, layers = quantiser, _ahead(quantiser.source)
    for layer in layers:
        if layer.readers != [reader] or layer.activation not in (Activation.NONE, Activation.RELU):
            return None
        reader = layer
    return layers[-1] if layers and layers[-1].multiplies else None
