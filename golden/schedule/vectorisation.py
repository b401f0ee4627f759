"""Finds the words of a chain that can be computed together with the same result."""

from dataclasses import dataclass

import numpy as np
from concord.spec.isa.chain import Chain
from concord.spec.isa.instructions import SPECS, Op
from concord.spec.isa.memories import ADDRESSED, VRFS, Mem
from concord.spec.machine.config import Config


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class WordPlan:
    """Addresses of a chain's words, and spans of words that may be computed instruction by instruction.

    A *position* is iteration * words + word. A chain is defined word by word. A span of positions can be computed
    together if no word of it reads an address that another word of it writes.

    Attributes:
        addresses: Addresses for each instruction of the chain, None where it uses no memory with addresses.
                   int64[positions] for operands and writes of words; int64[iterations * entries] for a write of
                   VectorRf. For the source: int64[positions, pixels], for VectorRf as indices of words as
                   `VectorRf.numbers` takes them; or, for the source of a product, int64[iterations, source_words], and
                   for VectorRf int64[iterations, columns], or int64[iterations, row_tiles, columns] where row tiles
                   read different windows.
        spans:     Ranges [first, last) of positions, in order: one for the whole chain, or none beyond one iteration.
    """

    addresses: tuple[np.ndarray | None, ...]
    spans: tuple[tuple[int, int], ...]


def plan(config: Config, chain: Chain) -> WordPlan:
    """Make the plan of a vector chain."""
    addresses = tuple(_addresses(config, chain, index) for index in range(len(chain.instructions)))
    total, words = chain.result_words * chain.registers.iterations, chain.result_words
    if _independent(chain, addresses, 0, total):
        return WordPlan(addresses=addresses, spans=((0, total),))
    spans = []
    for first in range(0, total, words):
        step = words if _independent(chain, addresses, first, first + words) else 1
        spans += [(begin, begin + step) for begin in range(first, first + words, step)]
    return WordPlan(addresses=addresses, spans=tuple(spans))


def _addresses(config, chain, index):
    instruction = chain.instructions[index]
    if _memory(instruction) not in ADDRESSED:
        return None
    if index == 0:
        return _product_source(chain) if chain.product else _source(config, chain)
    count = chain.entries if _memory(instruction) == Mem.VECTOR_RF else chain.result_words
    within = np.zeros(count, np.int64) if instruction.held else np.arange(count)
    return (_starts(chain, instruction, chain.offset) + within).reshape(-1)


def _starts(chain, instruction, offset):
    """int64[iterations, 1], the address of the first word or entry of an instruction in each iteration."""
    iterations = np.arange(chain.registers.iterations)[:, None]
    return instruction.a + np.broadcast_to(offset(instruction, iterations), iterations.shape)


def _source_starts(chain):
    return _starts(chain, chain.source, lambda _, iterations: chain.source_offset(iterations))


def _product_source(chain):
    """Addresses of the operand of a product."""
    starts = _source_starts(chain)
    if not chain.from_entries:
        return starts + np.arange(chain.source_words)
    columns = np.arange(chain.registers.columns)
    if not (chain.windowed and chain.registers.window_group):
        return starts + chain.column_offset(0, columns)
    return starts[:, None] + np.stack([chain.column_offset(tile, columns) for tile in range(chain.row_tiles)])


def _source(config, chain):
    """Addresses of the words that the operations see, with all pixels of the window of each."""
    registers, pixels = chain.registers, np.zeros(1, np.int64)
    size = config.vector_words if chain.from_entries else 1  # number of words at each address
    if chain.pools:
        y, x = np.divmod(np.arange(registers.window_x * registers.window_y), registers.window_x)
        pixels = chain.pixel_offset(x, y)
    words = _source_starts(chain) * size + np.arange(chain.result_words)
    return (words[..., None] + pixels * size).reshape(-1, len(pixels))


def _memory(instruction):
    return instruction.mem or SPECS[instruction.op].operand


def _independent(chain, addresses, first, last):
    """Whether the reads and writes of a span's positions are independent of their order.

    A chain never writes what it gathers or multiplies from VectorRf: the rules refuse it.
    """
    for writing, write in enumerate(chain.instructions):
        if write.op != Op.V_WR or write.mem not in VRFS:
            continue
        written = addresses[writing][first:last]
        for reading, read in enumerate(chain.instructions):
            if read.op != Op.V_WR and _memory(read) == write.mem and not (reading == 0 and chain.gathers):
                positions, words = _reads(chain, addresses[reading], reading, first, last)
                if _collide(written, positions, words):
                    return False
    return True


def _reads(chain, addresses, index, first, last):
    """Positions, counted from `first`, and the addresses that they read."""
    if index or not chain.product:
        return np.arange(last - first), addresses[first:last].reshape(-1)
    # The whole operand of a product is read before the first word of its iteration.
    begin, end = first // chain.result_words, -(-last // chain.result_words)
    positions = np.repeat(np.arange(begin, end) * chain.result_words - first, chain.source_words)
    return positions, addresses[begin:end].reshape(-1)


def _collide(written, positions, words):
    """Whether a position reads an address that an earlier position writes, so that all reads must not come first."""
    size = max(int(written.max()), int(words.max())) + 1
    order = np.arange(len(written))
    earliest = np.full(size, len(written))
    earliest[written[::-1]] = order[::-1]
    return bool((earliest[words] < positions).any())
