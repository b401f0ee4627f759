"""Compile a network for several machines, of which each sends its results to the next one."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from math import comb

from concord.compiler import cuts
from concord.compiler.images.network import Network
from concord.compiler.images.support import has_images
from concord.compiler.images.wiring import wired
from concord.compiler.lib.neighbours import Neighbours
from concord.compiler.lib.received import Received
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
        """Channels, rows and columns of a layer's result; a vector is an image of one pixel.

        Raises:
            ValueError: the layer makes nothing that machines could send.
        """
        if self._network:
            try:
                return self._network.node(name).value.shape
            except KeyError:
                raise ValueError(f"{name!r} only puts numbers into another order: cut elsewhere") from None
        return next(layer.outputs for layer in self.model.layers if layer.name == name), 1, 1

    def sending(self, name: str) -> int:
        """Clock cycles in which the tensors behind a layer go to the next machine, for a sequence in a time step.

        An image is one message: several only add some headers.
        """
        cycles, config = 0, self.configs[0]
        for each in cuts.crossing(self.model, name):
            channels, rows, columns = self.shape(each)
            cycles += _message_cycles(config, rows * columns * config.words_of(channels))
        return cycles

    def waiting(self, name: str, costs: Mapping[str, int]) -> int:
        """Cycles that the machine behind a cut waits inside a sample, because tensors do not come all at once.

        The machine in front computes on only as far as the queues between both hold what it has sent.

        Args:
            costs: Estimated clock cycles of each layer.
        """
        room, config = self.configs[0].net_in + self.configs[0].net_out, self.configs[0]
        *early, _ = cuts.crossing(self.model, name)
        for each in early:
            channels, rows, columns = self.shape(each)
            room -= rows * columns * config.words_of(channels)
            if room < 0:
                layers = [layer.name for layer in cuts.parts(self.model, [name])[0].layers]
                return sum(costs.get(layer, 0) for layer in layers[layers.index(each) + 1:])
        return 0

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
    sent, machines = _sendings(cutter), len(cutter.configs)
    possible = list(sent)
    if len(possible) < machines - 1:
        raise ValueError(f"{cutter.model.name} can be cut at {len(possible)} places, and {machines} machines need "
                         f"{machines - 1}")
    if comb(len(possible), machines - 1) > WAYS:
        raise ValueError(f"{cutter.model.name} can be cut for {machines} machines in more than {WAYS:,} ways: name the "
                         "layers behind which to cut it by --cut")
    done = {name: sum(costs.get(layer.name, 0) for layer in cuts.parts(cutter.model, [name])[0].layers)
            for name in possible}
    waits = {name: cutter.waiting(name, costs) for name in possible}
    whole = sum(costs.get(layer.name, 0) for layer in cutter.model.layers)

    def busiest(names: tuple[str, ...]) -> int:
        ends = [(0, 0, 0), *((done[name], sent[name], waits[name]) for name in names), (whole, 0, 0)]
        return max(max(there - here + into + wait, out) for (here, into, wait), (there, out, _) in pairwise(ends))

    yield from sorted(combinations(possible, machines - 1), key=busiest)


def _sendings(cutter: Cutter) -> dict[str, int]:
    """Clock cycles of the transfer behind each layer behind which the network can be cut."""
    found = {}
    for name in cuts.cuts(cutter.model):
        with suppress(ValueError):
            found[name] = cutter.sending(name)
    return found


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
    return words * -(-word // beat) + padding + HEADER.size // 4 + beat // 4 + 2
