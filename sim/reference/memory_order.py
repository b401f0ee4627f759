"""Who touches what in which order: a program as it is written, against pipelines that overlap it."""

from collections.abc import Iterable, Iterator

from concord.hw.lib.payloads import INDEX
from concord.sim.stimulus.chains import chain_words
from concord.spec.chain import Chain
from concord.spec.isa import Op
from concord.spec.memories import Mem

#: A place besides (memory, address): the queues to and from the host, whose words keep their order.
NET_IN, NET_OUT = ("net", "in"), ("net", "out")


def steps(number: int, chain: Chain) -> Iterator[tuple[tuple, list, list]]:
    """What a chain does in program order: a tag, the places that it reads, those that it writes.

    The tag of a word is (number, iteration, index), of a product's operands and tiles (number, iteration, name), of a
    loaded tile (number, iteration, "tile"). A queue's place is read and written by all who use it.
    """
    source, net = chain.source, chain.source.mem == Mem.NET_Q
    out = any(i.op == Op.V_WR and i.mem == Mem.NET_Q for i in chain.instructions)
    if chain.loads:
        for iteration, tile in enumerate(chain.tiles):
            yield (number, iteration, "tile"), [NET_IN], [NET_IN, ("tile", tile)]
        return
    for word in chain_words(chain):
        if chain.product and word.index == 0:
            first = source.a + chain.source_offset(word.iteration)
            operands = [NET_IN] if net else [(INDEX[source.mem], first + k) for k in range(chain.source_words)]
            yield (number, word.iteration, "operands"), operands, [NET_IN] * net
            yield (number, word.iteration, "tiles"), [("tile", tile) for tile in chain.tiles], []
        if not chain.pushes:
            queues = [NET_IN] * (net and not chain.product) + [NET_OUT] * out
            yield (number, word.iteration, word.index), word.reads + queues, [*word.writes.items(), *queues]


class Order:
    """Whoever reads a place must find there what its last writer in program order has written."""

    def __init__(self):
        self._order, self._now, self._wanted = {}, {}, {}

    def plan(self, number: int, chain: Chain) -> None:
        """One more chain of the program."""
        for tag, reads, writes in steps(number, chain):
            self._wanted[tag] = {place: self._order.get(place) for place in reads}
            self._order |= dict.fromkeys(writes, tag)

    def read(self, tag: tuple, places: Iterable) -> None:
        """Read places now."""
        for place in places:
            found, wanted = self._now.get(place), self._wanted[tag][place]
            assert found == wanted, f"{tag} finds {place} as {found} has left it, not {wanted}"

    def write(self, tag: tuple, places: Iterable) -> None:
        """Write places now."""
        self._now |= dict.fromkeys(places, tag)
