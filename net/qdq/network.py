"""Networks that are quantised already, as models with the same integers and scales, without calibration or training."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod

from concord.net.graph import INPUT, Graph
from concord.net.layers.joins import Add, Concat
from concord.net.layers.layer import Layer
from concord.net.layers.pooling import MaxPool
from concord.net.names import layer_names
from concord.net.ops.joins import Addition, Concatenation
from concord.net.ops.pooling import MaxPooling
from concord.net.qdq.codes import Multiples, OperandCodes, bounds, codes, width
from concord.net.qdq.graph import has_images, prepared
from concord.net.qdq.layers import product
from concord.net.qdq.plan import ANEW, HalfTensor, Inexact, IntegerPlan, PlannedLayer, QuantizedTensor
from concord.spec.numbers.activation import Activation
from concord.spec.numbers.formats import Format


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Kept:
    """The layers of a network that is quantised already.

    Attributes:
        layers:     Layers in order.
        sources:    Names of what enters each layer, see `Model`.
        inexact:    For each layer whose bits may differ from those of its file, the reason, a clause. If it is empty,
            golden gives the same bits, see `net/qdq/codes.py`.
        network:    The same network, where every quantiser is read by layers with weights and by averages alone.
        quantizers: For each of its quantisers by name, a layer that reads it, and the operand codes.
    """

    layers: tuple[Layer, ...]
    sources: Mapping[str, tuple[str, ...]]
    inexact: Mapping[str, str]
    network: Graph
    quantizers: Mapping[str, tuple[str, OperandCodes]]

    @property
    def exact(self) -> bool:
        """Whether golden gives the same bits as the file."""
        return not self.inexact


def keep(network: Graph, weights: Format, inputs: Format) -> Kept:
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
    plan = IntegerPlan(network)
    made = _Lowering(plan, weights, inputs, has_images(network))
    if plan.problems:
        count = len(plan.problems)
        raise ValueError(f"{network.name}: the machine cannot compute {count} node{'s' * (count > 1)} as the file says"
                         "\n" + "\n".join(f"  {name}: {reason}" for name, reason in plan.problems.items()))
    return made.kept(network)


class _Lowering:
    """Chooses the operand codes of each quantiser, and makes the layers."""

    def __init__(self, plan: IntegerPlan, weights: Format, inputs: Format, images: bool):
        self.plan, self.weights, self.inputs, self.images = plan, weights, inputs, images
        #: Operand codes of each quantiser, by its name.
        self.codes: dict[str, OperandCodes] = {}
        self.in_steps: set[str] = set()  # names of quantisers whose source answers in their steps
        self.answers: dict[str, OperandCodes] = {}  # by the name of a layer
        self.gives: dict[str, Multiples | None] = {}  # the same
        self.layers, self.inexact = [], {}
        self.names = layer_names(planned.name for planned in plan.layers)
        for quantizer in plan.quantizers:
            self._tried(quantizer.node.name, lambda quantizer=quantizer: self._choose(quantizer))
        for planned in plan.layers:
            self._tried(planned.name, lambda planned=planned: self.layers.append(self._layer(planned)))

    def kept(self, network: Graph) -> Kept:
        sources, before = {}, (INPUT,)
        for planned in self.plan.layers:
            name, taken = self.names[planned.name], tuple(map(self._origin, planned.sources))
            if taken != before:
                sources[name] = taken
            before = (name,)
        quantizers = {source.node.name: (self.names[planned.name], self.codes[source.node.name])
                      for planned in self.plan.layers for source in planned.sources
                      if isinstance(source, QuantizedTensor)}
        return Kept(layers=tuple(self.layers), sources=sources, inexact=self.inexact, network=network,
                    quantizers=quantizers)

    def _tried(self, name: str, make: Callable[[], None]):
        try:
            make()
        except ValueError as error:  # also of numbers outside binary16
            self.plan.problems[name] = str(error)

    def _origin(self, source: HalfTensor | QuantizedTensor) -> str:
        tensor = source.source if isinstance(source, QuantizedTensor) else source
        return INPUT if tensor.layer is None else self.names[tensor.layer.name]

    def _choose(self, quantizer: QuantizedTensor):
        source, grid = quantizer.source, quantizer.grid
        first, last = bounds(grid, source.nonnegative, source.ceiling)
        answering = _answering(quantizer)
        direct = answering is not None and source.layer is answering
        found = codes(float(grid.scale), first, last, self.inputs, nonnegative=source.nonnegative, direct=direct)
        if found is None:
            raise Inexact(f"its integers, without the zero point, are {first}..{last}, and the machine clips at "
                          f"{width(self.inputs)}; {ANEW}")
        self.codes[quantizer.node.name] = found
        if answering is not None and not found.apart:
            self.in_steps.add(quantizer.node.name)
            self.answers[answering.name] = found

    def _layer(self, planned: PlannedLayer) -> Layer:
        source, name = planned.sources[0], self.names[planned.name]
        if isinstance(source, QuantizedTensor):
            found = self.codes.get(source.node.name)
            if found is None:
                return None
            tensor, quantizer = source.source, source.node.name
            reads = None if tensor.layer is None else self.gives.get(tensor.layer.name)
            made = product(planned, tensor, found, reads, self.answers.get(planned.name), quantizer in self.in_steps,
                           self.weights, self.images, name)
            self.gives[planned.name] = made.gives
            if made.inexact:
                self.inexact[name] = made.inexact
            return made.layer
        self.gives[planned.name] = self._joined(planned, name)
        if isinstance(planned.node.op, Addition):
            return Add(name=name, inputs=prod(planned.shape), activation=planned.activation)
        if isinstance(planned.node.op, Concatenation):
            return Concat(name=name, sizes=tuple(prod(one.shape) for one in planned.sources))
        over = planned.node.op.window
        return MaxPool(name=name, shape=tuple(source.shape), size=over.size, stride=over.stride, padding=over.padding,
                       dilation=over.dilation, activation=planned.activation)

    def _joined(self, planned: PlannedLayer, name: str) -> Multiples | None:
        """What binary16 holds of a sum, a concatenation or a maximum; notes a sum that is rounded."""
        parts = [None if one.layer is None else self.gives.get(one.layer.name) for one in planned.sources]
        if None in parts:
            if isinstance(planned.node.op, Addition):
                self.inexact[name] = "its terms are not quantised, so their sum is rounded"
            return None
        fraction, add = max(part.fraction for part in parts), isinstance(planned.node.op, Addition)
        made = Multiples(fraction=fraction, largest=(sum if add else max)(part.largest for part in parts))
        if add and not made.held:
            self.inexact[name] = "its sums have more significant bits than binary16"
            return None
        return made


def _ahead(tensor: HalfTensor) -> list[PlannedLayer]:
    """The maxima ahead of a tensor, and the layer ahead of these, last one first; none behind the network's input."""
    found = []
    while tensor.layer is not None:
        found.append(tensor.layer)
        if not isinstance(tensor.layer.node.op, MaxPooling):
            return found
        tensor = tensor.layer.sources[0]
    return []


def _answering(quantizer: QuantizedTensor) -> PlannedLayer | None:
    """The layer that can answer in steps of a quantiser: one before it, or before maxima, that nothing else reads."""
    reader, layers = quantizer, _ahead(quantizer.source)
    for layer in layers:
        if layer.readers != [reader] or layer.activation not in (Activation.NONE, Activation.RELU):
            return None
        reader = layer
    return layers[-1] if layers and layers[-1].multiplies else None
