"""The header of a host message: its fields, and the rules that it must obey."""

from amaranth import *
from concord.spec.host.messages import HEADER, MessageKind
from concord.spec.isa.instructions import ADDRESS_BITS, END_BITS
from concord.spec.isa.memories import addressed, depth
from concord.spec.machine.config import Config
from concord.spec.numbers.lazy import LazyFormat


def store(m, config: Config, header, beat, place):
    """Store the fields of one beat of the header, and whether they alone make the message illegal.

    Args:
        header: Value of `message_payloads.Header`.
        beat:   The beat.
        place:  Number of the beat in the header.
    """
    fields = HEADER.size // 4
    share = min(fields, len(beat) // 32)  # number of 32-bit fields in a beat
    parts = [beat.word_select(k % share, 32) for k in range(fields)]
    kind, memory, flags, zero = (parts[0].word_select(k, 8) for k in range(4))
    stores = ([header.kind.eq(kind), header.memory.eq(memory), header.integer.eq(flags)],
              [header.address.eq(parts[1])], [header.count.eq(parts[2])], [])
    faults = (kind[4:].any() | memory[4:].any() | flags[1:].any() | zero.any(), parts[1][ADDRESS_BITS:].any(),
              Const(0), parts[3] != config.digest)
    with m.Switch(place):
        for first in range(0, fields, share):
            with m.Case(first // share):
                m.d.sync += header.wrong.eq(
                    (header.wrong if first else 0) | Cat(faults[first:first + share]).any())
                m.d.sync += stores[first:first + share]


def refused(m, config: Config, header):
    """Whether the fields of the header of 1 cycle before contradict each other: `spec.host.messages.check`."""
    sizes = {mem: depth(config, mem) for mem in addressed(config)}
    others = {MessageKind.PACKED: config.matrix_tiles, MessageKind.BIAS: config.bias_words,
              MessageKind.PROGRAM: config.instructions}
    limit = Signal(range(max(*sizes.values(), *others.values()) + 1))
    known, highest, end = Signal(), Signal.like(limit), Signal(END_BITS + 1)
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
                                     & ~header.address[8:].all())
        with m.Case(MessageKind.INPUT):
            m.d.comb += known.eq((header.memory == 0) & (header.address == 0))
    m.d.sync += [highest.eq(limit), end.eq(header.address + header.count[:END_BITS])]
    beyond = header.count[END_BITS:].any() | (end > highest)
    return (~known | (header.count == 0)
            | header.integer & (header.kind != MessageKind.PACKED)
            | beyond & (header.kind != MessageKind.INPUT) & (header.kind != MessageKind.UPDATE))
