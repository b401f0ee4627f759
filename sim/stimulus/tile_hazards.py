"""Counts pairs of chains, close to each other in a program, that meet where tiles are made of vectors."""

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass

from concord.hw.lib.payloads import INDEX
from concord.sim.stimulus.chains import chain_words
from concord.spec.isa.chain import Chain
from concord.spec.isa.memories import Mem

NEAR = 4  #: Chains after a chain that may run while it does.

#: Pairs of an older and a younger chain: a chain that makes tiles of vectors, and one that it must wait for, or that
#: waits for it; or, in the last one, one that may run beside it.
HAZARDS = (
    "write, then vectors of its words", "vectors, then a write of their words", "product, then its tile from vectors",
    "tile from vectors, then its product", "tile from Dram, then from vectors", "tile from vectors, then from Dram",
    "tile from NetQ, then from vectors", "tile from vectors, then from NetQ", "tile from vectors, then again",
    "tiles from vectors and other ones from Dram")


@dataclass(frozen=True, slots=True)
class _Use:
    """What a chain reads of vector memories to make tiles, what it writes there, and its tiles."""

    chain: Chain
    reads: frozenset[tuple[int, int]]
    writes: frozenset[tuple[int, int]]
    tiles: frozenset[int]

    @property
    def kind(self) -> str:
        """Where its tiles come from, or what it does with them."""
        if not self.chain.loads:
            return "product" if self.chain.product else ""
        return {Mem.DRAM: "Dram", Mem.NET_Q: "NetQ"}.get(Mem(self.chain.source.mem), "vectors")


def tile_hazards(chains: Iterable[Chain]) -> Counter[str]:
    """Number of pairs of each kind of `HAZARDS` in a program, whose younger chain is one of the next NEAR chains."""
    found, recent = Counter(dict.fromkeys(HAZARDS, 0)), deque(maxlen=NEAR)
    for chain in chains:
        now = _use(chain)
        for before in recent:
            found.update(_meet(before, now))
        recent.append(now)
    return found


def _use(chain):
    words = [] if chain.moves or (chain.loads and not chain.builds) else chain_words(chain)
    source = INDEX[Mem(chain.source.mem)]
    reads = [(source, word.source[1]) for word in words if word.source] if chain.builds else []
    return _Use(chain, frozenset(reads), frozenset(place for word in words for place in word.writes.items()),
                frozenset(chain.tiles if chain.loads or chain.product else ()))


def _meet(before: _Use, now: _Use):
    """Kinds of hazards between two chains."""
    kinds, tiles = (before.kind, now.kind), before.tiles & now.tiles
    if now.kind == "vectors" and before.writes & now.reads:
        yield HAZARDS[0]
    if before.kind == "vectors" and before.reads & now.writes:
        yield HAZARDS[1]
    meeting = {("product", "vectors"): 2, ("vectors", "product"): 3, ("Dram", "vectors"): 4, ("vectors", "Dram"): 5,
               ("NetQ", "vectors"): 6, ("vectors", "NetQ"): 7, ("vectors", "vectors"): 8}
    if tiles and kinds in meeting:
        yield HAZARDS[meeting[kinds]]
    if not tiles and set(kinds) == {"vectors", "Dram"}:
        yield HAZARDS[9]
