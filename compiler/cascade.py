"""Compile a network for several machines, of which each sends its results to the next one."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from math import comb

from concord.compiler import cuts
from concord.compiler.images.network import Network
from concord.compiler.images.support import has_images
from concord.compiler.images.wiring import wired
from concord.compiler.lib.neighbours import Neighbours
from concord.compiler.network import Compiled, compile_network
from concord.golden.host.cascade import Cascade, check_neighbours
from concord.model.model import Model
from concord.spec.config import Config
from concord.spec.messages import HEADER, MessageKind, item_bytes

#: Most ways to cut a network that are compared.
WAYS = 200_000


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class CompiledCascade:
    """The result of a compilation for several machines: the firmware of all, and what is compiled for each."""

    cascade: Cascade
    parts: tuple[Compiled, ...]


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
        self._network = Network(wired(model), configs[0]) if self._images and cuts.cuts(model) else None

    def shape(self, name: str) -> tuple[int, int, int]:
        """Channels, rows and columns of a layer's result; a vector is an image of one pixel."""
        if self._network:
            return self._network.node(name).value.shape
        return next(layer.outputs for layer in self.model.layers if layer.name == name), 1, 1

    def sending(self, name: str) -> int:
        """Clock cycles in which the result of a layer goes to the next machine, for a sequence in a time step.

        An image is one message: several only add some headers.
        """
        channels, rows, columns = self.shape(name)
        return _message_cycles(self.configs[0], rows * columns * self.configs[0].words_of(channels))

    def compiled(self, names: Sequence[str]) -> CompiledCascade:
        """The network, cut behind layers of these names.

        Raises:
            ValueError: it cannot be cut there, or a part is refused by its machine.
        """
        models = cuts.parts(self.model, names)
        done = tuple(self._part(k, models, names) for k in range(len(models)))
        cascade = Cascade(
            name=self.model.name, parts=tuple(one.firmware for one in done), cuts=tuple(names))
        return CompiledCascade(cascade=cascade, parts=done)

    def _part(self, k: int, models: Sequence[Model], names: Sequence[str]) -> Compiled:
        """The part number `k`; each part is compiled once, whether its machine takes it or not."""
        before, behind = names[k - 1] if k else None, models[k + 1] if k + 1 < len(models) else None
        key = before, names[k] if behind else None, self.configs[k]
        if key not in self._done:
            neighbours = Neighbours(
                before=before is not None, steps=cuts.every_step(models[k], behind), images=self._images,
                whole=self._images and behind is not None,
                shape=self.shape(before) if before and self._images else None)
            self._done[key] = _compiled(models[k], self.configs[k], neighbours)
        found = self._done[key]
        if isinstance(found, ValueError):
            raise found
        return found


def balanced(cutter: Cutter, costs: Mapping[str, int]) -> CompiledCascade:
    """The network, cut where the busiest machine has the least to do, among the cuts whose parts fit their machines.

    Args:
        cutter: Compiles the parts.
        costs:  Estimated clock cycles of each layer, see `compiler.explain`.

    Raises:
        ValueError: a machine refuses its part, wherever the network is cut; or the network has too few places where it
            can be cut, or too many ways.
    """
    first = None
    for names in _ways(cutter, costs):
        try:
            return cutter.compiled(names)
        except ValueError as error:
            first = first or error
    raise ValueError(f"{cutter.model.name} does not fit {len(cutter.configs)} machines, wherever it is cut; where they "
                     f"would share the work best, {first}")


def _ways(cutter: Cutter, costs: Mapping[str, int]) -> Iterator[tuple[str, ...]]:
    """All ways to cut a network, those first whose busiest machine has the least to do."""
    possible, machines = cuts.cuts(cutter.model), len(cutter.configs)
    if len(possible) < machines - 1:
        raise ValueError(f"{cutter.model.name} can be cut at {len(possible)} places, and {machines} machines need "
                         f"{machines - 1}: one tensor must be all that later layers read")
    if comb(len(possible), machines - 1) > WAYS:
        raise ValueError(f"{cutter.model.name} can be cut for {machines} machines in more than {WAYS:,} ways: name the "
                         "layers behind which to cut it by --cut")
    done = {name: sum(costs.get(layer.name, 0) for layer in cuts.parts(cutter.model, [name])[0].layers)
            for name in possible}
    sent = {name: cutter.sending(name) for name in possible}
    whole = sum(costs.get(layer.name, 0) for layer in cutter.model.layers)

    def busiest(names: tuple[str, ...]) -> int:
        ends = [(0, 0), *((done[name], sent[name]) for name in names), (whole, 0)]
        return max(there - here + into + out for (here, into), (there, out) in pairwise(ends))

    yield from sorted(combinations(possible, machines - 1), key=busiest)


def _compiled(model: Model, config: Config, neighbours: Neighbours) -> Compiled | ValueError:
    """A part, compiled, or why its machine refuses it. Without room for a row, each pixel is a message of its own."""
    try:
        return compile_network(model, config, neighbours)
    except ValueError as error:
        return _compiled(model, config, replace(neighbours, whole=False)) if neighbours.whole else error


def _message_cycles(config: Config, words: int) -> int:
    """Clock cycles in which an OUTPUT message of some words is made; header and CRC leave in units of 32 bits."""
    beat, word = config.message_bytes, item_bytes(config, MessageKind.OUTPUT)
    padding = -(HEADER.size + words * word) % beat // 4
    return words * -(-word // beat if word > beat else 1) + padding + HEADER.size // 4 + beat // 4 + 2
