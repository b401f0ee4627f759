"""Which instructions of a program use which words of Dram, and how."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from concord.sim.machines.library import Access
from concord.spec.isa.chain import Chain
from concord.spec.isa.memories import Mem


@dataclass(frozen=True, slots=True, kw_only=True)
class DramAccess:
    """The access of one iteration of a chain.

    Attributes:
        address: Address of the instruction that names Dram.
        access:  What it does.
        words:   The words of Dram.
    """

    address: int
    access: Access
    words: range


def dram_accesses(chains: Iterable[Chain]) -> Iterator[DramAccess]:
    """The accesses of chains, in the order of the program."""
    for chain in chains:
        source = chain.source
        for k in range(chain.registers.iterations):
            for access in _readers(chain):
                first = source.a + chain.source_offset(k)
                yield DramAccess(address=chain.address, access=access,
                                 words=range(first, first + (chain.outside or chain.source_words)))
            for address, one in enumerate(chain.instructions[1:], chain.address + 1):
                if one.mem == Mem.DRAM:
                    first = one.a + chain.offset(one, k)
                    yield DramAccess(address=address, access=Access.WRITE,
                                     words=range(first, first + (chain.outside if one.raw else chain.result_words)))


def _readers(chain: Chain) -> tuple[Access, ...]:
    """How the source of a chain reads Dram. Entries that move have their codes read as words, exponents as tiles."""
    if chain.source.mem != Mem.DRAM:
        return ()
    if chain.loads:
        return (Access.TILES,)
    return (Access.WORDS, Access.TILES) if chain.source.raw and chain.target.mem == Mem.VECTOR_RF else (Access.WORDS,)


def blamed(accesses: Iterable[DramAccess], access: Access, words: range) -> set[int]:
    """Addresses of the instructions that may have asked for a burst of these words."""
    return {one.address for one in accesses if one.access == access
            and max(one.words.start, words.start) < min(one.words.stop, words.stop)}
