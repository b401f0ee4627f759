"""Where a network can be cut between machines, and which tensors cross each cut.

A cut after a layer leaves all layers that lead to it in front, if its result is all that the others read. Otherwise it
leaves all layers in front that the network lists up to it, and several tensors cross.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from concord.compiler.graph.wiring import has_images
from concord.compiler.lib.neighbours import Received, needed
from concord.net.layers.layer import Layer
from concord.net.model import INPUT, Model


def cuts(model: Model) -> list[str]:
    """Names of the layers after which a network can be cut, in order."""
    return [layer.name for layer in model.layers[:-1] if not objection(model, layer.name)]


def objection(model: Model, name: str) -> str:
    """Why a network cannot be cut after a layer, in a sentence; empty if it can."""
    if model.node(name) is None:
        return f"it has no layer {name!r}"
    before = _in_front(model, name)
    found = _crossing(model, before)
    if name not in found:
        return f"no layer reads the result of {name!r}"
    if INPUT in found:
        return f"{found[INPUT][0].name!r} after the cut reads the network's input, too, which only one machine takes"
    for source, readers in found.items():
        if reason := _objection_to(model, source, readers):
            return reason
    if len(found) > 1 and any(reader.sequence for readers in found.values() for reader in readers):
        return f"several tensors cross, {', '.join(found)}, and one is a sequence, which can only cross alone"
    return ""


def crossing(model: Model, name: str) -> tuple[str, ...]:
    """Names of the layers whose results cross the cut after a layer, in the order of the network."""
    found = _crossing(model, _in_front(model, name))
    return tuple(layer.name for layer in model.layers if layer.name in found)


def _objection_to(model: Model, name: str, readers: Sequence[Layer]) -> str:
    """Why the result of a layer cannot cross a cut to these readers."""
    layer = model.node(name)
    if any(reader.ends for reader in readers):
        return f"the softmax after it takes the result of {name!r} on its way to the host"
    if len({reader.sequence for reader in readers}) > 1:
        return f"after the cut, some layers read every time step of {name!r}, and others only the last one"
    if has_images(model) and any(reader.sequence for reader in readers):
        return f"{name!r} makes a sequence, and in a network with images only images and vectors go between machines"
    if any(reader.sequence and reader.reverse != layer.reverse for reader in readers):
        return f"{readers[0].name!r} after the cut begins at the other end of the sequence than {name!r}"
    return ""


def parts(model: Model, names: Sequence[str]) -> list[Model]:
    """The parts of a network that is cut after layers of these names, in order.

    A tensor that comes alone, and is not handed on, is the input of its part. Other tensors of another part are
    `Received` layers, the first layers of their part.

    Raises:
        ValueError: the network cannot be cut there; the sentence says where it can.
    """
    possible = cuts(model)
    for name in names:
        if reason := objection(model, name):
            where = f"cut after {' or '.join(map(repr, possible))}" if possible else "no cut is possible"
            raise ValueError(f"{model.name} cannot be cut after {name!r}: {reason}; {where}")
    if list(names) != sorted(set(names), key=possible.index):
        raise ValueError(f"{model.name} is cut after {', '.join(names)}: name each layer once, in the order of the "
                         f"network, {', '.join(possible)}")
    ends = [_in_front(model, name) for name in names]
    found, taken = [], set()
    for k, names_until in enumerate([*ends, {layer.name for layer in model.layers}]):
        layers = [layer for layer in needed(model) if layer.name in names_until - taken]
        entering = crossing(model, names[k - 1]) if k else ()
        leaving = crossing(model, names[k]) if k < len(names) else ()
        found.append(_part(model, layers, entering, leaving, f"{model.name}, part {k + 1}"))
        taken |= names_until
    return [*found[:-1], replace(found[-1], classes=model.classes)]


def every_step(part: Model, behind: Model | None) -> bool:
    """Whether the machine after a part takes the result of every time step, rather than of the last one."""
    return behind is not None and behind.recurrent and part.layers[-1].sequence


def _part(model: Model, layers: Sequence[Layer], entering: Sequence[str], leaving: Sequence[str], name: str) -> Model:
    """Some layers of a network as a model that takes the results of the layers `entering` from another machine."""
    none = np.zeros(0, np.uint8)
    alone = entering[0] if len(entering) == 1 and entering[0] not in leaving else None
    sources = {layer.name: tuple(INPUT if source == alone else source for source in model.sources_of(layer))
               for layer in layers}
    if alone is None:
        received = [Received(name=layer.name, outputs=layer.outputs)
                    for layer in model.layers if layer.name in entering]
        sources |= {layer.name: () for layer in received}
        layers = [*received, *layers]
    return replace(model, name=name, layers=tuple(layers), sources=sources, classes=(), fp32_predictions=none,
                   quantized_predictions=none, axes=None if entering else model.axes, graph=None)


def _crossing(model: Model, before: set[str]) -> dict[str, list[Layer]]:
    """The tensors, INPUT among them, that needed layers read which are not in front of a cut, and these readers."""
    found: dict[str, list[Layer]] = {}
    for reader in needed(model):
        if reader.name not in before:
            for source in model.sources_of(reader):
                if source in before or source == INPUT:
                    found.setdefault(source, []).append(reader)
    return found


def _in_front(model: Model, name: str) -> set[str]:
    """Names of the layers in front of the cut after a layer."""
    before = {layer.name for layer in needed(model, [name])}
    if list(_crossing(model, before)) == [name]:
        return before
    names = [layer.name for layer in model.layers]
    return set(names[:names.index(name) + 1])
