"""The header of a host message: its fields, and the rules that it must obey."""

from amaranth import *
from concord.hw.lib.message_payloads import NUMBER
from concord.spec.host.messages import HEADER, MessageKind
from concord.spec.isa.instructions import END_BITS
from concord.spec.isa.memories import addressed, depth
from concord.spec.machine.config import Config
from concord.spec.numbers.lazy import LazyFormat


def check_cycles(config: Config) -> int:
    """Cycles from the last beat of a header to the verdict of `refused` in a register.

    With Dram, the sum of an address and a count has 33 bits: its comparison takes a cycle of its own.
    """
    return 3 if config.dram_words else 2


def store(m, config: Config, header, beat, index):
    """Store the fields of one beat of the header, and whether they alone make the message illegal.

    Args:
        header: Value of `message_payloads.header`.
        beat:   The beat.
        index:  Number of the beat in the header.
    """
    fields = HEADER.size // 4
    share = min(fields, len(beat) // 32)  # number of 32-bit fields in a beat
    parts = [beat.word_select(k % share, 32) for k in range(fields)]
    kind, memory, flags, zero = (parts[0].word_select(k, 8) for k in range(4))
    stores = ([header.kind.eq(kind), header.memory.eq(memory), header.integer.eq(flags)],
              [header.address.eq(parts[1])], [header.count.eq(parts[2])], [])
    faults = (kind[4:].any() | memory[4:].any() | flags[1:].any() | zero.any(), parts[1][len(header.address):].any(),
              Const(0), parts[3] != config.digest)
    with m.Switch(index):
        for first in range(0, fields, share):
            with m.Case(first // share):
                m.d.sync += header.wrong.eq(
                    (header.wrong if first else 0) | Cat(faults[first:first + share]).any())
                m.d.sync += stores[first:first + share]


def refused(m, config: Config, header):
    """Whether the fields of a header contradict each other: `spec.host.messages.check`.

    The header has been there for `check_cycles` - 1 cycles.
    """
    sizes = {mem: depth(config, mem) for mem in addressed(config)}
    others = {MessageKind.PACKED: config.matrix_tiles, MessageKind.BIAS: config.bias_words,
              MessageKind.PROGRAM: config.instructions}
    limit = Signal(range(max(*sizes.values(), *others.values()) + 1))
    summed = NUMBER if config.dram_words else END_BITS  # low bits of a count that make the end; others are beyond it
    known, highest, end = Signal(), Signal.like(limit), Signal(summed + 1)
    with m.Switch(header.kind):
        with m.Case(MessageKind.WRITE, MessageKind.READ):
            with m.Switch(header.memory):
                for mem, size in sizes.items():
                    with m.Case(mem):
                        m.d.comb += [known.eq(1), limit.eq(size)]
        for kind, size in others.items():
            with m.Case(kind):
                m.d.comb += [known.eq(header.memory == 0), limit.eq(size)]
        if config.lazy_update:
            with m.Case(MessageKind.UPDATE):
                m.d.comb += known.eq((header.memory < LazyFormat().changes[-1] + 2) & ~header.address[:8].all()
                                     & ~header.address[8:16].all())
                if config.dram_words:
                    with m.If(header.address[16:].any()):
                        m.d.comb += known.eq(0)
        with m.Case(MessageKind.INPUT):
            m.d.comb += known.eq((header.memory == 0) & (header.address == 0))
    m.d.sync += [highest.eq(limit), end.eq(header.address + header.count[:summed])]
    if config.dram_words:
        beyond = Signal()
        m.d.sync += beyond.eq(end > highest)
    else:
        beyond = header.count[END_BITS:].any() | (end > highest)
    return (~known | (header.count == 0)
            | header.integer & (header.kind != MessageKind.PACKED)
            | beyond & (header.kind != MessageKind.INPUT) & (header.kind != MessageKind.UPDATE))
