"""Check that overlapping pipelines read and write memories as if the program ran one chain after another."""

from collections.abc import Iterable, Iterator

from concord.hw.lib.payloads import ENTRIES, INDEX
from concord.sim.stimulus.chains import chain_words
from concord.sim.stimulus.entry_chains import columns, pixels, written_entries
from concord.spec.isa.chain import Chain
from concord.spec.isa.instructions import Op
from concord.spec.isa.memories import Mem

#: Addresses that are not (memory, address): the queues from and to the host, whose words keep their order.
NET_IN, NET_OUT = ("net", "in"), ("net", "out")


def steps(number: int, chain: Chain, vector_words: int) -> Iterator[tuple[tuple, list, list]]:
    """The accesses of a chain in program order, as tuples (tag, addresses that are read, addresses that are written).

    The tag of a word is (number, iteration, index); that of a product's operands and tiles, of the pixels of an
    iteration, and of a loaded tile is (number, iteration, name); that of an entry that is written
    (number, iteration, index of its last word, "entry"). Each use of a queue counts as a read and a write.
    """
    if chain.builds:
        words = chain_words(chain)
        size = len(words) // len(chain.tiles)
        for number_, tile in enumerate(chain.tiles):
            for word in words[number_ * size:(number_ + 1) * size]:
                yield (number, word.iteration, word.index), word.reads, []
            yield (number, number_, "tile"), [], [("tile", tile)]
        return
    if chain.loads:
        for iteration, tile in enumerate(chain.tiles):
            yield (number, iteration, "tile"), [NET_IN], [NET_IN, ("tile", tile)]
        return
    net = chain.source.mem == Mem.NET_Q
    out = any(i.op == Op.V_WR and i.mem == Mem.NET_Q for i in chain.instructions)
    entries = written_entries(chain, vector_words)
    for word in chain_words(chain):
        if word.index == 0:
            yield from _sources(number, chain, word.iteration, vector_words)
        if not chain.pushes:
            queues = [NET_IN] * (net and not chain.product) + [NET_OUT] * out
            yield (number, word.iteration, word.index), word.reads + queues, [*word.writes.items(), *queues]
            if (word.iteration, word.index) in entries:
                address = ENTRIES, entries[word.iteration, word.index]
                yield (number, word.iteration, word.index, "entry"), [], [address]


def _sources(number, chain, iteration, vector_words):
    """What an iteration reads ahead of its words: operands and tiles of a product, or pixels."""
    source = chain.source
    if chain.gathers:
        addresses = [(INDEX[source.mem], pixel.address) for pixel in pixels(chain, vector_words)
                  if pixel.iteration == iteration]
        yield (number, iteration, "pixels"), addresses, []
    if chain.product:
        net = source.mem == Mem.NET_Q
        first = source.a + chain.source_offset(iteration)
        operands = [NET_IN] if net else [(INDEX[source.mem], first + k) for k in range(chain.source_words)]
        if source.mem == Mem.VECTOR_RF:
            operands = [(ENTRIES, address) for address in columns(chain)[iteration].ravel().tolist()]
        yield (number, iteration, "operands"), operands, [NET_IN] * net
        yield (number, iteration, "tiles"), [("tile", tile) for tile in chain.tiles], []


class MemoryOrder:
    """Asserts that each read of an address finds the value of its last writer in program order.

    Args:
        vector_words: Number of words of an entry of VectorRf.
    """

    def __init__(self, vector_words: int):
        self.vector_words = vector_words
        self._order, self._now, self._wanted = {}, {}, {}

    def plan(self, number: int, chain: Chain) -> None:
        """Note the next chain of the program."""
        for tag, reads, writes in steps(number, chain, self.vector_words):
            self._wanted[tag] = {address: self._order.get(address) for address in reads}
            self._order |= dict.fromkeys(writes, tag)

    def read(self, tag: tuple, addresses: Iterable) -> None:
        """Note that the access `tag` reads addresses now, and check which access wrote them last."""
        for address in addresses:
            found, wanted = self._now.get(address), self._wanted[tag][address]
            assert found == wanted, f"{tag} finds {address} as {found} has left it, not {wanted}"

    def write(self, tag: tuple, addresses: Iterable) -> None:
        """Note that the access `tag` writes addresses now."""
        self._now |= dict.fromkeys(addresses, tag)
