"""Numbers of words of Dram that packed tiles, entries and integers fill: `spec.isa.dram` in hardware."""

from itertools import product

from amaranth import *
from amaranth.utils import exact_log2
from concord.spec.isa import dram
from concord.spec.machine.config import Config


def tile_words(config: Config, integer, diagonal):
    """Number of words of a native tile; `integer` and `diagonal` are bits."""
    sizes = [[dram.tile_words(config, integer=bool(i), diagonal=bool(d)) for i in range(2)] for d in range(2)]
    return Mux(diagonal, Mux(integer, sizes[1][1], sizes[1][0]), Mux(integer, sizes[0][1], sizes[0][0]))


def tiles_span(m, config: Config, tiles, integer, diagonal):
    """Words from the first of the tiles of a chain to its last one; it follows the number of tiles two cycles later.

    The spans in all modes are registers, so that the mode chooses at once.
    """
    steps, spans = Signal.like(tiles), [[], []]
    m.d.sync += steps.eq(tiles - 1)
    for d, i in product(range(2), range(2)):
        words = dram.tile_words(config, integer=bool(i), diagonal=bool(d))
        spans[d].append(Signal(len(tiles) + words.bit_length(), name=f"tiles_span{d}{i}"))
        m.d.sync += spans[d][i].eq(_times(steps, words))
    return Mux(diagonal, Mux(integer, spans[1][1], spans[1][0]), Mux(integer, spans[0][1], spans[0][0]))


def entries_words(config: Config, entries, integer):
    """Number of words of this many entries of VectorRf."""
    return Mux(integer, 0, exponents_words(config, entries)) + codes_words(config, entries)


def exponents_words(config: Config, entries):
    """Number of words of the stored exponents of this many entries."""
    return _words(config, _times(entries, config.activations.exponent_bits))


def codes_words(config: Config, entries):
    """Number of words of the codes of this many entries."""
    return _words(config, _times(entries, config.native_dim * config.activations.code_bits))


def _times(value, factor: int):
    """A product with a constant that has few bits."""
    return sum((value << k for k in range(factor.bit_length()) if factor >> k & 1), Const(0))


def _words(config, bits):
    """Number of words that hold this many bits."""
    size = 16 * config.mfu_lanes
    return (bits + size - 1) >> exact_log2(size)
