"""The memories of a machine, and how Yosys builds them on an ECP5: of block RAM, or of LUT4."""

from collections.abc import Iterator
from dataclasses import dataclass

from amaranth.utils import bits_for
from concord.spec.isa.instructions import WORD
from concord.spec.isa.memories import VRFS, depth
from concord.spec.machine.config import Config

#: Widest words and depths of one block RAM.
_SHAPES = ((36, 512), (18, 1024), (9, 2048), (4, 4096), (2, 8192), (1, 16384))
#: Yosys counts a block RAM as 128 and distributed RAM of 16 words of 4 bits as 4, and adds what surrounds the latter.
_BLOCK, _DISTRIBUTED = 128, 4 * 1.3
_MULTIPLEXER = 0.7  #: LUT4 for each bit of a word and each 16 words after the first, in distributed RAM.
_REMAINING = 16  #: Bits of the queue to the host beside its words.


@dataclass(frozen=True, kw_only=True, slots=True)
class Ram:
    """Equal memories of one unit.

    Attributes:
        unit:  Name of the unit, as in `hw.units`.
        bits:  Number of bits of a word.
        depth: Number of words.
        count: Number of memories; one that is read at two addresses at once counts twice.
    """

    unit: str
    bits: int
    depth: int
    count: int = 1

    @property
    def block_ram(self) -> int:
        """Number of block RAMs; 0 where distributed RAM is cheaper."""
        blocks = min(-(-self.bits // width) * -(-self.depth // depth) for width, depth in _SHAPES)
        cells = -(-self.depth // 16) * -(-self.bits // 4)
        return blocks * self.count if blocks * _BLOCK <= cells * _DISTRIBUTED else 0

    @property
    def lut4(self) -> float:
        """Number of LUT4; 0 in block RAM."""
        if self.block_ram:
            return 0
        banks = -(-self.depth // 16)
        return self.count * (4 * banks * -(-self.bits // 4) + _MULTIPLEXER * self.bits * (banks - 1))


def memories(config: Config) -> Iterator[Ram]:
    """All memories of a machine that can be block RAM."""
    engines, word = config.tile_engines, 16 * config.mfu_lanes
    for mem in VRFS:  # one that feeds a stage has a port for operands, too
        yield Ram(unit="vector_memories", bits=word, depth=depth(config, mem), count=2 if mem.feeds else 1)
    tiles = config.matrix_tiles // engines
    yield Ram(unit="matrix_rf", bits=config.lanes * config.weights.code_bits + config.weights.exponent_bits,
              depth=tiles * config.groups, count=engines * config.native_dim)
    yield Ram(unit="matrix_rf", bits=bits_for(config.groups), depth=tiles, count=engines)
    if config.vector_rf:  # an entry is written word by word, each with its share of the exponent
        share = -(-config.activations.exponent_bits // config.vector_words)
        yield Ram(unit="vector_rf", bits=config.mfu_lanes * config.activations.code_bits + share,
                  depth=config.vector_rf // engines, count=engines * config.vector_words)
    yield Ram(unit="bias_rf", bits=config.mfu_lanes * config.bias_bits, depth=config.bias_words)
    yield from _operands(config)
    yield Ram(unit="mvm", bits=word, depth=config.mvmq_words)
    yield Ram(unit="net_in", bits=word, depth=config.net_in)
    yield Ram(unit="net_out", bits=word + _REMAINING, depth=config.net_out)
    yield Ram(unit="instruction_fetch", bits=WORD, depth=config.instructions)
    yield Ram(unit="mfu_pipeline", bits=36, depth=2048 if config.more_functions else 512,
              count=2 * config.mfu_lanes)  # tables of activation functions
    yield Ram(unit="counters", bits=36, depth=64)
    if config.dram_words:  # beats that were read, for words and for tiles, and words to write
        yield Ram(unit="dram_port", bits=8 * config.dram_bus, depth=512, count=2)
        yield Ram(unit="dram_port", bits=word, depth=512)
        yield Ram(unit="tile_builder", bits=16, depth=2 * config.native_dim * config.vector_words,
                  count=config.mfu_lanes)
    if config.softmax_words:  # the table of exp, and the message
        yield Ram(unit="softmax", bits=27, depth=128)
        yield Ram(unit="softmax", bits=word, depth=config.softmax_words)


def _operands(config: Config) -> Iterator[Ram]:
    """Both halves of the operand buffer, for each engine."""
    row = max(config.lanes, config.mfu_lanes)
    steps = 1 << (-(-config.operand_columns // config.tile_engines) - 1).bit_length()
    yield Ram(unit="operand_buffer", bits=config.activations.code_bits * row,
              depth=config.native_dim // row * 2 * steps, count=config.tile_engines)
    yield Ram(unit="operand_buffer", bits=config.activations.exponent_bits, depth=2 * steps, count=config.tile_engines)
