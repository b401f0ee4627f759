"""Where a network can be cut between machines: behind layers whose result is all that later layers read."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from concord.compiler.images.support import has_images
from concord.model.layers.layer import Layer
from concord.model.model import INPUT, Model


def cuts(model: Model) -> list[str]:
    """Names of the layers behind which a network can be cut, in order: one tensor crosses each cut."""
    return [layer.name for layer in model.layers[:-1] if not objection(model, layer.name)]


def objection(model: Model, name: str) -> str:
    """Why a network cannot be cut behind a layer, in a sentence; empty if it can."""
    layer = next((layer for layer in model.layers if layer.name == name), None)
    if layer is None:
        return f"it has no layer {name!r}"
    before = _leading_to(model, name)
    crossing = {source: reader.name for reader in model.layers if reader.name not in before
                for source in model.sources_of(reader) if source in before or source == INPUT}
    others = {source: reader for source, reader in crossing.items() if source != name}
    if name not in crossing:
        return f"no layer reads the result of {name!r}"
    if others:
        source, reader = next(iter(others.items()))
        what = f"the result of {source!r}" if source != INPUT else "the network's input"
        return f"{reader!r} behind the cut reads {what}, too, and machines send each other one tensor"
    readers = [reader for reader in model.consumers_of(name) if reader.name not in before]
    if any(reader.ends for reader in readers):
        return f"the softmax behind it takes the result of {name!r} on its way to the host"
    if len({reader.sequence for reader in readers}) > 1:
        return f"behind the cut, some layers read every time step of {name!r}, and others only the last one"
    if has_images(model) and any(reader.sequence for reader in readers):
        return f"{name!r} makes a sequence, and in a network with images only images and vectors go between machines"
    if any(reader.sequence and reader.reverse != layer.reverse for reader in readers):
        return f"{readers[0].name!r} behind the cut begins at the other end of the sequence than {name!r}"
    return ""


def parts(model: Model, names: Sequence[str]) -> list[Model]:
    """The parts of a network that is cut behind layers of these names, in order.

    Raises:
        ValueError: the network cannot be cut there; the sentence says where it can.
    """
    possible = cuts(model)
    for name in names:
        if reason := objection(model, name):
            where = f"cut behind {' or '.join(map(repr, possible))}" if possible else "no cut is possible"
            raise ValueError(f"{model.name} cannot be cut behind {name!r}: {reason}; {where}")
    if list(names) != sorted(set(names), key=possible.index):
        raise ValueError(f"{model.name} is cut behind {', '.join(names)}: name each layer once, in the order of the "
                         f"network, {', '.join(possible)}")
    ends = [_leading_to(model, name) for name in names]
    found, taken = [], set()
    for k, names_until in enumerate([*ends, {layer.name for layer in model.layers}]):
        layers = [layer for layer in model.layers if layer.name in names_until - taken]
        found.append(_part(model, layers, names[k - 1] if k else None, f"{model.name}, part {k + 1}"))
        taken |= names_until
    return [*found[:-1], replace(found[-1], classes=model.classes)]


def every_step(part: Model, behind: Model | None) -> bool:
    """Whether the machine behind a part takes the result of every time step, rather than of the last one."""
    return behind is not None and behind.recurrent and part.layers[-1].sequence


def _part(model: Model, layers: Sequence[Layer], before: str | None, name: str) -> Model:
    """Some layers of a network as a model whose input is the result of the layer `before`."""
    none = np.zeros(0, np.uint8)
    sources = {layer.name: tuple(INPUT if source == before else source for source in model.sources_of(layer))
               for layer in layers}
    return replace(model, name=name, layers=tuple(layers), sources=sources, classes=(), fp32_predictions=none,
                   quantised_predictions=none)


def _leading_to(model: Model, name: str) -> set[str]:
    """The layer of this name, and all layers that lead to it."""
    found = {name}
    for layer in reversed(model.layers):
        if layer.name in found:
            found.update(source for source in model.sources_of(layer) if source != INPUT)
    return found
