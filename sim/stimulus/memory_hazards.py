"""Counts pairs of chains, close to each other in a program, whose uses of a memory meet, and of which one writes.

The order of such a pair can be seen in the result, so the machine must keep it. That of two reads cannot be seen, and
they are no pair. Neither are uses that never come in that order: the host writes before a program and reads after it.
"""

from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product

from concord.spec.isa.chain import Chain
from concord.spec.isa.instructions import SPECS, Op
from concord.spec.isa.memories import VRFS, Mem

NEAR = 4  #: Chains after a chain that may run while it does.
HOST_WRITES, HOST_READS = "written by the host", "read by the host"

#: Ways to use a memory, and whether they write. "raw" is what moves as it is.
USES: dict[str, dict[str, bool]] = {
    "Dram": {"words read": False, "words written": True, "tiles read": False, "raw read": False, "raw written": True,
             HOST_WRITES: True, HOST_READS: False},
    "MatrixRf": {"product": False, "tiles from Dram": True, "tiles from vectors": True, "tiles from NetQ": True,
                 HOST_WRITES: True},
    "vector memories": {"words read": False, "words written": True, "vectors of tiles": False},
    "VectorRf": {"entries read": False, "entries written": True, "raw read": False, "raw written": True},
    "BiasRf": {"biases of a product": False, "raw written": True}}

#: Pairs as (memory, older use, younger use).
PAIRS = tuple((memory, older, younger) for memory, uses in USES.items() for older, younger in product(uses, repeat=2)
              if (uses[older] or uses[younger]) and older != HOST_READS and younger != HOST_WRITES
              and (older, younger) != (HOST_WRITES, HOST_READS))

#: Loads of different tiles, which may run beside each other.
BESIDE = ("MatrixRf", "tiles from vectors", "other tiles from Dram")


@dataclass(frozen=True, slots=True)
class _Use:
    """A way in which a chain uses a memory, and (memory, address) of each word; None is all words."""

    memory: str
    way: str
    words: frozenset[tuple[int, int]] | None

    def meets(self, other: "_Use") -> bool:
        """Whether both use a word of one memory."""
        return self.memory == other.memory and (
            self.words is None or other.words is None or not self.words.isdisjoint(other.words))


_BEFORE = [_Use("Dram", HOST_WRITES, None), _Use("MatrixRf", HOST_WRITES, None)]
_AFTER = [_Use("Dram", HOST_READS, None)]


def memory_hazards(chains: Iterable[Chain]) -> Counter[tuple[str, str, str]]:
    """Number of pairs of each kind of `PAIRS`, and of `BESIDE`, in a program that the host surrounds with messages.

    The younger chain is one of the next NEAR chains.
    """
    found, recent = Counter(dict.fromkeys((*PAIRS, BESIDE), 0)), deque([_BEFORE], NEAR)
    for uses in (*map(list, map(_uses, chains)), _AFTER):
        for before in recent:
            found.update(_meeting(before, uses))
            found[BESIDE] += _beside(before, uses)
        recent.append(uses)
    return Counter({pair: found[pair] for pair in (*PAIRS, BESIDE)})


def _meeting(before: list[_Use], uses: list[_Use]) -> set[tuple[str, str, str]]:
    return {(old.memory, old.way, now.way) for old, now in product(before, uses) if old.meets(now)}


def _beside(before: list[_Use], uses: list[_Use]) -> bool:
    """Whether one makes tiles of vectors, and the other one loads different tiles from Dram."""
    tiles = {use.way: use for use in (*before, *uses) if use.memory == "MatrixRf"}
    ways = [tiles.get(name) for name in ("tiles from vectors", "tiles from Dram")]
    return all(ways) and not ways[0].meets(ways[1])


def _uses(chain: Chain) -> Iterator[_Use]:
    """How a chain uses memories with addresses."""
    if chain.loads or chain.product:
        way = {Mem.DRAM: "Dram", Mem.NET_Q: "NetQ"}.get(Mem(chain.source.mem), "vectors")
        yield _Use("MatrixRf", f"tiles from {way}" if chain.loads else "product", _words(Mem.MATRIX_RF, chain.tiles))
    if chain.product and chain.product.bias:
        first = chain.product.b
        yield _Use("BiasRf", "biases of a product", _words(Mem.BIAS_RF, range(first, first + chain.result_words)))
    yield from _source(chain)
    turns = range(chain.registers.iterations)
    for instruction in chain.instructions[1:]:
        written = instruction.op == Op.V_WR
        mem = Mem(instruction.mem) if written else SPECS[instruction.op].operand
        way = ("raw" if chain.moves else _WORDS.get(mem)) if mem in _MEMORIES else None
        if way:
            first = [instruction.a + chain.offset(instruction, k) for k in turns]
            count = len(chain.result_span(instruction)) - (first[-1] - first[0])
            yield _Use(_MEMORIES[mem], f"{way} {'written' if written else 'read'}", frozenset(
                (mem, start + k) for start in first for k in range(count)))


def _source(chain):
    mem = Mem(chain.source.mem)
    if mem in _MEMORIES:
        way = "vectors of tiles" if chain.builds else "tiles read" if chain.loads else (
            f"{'raw' if chain.moves else _WORDS[mem]} read")
        yield _Use(_MEMORIES[mem], way, frozenset(
            (mem, chain.source.a + chain.source_offset(turn) + k)
            for turn in range(chain.registers.iterations) for k in range(chain.source_extent)))


_MEMORIES = {Mem.DRAM: "Dram", Mem.VECTOR_RF: "VectorRf", Mem.BIAS_RF: "BiasRf",
             **dict.fromkeys(VRFS, "vector memories")}
_WORDS = {Mem.VECTOR_RF: "entries", **dict.fromkeys((*VRFS, Mem.DRAM), "words")}


def _words(memory: Mem, addresses: range) -> frozenset[tuple[int, int]]:
    return frozenset((memory, address) for address in addresses)
