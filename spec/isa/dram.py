"""How tiles, entries and integers lie in the words of Dram, the memory outside the chip.

A word has M numbers of 16 bits, bit 0 of the first number first. Everything begins at a word and fills whole words,
with zeros at the end:

- A tile is N stored exponents, unless it is in integer mode, then its N * N codes row by row; of a diagonal tile, only
  the N codes of its diagonal.
- The entries of one iteration are their stored exponents, unless they are in integer mode, then N codes for each.
- A word of BiasRf is M integers of 32 bits in two words.

Exponents begin a word, and codes begin a word; within, `exponent_bits` and `code_bits` of the format follow each other
without gaps.
"""

from concord.spec.machine.config import Config
from concord.spec.numbers.formats import Format


def words_of_bits(config: Config, bits: int) -> int:
    """Number of words that hold `bits` bits."""
    return -(-bits // (16 * config.mfu_lanes))


def packed_words(config: Config, fmt: Format, exponents: int, codes: int) -> int:
    """Number of words of this many stored exponents, and then codes, of a format."""
    return words_of_bits(config, exponents * fmt.exponent_bits) + words_of_bits(config, codes * fmt.code_bits)


def tile_words(config: Config, *, integer: bool = False, diagonal: bool = False) -> int:
    """Number of words of a native tile."""
    n = config.native_dim
    return packed_words(config, config.weights, 0 if integer else n, n if diagonal else n * n)


def entries_words(config: Config, entries: int, *, integer: bool = False) -> int:
    """Number of words of the entries of one iteration."""
    return packed_words(config, config.activations, 0 if integer else entries, entries * config.native_dim)


def bias_words(words: int) -> int:
    """Number of words of Dram of this many words of BiasRf."""
    return 2 * words
