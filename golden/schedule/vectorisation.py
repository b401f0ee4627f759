"""Which words of a chain may be computed at once without anybody being able to tell."""

from dataclasses import dataclass

import numpy as np
from concord.spec.chain import Chain
from concord.spec.isa import SPECS, Op
from concord.spec.memories import VRFS


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Plan:
    """Addresses of a chain's words, and spans of words that may be computed instruction by instruction.

    A *position* is iteration * words + word. The chain means word by word; a span of positions gives the same result
    when no word reads what another word of the span has written, or would have written later.

    Attributes:
        addresses: By place in the chain, int64[positions]; of the source of a product int64[iterations, source_words].
                   None where an instruction uses no random-access memory.
        spans:     [first, last) positions, in order: all at once, or none beyond one iteration.
    """

    addresses: tuple[np.ndarray | None, ...]
    spans: tuple[tuple[int, int], ...]


def plan(chain: Chain) -> Plan:
    """The plan of a vector chain."""
    addresses = tuple(_addresses(chain, place) for place in range(len(chain.instructions)))
    total, words = chain.words * chain.registers.iterations, chain.words
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
        addresses = instruction.a + chain.offset(instruction, iteration) + np.arange(chain.words)
        return np.broadcast_to(addresses, (len(iteration), chain.words)).reshape(-1)
    addresses = instruction.a + chain.source_offset(iteration) + np.arange(chain.source_words)
    addresses = np.broadcast_to(addresses, (len(iteration), chain.source_words))
    return addresses if chain.product else addresses.reshape(-1)


def _memory(instruction):
    return instruction.mem or SPECS[instruction.op].operand


def _independent(chain, addresses, first, last):
    """Whether no position of a span reads what another one writes before it, or has read before that is written."""
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
    # An operand is read whole in front of its iteration's first word.
    begin, end = first // chain.words, -(-last // chain.words)
    positions = np.repeat(np.arange(begin, end) * chain.words - first, chain.source_words)
    return positions, addresses[begin:end].reshape(-1)


def _collide(written, positions, places):
    """Whether doing all writes after all reads differs from word by word, where a word is read before it is written."""
    size = max(int(written.max()), int(places.max())) + 1
    order = np.arange(len(written))
    earliest = np.full(size, len(written))
    earliest[written[::-1]] = order[::-1]
    return bool((earliest[places] < positions).any())
