"""The region of Dram that a random program uses: its contents before the program, and random addresses in it."""

from dataclasses import dataclass, replace

import numpy as np
from concord.golden.host.messages import write_message
from concord.golden.schedule.dram import pack, pack_tile
from concord.sim.stimulus import random_values
from concord.spec.isa.chain import Chain
from concord.spec.isa.chain_rules import outside_writes
from concord.spec.isa.dram import entries_words, tile_words
from concord.spec.isa.instructions import BASES, LONG_BITS, Instruction, Op, Reg, encode, increment_fields
from concord.spec.isa.memories import Mem
from concord.spec.machine.config import Config
from concord.spec.numbers.formats import Format

_FREE = 128  #: Words of a region that chains read and write as they like.
_HOT = 24  #: Most addresses lie in the first of these, so that chains meet.
_FAR = 1 << 16  #: Some regions lie around this address, the first one that needs a base register.
_TILES, _ENTRIES = 3, 2  #: Packed tiles and iterations of entries of each kind that a region begins with.
_MODES = [(integer, diagonal) for integer in (False, True) for diagonal in (False, True)]


def holds_any_bits(fmt: Format) -> bool:
    """Whether any bits are mantissas and exponents of a format: only then chains read what others have written."""
    full = fmt.e_max - fmt.e_min + 1 == 1 << fmt.exponent_bits
    return full and not fmt.symmetric and not fmt.precision


@dataclass(frozen=True, kw_only=True, slots=True)
class _Slots:
    """Packed things of one kind that lie one after the other.

    Attributes:
        first: Address of the first one.
        words: Number of words of each.
        count: Number of them.
    """

    first: int
    words: int
    count: int

    def __contains__(self, address: int) -> bool:
        index, rest = divmod(address - self.first, self.words)
        return not rest and 0 <= index < self.count


