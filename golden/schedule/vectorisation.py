"""Finds the words of a chain that can be computed together with the same result."""

from dataclasses import dataclass

import numpy as np
from concord.spec.chain import Chain
from concord.spec.isa import SPECS, Op
from concord.spec.memories import VRFS


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Plan:
    """Addresses of a chain's words, and spans of words that may be computed instruction by instruction.

    A *position* is iteration * words + word. A chain is defined word by word. A span of positions can be computed
    together if no word of it reads an address that another word of it writes.

    Attributes:
        addresses: int64[positions] for each instruction of the chain; int64[iterations, source_words] for the source of
                   a product; None where an instruction uses no random-access memory.
        spans:     Ranges [first, last) of positions, in order: one for the whole chain, or none beyond one iteration.
    """

    addresses: tuple[np.ndarray | None, ...]
    spans: tuple[tuple[int, int], ...]


def plan(chain: Chain) -> Plan:
    """Make the plan of a vector chain."""
    addresses = tuple(_addresses(chain, place) for place in range(len(chain.instructions)))
    total, words = chain.result_words * chain.registers.iterations, chain.result_words
    if _independent(chain, addresses, 0, total):
        return Plan(addresses=addresses, spans=((0, total),))
    spans = []
    for first in range(0, total, words):
        step = words if _independent(chain, addresses, first, first + words) else 1
        spans += [(begin, begin + step) for begin in range(first, first + words, step)]
    return Plan(addresses=addresses, spans=tuple(spans))


def _addresses(chain, place):
    instruction = chain.instructions[place]
    if _memory(instruction) not in VRFS:
        return None
    iteration = np.arange(chain.registers.iterations)[:, None]
    if place:
        addresses = instruction.a + chain.offset(instruction, iteration) + np.arange(chain.result_words)
        return np.broadcast_to(addresses, (len(iteration), chain.result_words)).reshape(-1)
    addresses = instruction.a + chain.source_offset(iteration) + np.arange(chain.source_words)
    addresses = np.broadcast_to(addresses, (len(iteration), chain.source_words))
    return addresses if chain.product else addresses.reshape(-1)


def _memory(instruction):
    return instruction.mem or SPECS[instruction.op].operand


def _independent(chain, addresses, first, last):
    """Whether the reads and writes of a span's positions are independent of their order."""
    for writing, write in enumerate(chain.instructions):
        if write.op != Op.V_WR or addresses[writing] is None:
            continue
        written = addresses[writing][first:last]
        for reading, read in enumerate(chain.instructions):
            if read.op != Op.V_WR and addresses[reading] is not None and _memory(read) == write.mem:
                positions, places = _reads(chain, addresses[reading], reading, first, last)
                if _collide(written, positions, places):
                    return False
    return True


def _reads(chain, addresses, place, first, last):
    """Positions, counted from `first`, and the addresses that they read."""
    if place or not chain.product:
        return np.arange(last - first), addresses[first:last]
    # The whole operand of a product is read before the first word of its iteration.
    begin, end = first // chain.result_words, -(-last // chain.result_words)
    positions = np.repeat(np.arange(begin, end) * chain.result_words - first, chain.source_words)
    return positions, addresses[begin:end].reshape(-1)


def _collide(written, positions, places):
    """Whether a position reads an address that an earlier position writes, so that all reads must not come first."""
    size = max(int(written.max()), int(places.max())) + 1
    order = np.arange(len(written))
    earliest = np.full(size, len(written))
    earliest[written[::-1]] = order[::-1]
    return bool((earliest[places] < positions).any())
