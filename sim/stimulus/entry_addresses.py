"""Addresses of entries and pixels that chains read and write, in order."""

from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

import numpy as np
from concord.spec.isa.chain import Chain
from concord.spec.isa.instructions import Op
from concord.spec.isa.memories import Mem


class Pixel(NamedTuple):
    """One word of one pixel.

    Attributes:
        iteration: Number of the iteration.
        word:      Number of the word of the chain within the iteration.
        address:   Address of the word, or of the entry.
        part:      Number of the word within its entry; 0 in a vector memory.
        first:     Whether the pixel is the first of its window.
        last:      Whether the pixel is the last of its window.
    """

    iteration: int
    word: int
    address: int
    part: int
    first: bool
    last: bool


def pixels(chain: Chain, vector_words: int) -> Iterator[Pixel]:
    """Yield the pixels that a chain gathers; `vector_words` is the number of words of an entry."""
    r, in_entries = chain.registers, chain.source.mem == Mem.VECTOR_RF
    window = [(x, y) for y in range(r.window_y) for x in range(r.window_x)] if chain.pools else [(0, 0)]
    for iteration, word in product(range(r.iterations), range(chain.result_words)):
        offset, part = divmod(word, vector_words) if in_entries else (word, 0)
        for number, place in enumerate(window):
            address = chain.source.a + chain.source_offset(iteration) + offset + chain.pixel_offset(*place)
            yield Pixel(iteration, word, address, part, number == 0, number == len(window) - 1)


def columns(chain: Chain) -> np.ndarray:
    """Addresses int64[iterations, row_tiles, columns] of the columns of a product from VectorRf."""
    r = chain.registers
    return np.array([[[
        chain.source.a + chain.source_offset(iteration) + chain.column_offset(row_tile, column)
        for column in range(r.columns)] for row_tile in range(chain.row_tiles)] for iteration in range(r.iterations)])


def written_entries(chain: Chain, vector_words: int) -> dict[tuple[int, int], int]:
    """The address of the entry that each word completes, by (iteration, index of the word); empty if it writes none."""
    found = {}
    for instruction in chain.instructions:
        if instruction.op == Op.V_WR and instruction.mem == Mem.VECTOR_RF:
            for iteration, entry in product(range(chain.registers.iterations), range(chain.entries)):
                last = min((entry + 1) * vector_words, chain.result_words) - 1
                found[iteration, last] = instruction.a + chain.offset(instruction, iteration) + entry
    return found
