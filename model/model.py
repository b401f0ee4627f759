"""The quantised model: what training hands to the compiler.

A model is a graph of layers. They are listed so that each stands behind its sources, and a layer takes what the layer
before it in the list gave, or what `Model.sources` names. A recurrent layer gives a recurrent consumer its hidden
vector of every time step; any other consumer sees that of the last step.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from concord.model.layers.layer import Layer

#: What `Model.sources` calls the network's input.
INPUT = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Provenance:
    """Where a model comes from.

    Attributes:
        command:         The command that made it.
        method:          How it was trained and quantised, in a sentence.
        seed:            Of every random choice.
        fp32_accuracy:   Share of the test set that the FP32 network classifies correctly, if there is one; else
            None, as the others.
        qat_accuracy:    The same for the float network under quantisation-aware training, before the lowered phase.
        golden_accuracy: The same for this model in golden arithmetic.
    """

    command: str
    method: str
    seed: int
    fp32_accuracy: float | None
    qat_accuracy: float | None
    golden_accuracy: float | None


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Model:
    """A quantised network.

    Attributes:
        name:             For people.
        data:             Name of its test set, as `model.dataset` knows it, or "none".
        preprocessing:    How raw data become the binary16 input vector, in words.
        classes:          Names of the outputs.
        layers:           In order.
        sources:          Names of the layers (or INPUT) whose results enter a layer, where those are not just the one
            before it in the list.
        provenance:       Where it comes from.
        fp32_predictions: uint8[samples], class that the FP32 network gives each sample of the test set, in its order.
        qat_predictions:  uint8[samples], the same for the float network under quantisation-aware training.
    """

    name: str
    data: str
    preprocessing: str
    classes: tuple[str, ...]
    layers: tuple[Layer, ...]
    provenance: Provenance
    fp32_predictions: np.ndarray
    qat_predictions: np.ndarray
    sources: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __post_init__(self):
        if not self.layers:
            raise ValueError(f"model {self.name!r} has no layers; it needs one at least")
        names = [layer.name for layer in self.layers]
        if len(set(names)) < len(names):
            raise ValueError(f"model {self.name!r} has two layers of one name in {', '.join(names)}; rename one")
        if unknown := set(self.sources) - set(names):
            raise ValueError(f"model {self.name!r}: sources names {min(unknown)!r}, which is no layer of it")
        made = {}
        for layer in self.layers:
            _check_sources(layer, self, made)
            made[layer.name] = layer
        for layer, size in self._inputs():
            if size != self.inputs or layer.sequence != self.recurrent:
                shapes = [f"{n} elements{' at each time step' * s}" for n, s in (
                    (size, layer.sequence), (self.inputs, self.recurrent))]
                raise ValueError(f"layer {layer.name!r} takes {shapes[0]} of the network's input, but layer "
                                 f"{self.layers[0].name!r} takes {shapes[1]}; make the two equal")

    def sources_of(self, layer: Layer) -> tuple[str, ...]:
        """Names of what enters a layer."""
        place = self.layers.index(layer)
        return self.sources.get(layer.name, (self.layers[place - 1].name if place else INPUT,))

    def consumers_of(self, name: str) -> tuple[Layer, ...]:
        """The layers that take a layer's result, or the network's input."""
        return tuple(layer for layer in self.layers if name in self.sources_of(layer))

    @property
    def recurrent(self) -> bool:
        """Whether an input is a sequence of vectors, not one vector."""
        return self.layers[0].sequence

    @property
    def inputs(self) -> int:
        """Elements of one input vector; 0 where no known layer takes it."""
        return next((size for _, size in self._inputs()), 0)

    @property
    def outputs(self) -> int:
        """Elements of the output vector."""
        return self.layers[-1].outputs

    def _inputs(self) -> list[tuple[Layer, int]]:
        """The layers that take the network's input, and how many elements of it."""
        return [(layer, size) for layer in self.layers if layer.takes is not None
                for name, size in zip(self.sources_of(layer), layer.takes, strict=True) if name == INPUT]


def _check_sources(layer: Layer, model: Model, made: dict[str, Layer]):
    """Refuse what does not fit the layer that it enters."""
    names = model.sources_of(layer)
    if missing := [name for name in names if name != INPUT and name not in made]:
        raise ValueError(f"layer {layer.name!r} takes {missing[0]!r}, which no layer before it makes; put that first")
    if layer.takes is None:
        return
    if len(layer.takes) != len(names):
        raise ValueError(f"layer {layer.name!r} takes {len(layer.takes)} tensors, but sources names {len(names)}")
    for size, name in zip(layer.takes, names, strict=True):
        source = made.get(name)
        if source is None or source.outputs is None:
            continue
        if source.outputs != size:
            raise ValueError(
                f"layer {layer.name!r} takes {size} inputs, but {source.name!r} before it gives {source.outputs}; "
                "make the two sizes equal")
        if layer.sequence and not source.sequence:
            raise ValueError(
                f"recurrent layer {layer.name!r} cannot follow layer {source.name!r}, which sees one vector and not a "
                "sequence; put recurrent layers first")