class DramRegion:
    """The part of Dram that a program reads and writes: packed tiles and entries, and then words of all kinds.

    Args:
        config: Configuration of a machine with Dram.
        rng:    Source of all random choices: the region lies at the beginning, at the end, or around 2**16.

    Attributes:
        region: Addresses of the region, which messages fill before the program and read after it.
        free:   Those addresses that chains may write; only there do they read what is not packed.
        tiles:  Packed tiles, by (integer, diagonal).
        entries: Packed entries, by (entries of an iteration, integer).
    """

    def __init__(self, config: Config, rng: np.random.Generator):
        self.config, self.rng = config, rng
        sizes = {mode: (tile_words(config, integer=mode[0], diagonal=mode[1]), _TILES) for mode in _MODES}
        most = config.vectors_of(config.mfu_lanes * (3 * config.vector_words + 2)) if config.vector_rf else 0
        kinds = [(count, integer) for count in range(1, most + 1) for integer in (False, True)]
        entries = {kind: (entries_words(config, kind[0], integer=kind[1]), _ENTRIES) for kind in kinds}
        packed = sum(words * count for words, count in (*sizes.values(), *entries.values()))
        length = min(packed + _FREE, config.dram_words)
        first = int(rng.choice((0, max(0, min(_FAR, config.dram_words) - packed - _FREE // 2),
                                config.dram_words - length), p=(0.5, 0.2, 0.3)))
        first = min(first, config.dram_words - length)
        self.region, self.free = range(first, first + length), range(first + packed, first + length)
        self.tiles, self.entries = {}, {}
        for found, wanted in ((self.tiles, sizes), (self.entries, entries)):
            for kind, (words, count) in wanted.items():
                found[kind] = _Slots(first=first, words=words, count=count)
                first += words * count

    def message(self, *, wild: bool) -> bytes:
        """The message that fills the region."""
        config, rng = self.config, self.rng
        parts = []
        for (integer, diagonal), slots in self.tiles.items():
            for mantissas, exponents in zip(*random_values.tiles(config, rng, slots.count), strict=True):
                parts.append(pack_tile(config, mantissas, exponents, integer=integer, diagonal=diagonal))
        for (count, integer), slots in self.entries.items():
            for _ in range(slots.count):
                mantissas, exponents = (values[:count] for values in random_values.entries(config, rng))
                parts.append(pack(config, config.activations, mantissas, [] if integer else exponents))
        words = random_values.random_words(config, rng, len(self.free), wild=wild)
        return write_message(config, Mem.DRAM, np.concatenate([*parts, words]), self.region.start)

    def holds(self, chain: Chain) -> bool:
        """Whether a chain stays in the region, and reads only what is defined there."""
        written = [chain.result_span(instruction) for _, instruction in outside_writes(chain)]
        if any(span.start < self.free.start or span.stop > self.region.stop for span in written):
            return False
        if chain.source.mem != Mem.DRAM:
            return True
        read = chain.source_span()
        if read.start < self.region.start or read.stop > self.region.stop:
            return False
        slots = self._slots(chain)
        starts = (chain.source.a + chain.source_offset(t) for t in range(chain.registers.iterations))
        return slots is None or all(start in slots for start in starts)

    def _slots(self, chain):
        """The packed things, of which a chain must read one in each iteration; None if it may read any words."""
        config, target = self.config, chain.target
        if chain.loads and not holds_any_bits(config.weights):
            return self.tiles[bool(target.integer), bool(target.diagonal)]
        if chain.source.raw and target.mem == Mem.VECTOR_RF and not holds_any_bits(config.activations):
            return self.entries[chain.entries, bool(target.integer)]
        return None

    def address(self, length: int, *, avoid: range | None = None) -> int:
        """An address of `length` words that chains may write: often one of the first, sometimes the last."""
        rng, room = self.rng, max(0, len(self.free) - length)
        offsets = [int(rng.integers(min(room, _HOT) + 1)) if rng.random() < 0.7 else int(rng.integers(room + 1))
                  for _ in range(4)]
        if rng.random() < 0.1:
            offsets = [room]
        apart = [offset for offset in offsets if avoid is None or self.free.start + offset + length <= avoid.start
                 or self.free.start + offset >= avoid.stop]
        return self.free.start + (apart or offsets)[0]

    def packed_address(self, slots: _Slots, count: int, *, any_bits: bool) -> int:
        """An address from which `count` packed things follow each other.

        Args:
            slots:    Those that the region begins with.
            count:    Number of them, at most that of the slots.
            any_bits: Whether any other words will do, too.
        """
        if any_bits and self.rng.random() < 0.5:
            return self.address(slots.words * count)
        return slots.first + slots.words * int(self.rng.integers(slots.count - count + 1))

    def movement(self) -> Instruction:
        """An `s_wr` or an `s_add` of a base register, with a number of up to 32 bits."""
        rng, reg = self.rng, int(self.rng.choice(BASES))
        if rng.random() < 0.4:
            return _set(reg, self._near(int(rng.choice(self.free))))
        words = [slots.words for slots in (*self.tiles.values(), *self.entries.values())]
        return Instruction(op=Op.S_ADD, mem=reg, **increment_fields(int(
            rng.choice((1, -1, 2, *words, -words[0], _FAR, -_FAR, self.region.start)))))

    def based(self, instructions: list[Instruction], bases: tuple[int, ...]):
        """Give instructions that name Dram base registers, from which 16 bits reach.

        Args:
            instructions: Those of a chain; addresses in Dram have 32 bits.
            bases:        Base registers by the field `base`, before the chain.

        Returns:
            Words that set base registers before the chain, the instructions, and the base registers then.
        """
        rng, now, used, words, made = self.rng, list(bases), set(), [], []
        for instruction in instructions:
            if instruction.mem == Mem.DRAM:
                near = [k for k, value in enumerate(now) if 0 <= instruction.a - value < 1 << 16]
                if not near or rng.random() < 0.2:
                    near = [int(rng.choice([k for k in range(1, len(now)) if k not in used]))]
                    words.append(encode(self._moved(near[0], now[near[0]], value := self._near(instruction.a))))
                    now[near[0]] = value
                base = int(rng.choice(near))
                used.add(base)
                instruction = replace(instruction, a=instruction.a - now[base], base=base)
            made.append(instruction)
        return words, made, tuple(now)

    def _near(self, address):
        """A value of a base register, from which 16 bits reach an address."""
        return address - int(self.rng.choice((0, 1, self.rng.integers(12), self.rng.integers(1 << 16)))) \
            if address >= 1 << 16 else int(self.rng.integers(address + 1))

    def _moved(self, base, before, after):
        """The instruction that sets a base register, or moves it there."""
        reg, step = BASES[base - 1], after - before
        if self.rng.random() < 0.4 and -(1 << LONG_BITS - 1) <= step < 1 << LONG_BITS - 1:
            return Instruction(op=Op.S_ADD, mem=reg, **increment_fields(step))
        return _set(reg, after)


def _set(reg: Reg, value: int) -> Instruction:
    return Instruction(op=Op.S_WR, mem=reg, a=value & 0xFFFF, b=value >> 16)
