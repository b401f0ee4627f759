# amaranth: UnusedElaboratable=no
"""Testbench of hw.dram.section_cutter: all words of all sections in full blocks, whatever the groups hold."""

import random
from dataclasses import replace

import cocotb
from concord.hw.dram.burst_reader import words_of_beat
from concord.hw.dram.section_cutter import Section, SectionCutter
from concord.sim.dram.memory_models import group_packer, grouped
from concord.sim.drivers.bench import CONFIG, Packer
from concord.sim.drivers.stream import Sink, StreamSource, clock, start
from concord.spec.machine.config import preset_name

TESTED = ("tiny", "serial", "wide")
BUSES = {"tiny": 16, "serial": 64, "wide": 8}  #: Bytes of the bus, which has 4, 8 and 1 words.
MUTANTS = (  #: Lines that the campaign `mutants` breaks, one at a time: a test must fail.
    {"old": "all_used.eq(left >= there)", "new": "all_used.eq(left > there)"},
    {"old": "over.eq(total > size)", "new": "over.eq(0)"},
    {"old": "with m.If(full | (steps & ~before)):", "new": "with m.If(steps & ~before):"},
    {"old": "with m.If(full | (steps & ~before)):", "new": "with m.If(steps):"},
    {"old": "Mux(before, kept, new)", "new": "new"},
    {"old": "m.d.sync += [filled.eq(0), rest.eq(0)]", "new": "m.d.sync += rest.eq(0)"},
    {"old": "codes.eq(following.codes)", "new": "codes.eq(section.p.codes)"},
    {"old": "section.ready.eq(~waits)", "new": "section.ready.eq(1)"},
)


def component(config) -> SectionCutter:
    """A cutter for buses of several words, or of one; that of the machine if it has Dram."""
    return SectionCutter(config if config.dram_words else replace(
        config, dram_words=1 << 20, dram_bus=BUSES[preset_name(config)]))


DRAM = component(CONFIG).config
BEAT, BITS = words_of_beat(DRAM), 16 * CONFIG.mfu_lanes
SECTION, GROUP = Packer(Section), group_packer(DRAM)


def drawn(chance: random.Random, sizes: list[int]):
    """Sections of these sizes, their words, and what is known of their blocks: pairs of words, and marks."""
    sections, words, blocks = [], [], []
    for size in sizes:
        own, codes = [chance.getrandbits(BITS) for _ in range(size)], chance.randrange(2)
        sections.append(SECTION.join({"count": size, "codes": codes}))
        blocks += [(own[k:k + BEAT], codes, int(k + BEAT >= size)) for k in range(0, size, BEAT)]
        words += own
    return sections, words, blocks


def check(found: list[int], blocks) -> None:
    """Compare blocks; words behind the end of a section mean nothing."""
    for payload, (words, codes, last) in zip(found, blocks, strict=True):
        assert payload >> BEAT * BITS == codes + 2 * last
        assert [payload >> k * BITS & (1 << BITS) - 1 for k in range(len(words))] == words


@cocotb.test(timeout_time=100, timeout_unit="us")
@cocotb.parametrize(stall=[(0.0, 0.0, 0.0), (0.5, 0.0, 0.0), (0.0, 0.5, 0.0), (0.0, 0.0, 0.5), (0.3, 0.3, 0.3)])
async def words_come_in_order(dut, stall):
    """Random sections, short ones and long ones, in groups that end anywhere."""
    chance = random.Random(cocotb.RANDOM_SEED)
    sources = {name: StreamSource(dut, name, stall=part) for name, part in zip(("section", "i"), stall, strict=False)}
    sink = Sink(dut, "o", stall=stall[2])
    await start(dut)
    sections, words, blocks = drawn(chance, [chance.choice((1, 2, 3, BEAT, BEAT + 1, 7, 20, 41)) for _ in range(200)])
    sources["section"].put(*sections)
    at = 0
    while at < len(words):
        count = chance.choice((BEAT, BEAT, 1, chance.randint(1, BEAT)))
        sources["i"].put(*map(GROUP.join, grouped(0, words[at:at + count], BEAT)))
        at += count
    check(await sink.receive(len(blocks)), blocks)


@cocotb.test(timeout_time=100, timeout_unit="us")
@cocotb.parametrize(size=[17, 64, 67])
async def one_group_a_cycle(dut, size):
    """Full groups: a section loses at most two cycles; none where it begins and ends with a group."""
    source, sink, section = StreamSource(dut, "i"), Sink(dut, "o"), StreamSource(dut, "section")
    await start(dut)
    sections, words, blocks = drawn(random.Random(cocotb.RANDOM_SEED), 20 * [size])
    groups = grouped(0, words, BEAT)
    section.put(*sections)
    source.put(*map(GROUP.join, groups))
    cycles = 0
    while len(sink.queue) < len(blocks):
        await clock(dut)
        cycles += 1
    assert cycles <= 10 + len(groups) + 2 * len(sections) * (size % BEAT > 0)
    check(sink.queue, blocks)


@cocotb.test(timeout_time=100, timeout_unit="us")
async def takes_no_word_without_a_section(dut):
    """Words wait for their section, also those behind the end of an earlier one in the same group."""
    source, sink, section = StreamSource(dut, "i"), Sink(dut, "o"), StreamSource(dut, "section")
    await start(dut)
    sections, words, blocks = drawn(random.Random(cocotb.RANDOM_SEED), [1, 2, 5, BEAT, 4])
    source.put(*map(GROUP.join, grouped(0, words, BEAT)))
    for one in sections:
        await clock(dut, 20)
        before = len(source.queue)
        await clock(dut, 20)
        assert len(source.queue) == before
        section.put(one)
    check(await sink.receive(len(blocks)), blocks)
