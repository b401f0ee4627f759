"""The states of recurrent layers before the first time step: zero, drawn by a random process, or given.

Source: claim 8 and summary of the second document, the first recurrent vector.
"""

from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum

import numpy as np
from concord.net.cells.cell import Cell
from concord.net.layers.recurrent import Recurrent
from concord.net.lowering.lowering import first_states
from concord.net.model import Model


class InitialState(StrEnum):
    """Values of the states of recurrent layers before the first time step."""

    ZERO = "zero"  #: all zero
    UNIFORM = "uniform"  #: random, evenly over -1..1
    NORMAL = "normal"  #: random, normal of standard deviation 0.1


def drawn(process: InitialState, cell: Cell, hidden: int, seed) -> dict[str, np.ndarray]:
    """float32[hidden], binary16 numbers in -1..1, for each state of a cell by its name: the same for one seed."""
    rng = np.random.default_rng(seed)
    shape = len(cell.states), hidden
    values = {
        InitialState.ZERO: lambda: np.zeros(shape),
        InitialState.UNIFORM: lambda: rng.uniform(-1, 1, shape),
        InitialState.NORMAL: lambda: rng.normal(0, 0.1, shape).clip(-1, 1),
    }[process]()
    return dict(zip(cell.states, values.astype(np.float16).astype(np.float32), strict=True))


def with_drawn(model: Model, process: InitialState, seed: int) -> Model:
    """The model, each of whose recurrent layers starts from states that a process draws; layers draw apart.

    Raises:
        ValueError: it has no recurrent layer.
    """
    layers = _recurrent(model)
    return _with_states(model, {layer.name: drawn(process, layer.cell, layer.outputs, (seed, index))
                                for index, layer in enumerate(layers)})


def with_given(model: Model, arrays: Mapping[str, np.ndarray]) -> Model:
    """The model with other first states.

    Args:
        model:  The model.
        arrays: Real[outputs] by the layer and the state, such as "lstm1.hidden". Others stay.

    Raises:
        ValueError: there is no such state, or it has another size, or numbers that binary16 lacks.
    """
    names = {f"{layer.name}.{state}": (layer, state) for layer in _recurrent(model) for state in layer.cell.states}
    given: dict[str, dict[str, np.ndarray]] = {}
    for name, array in arrays.items():
        if name not in names:
            raise ValueError(f"{model.name} has no state {name!r}; its states are {', '.join(names)}")
        layer, state = names[name]
        if array.shape != (layer.outputs,) or array.dtype.kind not in "fiu" or not np.isfinite(array).all():
            raise ValueError(f"{name}: {layer.outputs} finite numbers are needed, not {array.dtype}{list(array.shape)}")
        kept = {other: value.view(np.float16) for other, value in layer.initial.items()}
        given.setdefault(layer.name, kept)[state] = array
    return _with_states(model, given)


def _recurrent(model: Model) -> list[Recurrent]:
    found = [layer for layer in model.layers if isinstance(layer, Recurrent)]
    if not found:
        raise ValueError(f"{model.name} has no recurrent layer, and so no first state")
    return found


def _with_states(model: Model, states: Mapping[str, Mapping[str, np.ndarray]]) -> Model:
    """The model and its float network with other first states of some layers, by the name of the layer."""
    layers = tuple(_started(layer, states[layer.name]) if layer.name in states else layer for layer in model.layers)
    graph = model.graph and replace(model.graph, nodes=tuple(
        replace(node, op=_first(node.op, states[node.name])) if node.name in states else node
        for node in model.graph.nodes))
    return replace(model, layers=layers, graph=graph)


def _started(layer: Recurrent, states: Mapping[str, np.ndarray]) -> Recurrent:
    operator = layer.float_operator and _first(layer.float_operator, states)
    return replace(layer, initial=first_states(layer.name, layer.cell, states, layer.outputs), float_operator=operator)


def _first(op, states: Mapping[str, np.ndarray]):
    return replace(op, first={name: np.asarray(value, np.float32) for name, value in states.items()})
