"""Cuts the words of beats into sections, which begin and end at any word, and gives their words many at once."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2
from concord.hw.dram.burst_reader import group, words_of_beat
from concord.hw.lib.payloads import word
from concord.spec.isa.instructions import REGISTER_BITS
from concord.spec.machine.config import Config

#: The next `count` words, one at least; all that is given of them has the mark `codes`.
Section = data.StructLayout({"count": REGISTER_BITS, "codes": 1})


def block(config: Config) -> data.StructLayout:
    """As many words of a section as a beat holds; after the end of the section, which has `last`, they mean nothing."""
    words = data.ArrayLayout(word(config), words_of_beat(config))
    return data.StructLayout({"words": words, "codes": 1, "last": 1})


class SectionCutter(wiring.Component):
    """Gives the words of each section from an address of its own on: all blocks of a section but the last one are full.

    Args:
        config: The machine.

    Members:
        section: In(stream {count, codes}). Sections to come. `ready` does not depend on the other streams.
        i: In(stream {words, count, last}). Words, those of all sections one after the other. None is taken without a
            section.
        o: Out(stream {words, codes, last}). Blocks, from registers.

    Timing:
        One group of words a cycle; a group that has words of two sections takes two cycles. A section takes a cycle
        more where its last group has words for two blocks. Latency 1 cycle.
    """

    def __init__(self, config: Config):
        self.config, self.size = config, words_of_beat(config)
        super().__init__({
            "section": In(stream.Signature(Section)), "i": In(stream.Signature(group(config))),
            "o": Out(stream.Signature(block(config)))})

    def elaborate(self, platform):
        m = Module()
        # A section may begin at any word of a group. A rotation, which stays the same within a section while groups are
        # full, brings each word to its position in a block. A group fills up the present block with its first words;
        # the other ones are the beginning of the next block.
        size, i, o = self.size, self.i.p, self.o
        left, codes, busy = Signal(REGISTER_BITS), Signal(), Signal()  # words of the present section that are left
        at, filled = Signal(range(size)), Signal(range(size))  # words of the group that are used; words of the block
        rest = Signal()  # all words of the section are taken (none are left), and its last block is in `kept`
        there, take, total = Signal(range(size + 1)), Signal(range(size + 1)), Signal(range(2 * size))
        ends, all_used, over, steps, gives, ended = (Signal(name=name) for name in (
            "ends", "all_used", "over", "steps", "gives", "ended"))
        free, leaves = Signal(), Signal()
        m.d.comb += [
            there.eq(i.count - at), ends.eq(left <= there), all_used.eq(left >= there), take.eq(Mux(ends, left, there)),
            total.eq(filled + take), over.eq(total > size), gives.eq(ends | (total >= size)),
            free.eq(busy & (~o.valid | o.ready)), steps.eq(self.i.valid & free & ~rest),
            self.i.ready.eq(free & all_used), ended.eq(Mux(rest, free, steps & ends & ~over)),
            leaves.eq(Mux(rest, free, steps & gives))]
        with m.If(leaves):
            m.d.sync += [o.valid.eq(1), o.p.codes.eq(codes), o.p.last.eq(ended)]
        with m.Elif(o.ready):
            m.d.sync += o.valid.eq(0)
        with m.If(steps):
            m.d.sync += [left.eq(left - take), at.eq(Mux(all_used, 0, at + take)), filled.eq(total),
                         rest.eq(ends & over)]
        with m.If(ended):
            m.d.sync += [filled.eq(0), rest.eq(0)]
        self._blocks(m, filled, filled - at, leaves, steps & gives, steps)
        self._sections(m, left, codes, busy, ended)
        return m

    def _blocks(self, m, filled, distance, leaves, full, steps):
        """Bring words to their positions in blocks: those of groups are rotated by `distance`, modulo the size."""
        rotated = [self.i.p.words[w].as_value() for w in range(self.size)]
        for k in range(exact_log2(self.size)):
            rotated = [Mux(distance[k], rotated[w - (1 << k)], rotated[w]) for w in range(self.size)]
        for w, new in enumerate(rotated):
            kept, before = Signal(len(new), name=f"kept_{w}", reset_less=True), w < filled
            with m.If(leaves):
                m.d.sync += self.o.p.words[w].as_value().eq(Mux(before, kept, new))
            with m.If(full | (steps & ~before)):
                m.d.sync += kept.eq(new)

    def _sections(self, m, left, codes, busy, ended):
        """Begin the next section in the cycle in which one ends."""
        section, waits, kept, following = self.section, Signal(), Signal(Section), Signal(Section)
        m.d.comb += [section.ready.eq(~waits), following.eq(Mux(waits, kept.as_value(), section.p.as_value()))]
        with m.If(section.valid & section.ready):
            m.d.sync += [kept.eq(section.p), waits.eq(1)]
        with m.If(ended | ~busy):
            m.d.sync += [left.eq(following.count), codes.eq(following.codes), busy.eq(waits | section.valid),
                         waits.eq(0)]
