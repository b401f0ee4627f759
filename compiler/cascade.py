"""Compile a network for several machines, of which each sends its results to the next one."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from concord.compiler import cuts
from concord.compiler.graph.network import Network
from concord.compiler.graph.wiring import has_images, wired
from concord.compiler.kinds.registry import kind_of
from concord.compiler.lib.bounds import Bound
from concord.compiler.lib.neighbours import Neighbours
from concord.compiler.lib.received import Received
from concord.compiler.network import Compiled, compile_network
from concord.firmware.cascade import Cascade, check_neighbours
from concord.net.model import Model
from concord.spec.machine.config import Config


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class CompiledCascade:
    """The result of a compilation for a pipeline of machines: the firmware of all, and what is compiled for each.

    Firmware that is read from a file has no such parts.
    """

    cascade: Cascade
    parts: tuple[Compiled, ...] = ()

    @property
    def usage(self) -> dict[str, tuple[int, int]]:
        """`Compiled.usage` of all machines."""
        return {f"{where}{name}": counts for where, part in self._named() for name, counts in part.usage.items()}

    @property
    def bounds(self) -> list[Bound]:
        """`Compiled.bounds` of all machines."""
        return [bound for part in self.parts for bound in part.bounds]

    def _named(self) -> list[tuple[str, Compiled]]:
        """The parts, each with the beginning of the names of its memories: its number, if there are several."""
        return [(f"machine {k}: " if len(self.parts) > 1 else "", part) for k, part in enumerate(self.parts, 1)]


class Cutter:
    """Compiles the parts of one network, each of them once.

    Args:
        model:   The network.
        configs: The machines, in order.

    Raises:
        ValueError: a machine cannot read the messages of the one before it.
    """

    def __init__(self, model: Model, configs: Sequence[Config]):
        for one, other in pairwise(configs):
            check_neighbours(model.name, one, other)
        self.model, self.configs = model, tuple(configs)
        self._images = has_images(model)
        self._done: dict[tuple, Compiled | ValueError] = {}
        self._network = Network(wired(model), configs[0], kind_of) if self._images and cuts.cuts(model) else None

    def shape(self, name: str) -> tuple[int, int, int]:
        """Channels, rows and columns of a layer's result; a vector is an image of one pixel.

        Raises:
            ValueError: the layer makes nothing that machines could send.
        """
        if self._network:
            node = self._network.node(name)
            if node is None:
                raise ValueError(f"{name!r} only puts numbers into another order: cut elsewhere")
            return node.value.shape
        return next(layer.outputs for layer in self.model.layers if layer.name == name), 1, 1

    def compiled(self, names: Sequence[str]) -> CompiledCascade:
        """The network, cut behind layers of these names.

        Raises:
            ValueError: it cannot be cut there, or a part is refused by its machine.
        """
        models = cuts.parts(self.model, names)
        done: list[Compiled] = []
        for k in range(len(models)):
            done.append(self._part(k, models, names, done[-1].sent if done else ()))
        cascade = Cascade(
            name=self.model.name, parts=tuple(one.firmware for one in done), cuts=tuple(names))
        return CompiledCascade(cascade=cascade, parts=tuple(done))

    def _part(self, k: int, models: Sequence[Model], names: Sequence[str], sent: tuple[str, ...]) -> Compiled:
        """The part number `k`; each part is compiled once, whether its machine takes it or not.

        Args:
            sent: Names of the layers whose results the machine before sends, in order.
        """
        before, behind = names[k - 1] if k else None, models[k + 1] if k + 1 < len(models) else None
        key = before, names[k] if behind else None, self.configs[k], sent
        if key not in self._done:
            leaving = cuts.crossing(self.model, names[k]) if behind else ()
            neighbours = Neighbours(
                before=before is not None, steps=cuts.every_step(models[k], behind), images=self._images,
                sends=leaving if len(leaving) > 1 else (), whole=self._images and behind is not None,
                shape=self.shape(before) if before and self._images else None)
            self._done[key] = _compiled(self._received(models[k], sent), self.configs[k], neighbours)
        found = self._done[key]
        if isinstance(found, ValueError):
            raise found
        return found

    def _received(self, part: Model, sent: Sequence[str]) -> Model:
        """A part whose `Received` layers have shapes, and the order in which the machine before sends."""
        received = {layer.name: layer for layer in part.layers if isinstance(layer, Received)}
        shaped = [replace(received[name], shape=self.shape(name) if self._images else None) for name in sent
                  if name in received]
        return replace(part, layers=(*shaped, *part.layers[len(shaped):]))


def _compiled(model: Model, config: Config, neighbours: Neighbours) -> Compiled | ValueError:
    """A part, compiled, or why its machine refuses it. Without room for a row, each pixel is a message of its own."""
    try:
        return compile_network(model, config, neighbours)
    except ValueError as error:
        return _compiled(model, config, replace(neighbours, whole=False)) if neighbours.whole else error
