"""Where to cut a network for several machines: estimates of clock cycles, and the cut that they choose."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import combinations, pairwise
from math import comb

from concord.compiler import cuts
from concord.compiler.cascade import CompiledCascade, Cutter
from concord.spec.host.messages import HEADER, MessageKind, item_bytes
from concord.spec.machine.config import Config

#: Most ways to cut a network that are compared.
WAYS = 200_000


class Estimates:
    """Clock cycles of a network on several machines, before its parts are compiled.

    Those of a sequence are for a time step.

    Args:
        cutter: Knows the network and the machines.
        costs:  Estimated clock cycles of each layer on one machine, see `compiler.explain`.

    Attributes:
        possible: Names of the layers behind which the network can be cut.
    """

    def __init__(self, cutter: Cutter, costs: Mapping[str, int]):
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
        """Cycles from result to result where the network is cut behind layers of these names.

        The busiest machine decides. It takes what enters before it computes, and sends while it computes.
        """
        ends = [(0, 0, 0), *((self._done[name], self._sent[name], self._waits[name]) for name in names),
                (self._whole, 0, 0)]
        return max(max(there - here + into + wait, out) for (here, into, wait), (there, out, _) in pairwise(ends))

    def sending(self, name: str) -> int:
        """Cycles in which the tensors behind a layer go to the next machine.

        An image is one message: several only add some headers.
        """
        return sum(_message_cycles(self._config, self._words(each)) for each in cuts.crossing(self._model, name))

    def waiting(self, name: str) -> int:
        """Cycles that the machine behind a cut waits inside a sample, because tensors do not come all at once.

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
    estimates, machines = Estimates(cutter, costs), len(cutter.configs)
    possible = estimates.possible
    if len(possible) < machines - 1:
        raise ValueError(f"{cutter.model.name} can be cut at {len(possible)} places, and {machines} machines need "
                         f"{machines - 1}")
    if comb(len(possible), machines - 1) > WAYS:
        raise ValueError(f"{cutter.model.name} can be cut for {machines} machines in more than {WAYS:,} ways: name the "
                         "layers behind which to cut it by --cut")
    yield from sorted(combinations(possible, machines - 1), key=estimates.interval)


def _message_cycles(config: Config, words: int) -> int:
    """Clock cycles in which an OUTPUT message of some words is made; header and CRC leave in units of 32 bits."""
    beat, word = config.message_bytes, item_bytes(config, MessageKind.OUTPUT)
    padding = -(HEADER.size + words * word) % beat // 4
    return words * -(-word // beat) + padding + HEADER.size // 4 + beat // 4 + 2
