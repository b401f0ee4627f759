"""Compile a network for several machines, of which each sends its results to the next one.

Where no cut is named, the clock cycles of layers order the cuts, and the first one whose parts fit is taken.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from math import comb

from concord.compiler import cuts
from concord.compiler.graph.network import PlannedNetwork
from concord.compiler.graph.wiring import has_images, wired
from concord.compiler.lib.neighbours import Neighbours, Received
from concord.compiler.lib.tiling import Bound
from concord.compiler.network import Compiled, compile_network
from concord.compiler.support import kind_of
from concord.firmware.cascade import Cascade, check_neighbours
from concord.net.model import Model
from concord.spec.host.messages import HEADER, MessageKind, item_bytes
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


class PartCompiler:
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
        self._network = PlannedNetwork(wired(model, kind_of), configs[0]) if self._images and cuts.cuts(model) else None

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
        return self.model.node(name).outputs, 1, 1

    def compiled(self, names: Sequence[str]) -> CompiledCascade:
        """The network, cut after layers of these names.

        Raises:
            ValueError: it cannot be cut there, or a part is refused by its machine.
        """
        models = cuts.parts(self.model, names)
        done: list[Compiled] = []
        for k in range(len(models)):
            done.append(self._part(k, models, names, done[-1].sent if done else ()))
        done[0] = replace(done[0], firmware=replace(done[0].firmware, table=self.model.table))
        done[-1] = replace(done[-1], firmware=replace(done[-1].firmware, results=self.model.results))
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
                before=before is not None, behind=behind is not None, steps=cuts.every_step(models[k], behind),
                images=self._images, sends=leaving if len(leaving) > 1 else (),
                whole=self._images and behind is not None,
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


#: Most ways to cut a network that are compared.
WAYS = 200_000


class CutCosts:
    """Clock cycles of a network on several machines, before its parts are compiled.

    Those of a sequence are for a time step.

    Args:
        cutter: Knows the network and the machines.
        costs:  Clock cycles of each layer on one machine, see `workflows.cascades.costs_of`.

    Attributes:
        possible: Names of the layers after which the network can be cut.
    """

    def __init__(self, cutter: PartCompiler, costs: Mapping[str, int]):
        self._cutter, self._model, self._config, self._costs = cutter, cutter.model, cutter.configs[0], costs
        self._sent: dict[str, int] = {}
        for name in cuts.cuts(cutter.model):
            with suppress(ValueError):
                self._sent[name] = self.sending(name)
        self.possible = list(self._sent)
        self._waits = {name: self.waiting(name) for name in self.possible}
        self._done = {name: sum(map(self._cost, self._in_front(name))) for name in self.possible}
        self._whole = sum(self._cost(layer.name) for layer in cutter.model.layers)

    def interval(self, names: tuple[str, ...]) -> int:
        """Cycles from result to result where the network is cut after layers of these names.

        The busiest machine decides. It takes what enters before it computes, and sends while it computes.
        """
        ends = [(0, 0, 0), *((self._done[name], self._sent[name], self._waits[name]) for name in names),
                (self._whole, 0, 0)]
        return max(max(there - here + into + wait, out) for (here, into, wait), (there, out, _) in pairwise(ends))

    def sending(self, name: str) -> int:
        """Cycles in which the tensors after a layer go to the next machine.

        An image is one message: several only add some headers.
        """
        return sum(_message_cycles(self._config, self._words(each)) for each in cuts.crossing(self._model, name))

    def waiting(self, name: str) -> int:
        """Cycles that the machine after a cut waits inside a sample, because tensors do not come all at once.

        The machine in front computes on only as far as the queues between both hold what it has sent.
        """
        room = self._config.net_in + self._config.net_out
        *early, _ = cuts.crossing(self._model, name)
        for each in early:
            room -= self._words(each)
            if room < 0:
                layers = self._in_front(name)
                return sum(map(self._cost, layers[layers.index(each) + 1:]))
        return 0

    def _words(self, name: str) -> int:
        """Words of the result of a layer."""
        channels, rows, columns = self._cutter.shape(name)
        return rows * columns * self._config.words_of(channels)

    def _in_front(self, name: str) -> list[str]:
        """Names of the layers in front of a cut, in order."""
        return [layer.name for layer in cuts.parts(self._model, [name])[0].layers]

    def _cost(self, name: str) -> int:
        return self._costs.get(name, 0)


def balanced(cutter: PartCompiler, costs: Mapping[str, int]) -> CompiledCascade:
    """The network, cut where the busiest machine has the least to do, among the cuts whose parts fit their machines.

    Args:
        cutter: Compiles the parts.
        costs:  Clock cycles of each layer, see `workflows.cascades.costs_of`.

    Raises:
        ValueError: a machine refuses its part, wherever the network is cut; or the network has too few points where it
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


def _ways(cutter: PartCompiler, costs: Mapping[str, int]) -> Iterator[tuple[str, ...]]:
    """All ways to cut a network, those first whose busiest machine has the least to do."""
    cut_costs, machines = CutCosts(cutter, costs), len(cutter.configs)
    possible = cut_costs.possible
    if len(possible) < machines - 1:
        raise ValueError(f"{cutter.model.name} can be cut at {len(possible)} points, and {machines} machines need "
                         f"{machines - 1}")
    if comb(len(possible), machines - 1) > WAYS:
        raise ValueError(f"{cutter.model.name} can be cut for {machines} machines in more than {WAYS:,} ways: name the "
                         "layers after which to cut it by --cut")
    yield from sorted(combinations(possible, machines - 1), key=cut_costs.interval)


def _message_cycles(config: Config, words: int) -> int:
    """Clock cycles in which an OUTPUT message of some words is made; header and CRC leave in units of 32 bits."""
    beat, word = config.message_bytes, item_bytes(config, MessageKind.OUTPUT)
    padding = -(HEADER.size + words * word) % beat // 4
    return words * -(-word // beat) + padding + HEADER.size // 4 + beat // 4 + 2
