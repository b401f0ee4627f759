# amaranth: UnusedElaboratable=no
"""Testbench of hw.dram.tile_unpacker against golden.schedule.dram and golden.mvm.elements."""

import random
from dataclasses import replace
from itertools import product

import cocotb
import numpy as np
from concord.golden.schedule.dram import pack_tile
from concord.hw.dram.burst_reader import words_of_beat
from concord.hw.dram.tile_unpacker import Job, TileUnpacker
from concord.hw.lib.message_payloads import packed
from concord.hw.lib.payloads import word
from concord.hw.mvm.matrix_rf import record
from concord.sim.dram.memory_models import group_packer, grouped
from concord.sim.drivers.bench import CONFIG, Packer, assert_equal, pack, stored, unpack
from concord.sim.drivers.stream import Sink, StreamSource, clock, every_cycle, start
from concord.sim.stimulus.random_values import legal
from concord.spec.isa.dram import tile_words
from concord.spec.machine.config import preset_name

CONFIGURATIONS = ("tiny", "serial", "wide", "tiny_float", "tiny_vector", "speech")
TESTED = ("serial", "wide", "speech")
#: Bytes of the bus, which has 4, 4, 1, 1, 8 and 2 words.
BUSES = {"tiny": 16, "serial": 32, "wide": 8, "tiny_float": 4, "tiny_vector": 32, "speech": 16}
MUTANTS = (  #: Lines that the campaign `mutants` breaks, one at a time: a test must fail.
    {"old": "own_group & (lane == k)", "new": "lane == k"},
    {"old": "group.all() & lane.all()", "new": "group.all()"},
    {"old": "used = self.ends & ~tile.integer", "new": "used = self.ends"},
    {"old": "codes.ready, ~self.loaded)", "new": "codes.ready, 1)"},
    {"old": "self.gearbox.skip.eq(self.ends)", "new": "self.gearbox.skip.eq(0)"},
    {"old": "self.loaded & (~known | used)", "new": "self.loaded"},
    {"old": "self.loaded & (~known | used)", "new": "self.loaded & ~known"},
    {"old": "o.p.last & final", "new": "o.p.last"},
    {"old": "Mux(tile.integer, 0, exponents[:bits])", "new": "exponents[:bits]"},
)
JOB, MODES = Packer(Job), list(product((0, 1), (0, 1)))  #: integer, diagonal.


def component(config) -> TileUnpacker:
    """An unpacker, which machines without Dram do not hold; that of the machine if it has Dram."""
    return TileUnpacker(config if config.dram_words else replace(
        config, dram_words=1 << 20, dram_bus=BUSES[preset_name(config)]))


DRAM = component(CONFIG).config
BEAT, GROUP = words_of_beat(DRAM), group_packer(DRAM)


def full(words: list[int], at: int = 0) -> list[int]:
    """Groups of the words of a range that begins at the word `at` of a beat."""
    return list(map(GROUP.join, grouped(at, words, BEAT)))


def short(words: list[int]) -> list[int]:
    """Groups of random numbers of words."""
    chance, groups = random.Random(cocotb.RANDOM_SEED), []
    while words:
        count = chance.randint(1, BEAT)
        groups, words = groups + full(words[:count]), words[count:]
    return groups


def tiles(rng, count: int, *, integer: int, diagonal: int):
    """Random tiles as mantissas [count, N, N], and stored exponents [count, N], 0 in integer mode."""
    n, fmt = CONFIG.native_dim, CONFIG.weights
    mantissas = legal(rng.integers(fmt.lowest, fmt.highest + 1, (count, n, n)), fmt)
    mantissas = mantissas * (np.eye(n, dtype=np.int64) if diagonal else 1)
    return mantissas, rng.integers(0, fmt.e_max - fmt.e_min + 1, (count, n)) * (1 - integer)


def records(tile, mantissas, exponents, integer: int) -> list[int]:
    """The records of tiles, `tile` the first."""
    count, n, groups = len(exponents), CONFIG.native_dim, CONFIG.groups
    number, row, group = (index.ravel() for index in np.indices((count, n, groups)))
    parts = pack(record(CONFIG), {"mantissas": stored(mantissas, CONFIG.weights).reshape(-1, CONFIG.lanes),
                                  "exponent": exponents.ravel().repeat(groups)})
    return pack(packed(CONFIG), {
        "tile": tile + number, "integer": 0 * number + integer, "row": row, "group": group,
        "record": np.array(parts, object), "last": (row == n - 1) & (group == groups - 1)})


def drawn(rng, modes, most: int):
    """Jobs in these modes, each with 1 to `most` tiles; their words, and the records of each job."""
    jobs, words, expected = [], [], []
    for integer, diagonal in modes:
        count, tile = int(rng.integers(1, most + 1)), int(rng.integers(1000))
        mantissas, exponents = tiles(rng, count, integer=integer, diagonal=diagonal)
        jobs.append(JOB.join({"tile": tile, "integer": integer, "diagonal": diagonal, "count": count}))
        for pair in zip(mantissas, exponents, strict=True):
            words += pack(word(CONFIG), pack_tile(CONFIG, *pair, integer=bool(integer), diagonal=bool(diagonal)))
        expected.append(records(tile, mantissas, exponents, integer))
    return jobs, words, expected


@cocotb.test(timeout_time=200, timeout_unit="us")
@cocotb.parametrize(stall=[(0.0, 0.0), (0.6, 0.0), (0.0, 0.6), (0.3, 0.3)], number=[0, 1, 3, 100])
async def records_are_those_of_golden(dut, stall, number):
    """Jobs of all modes in random order, from any word of a beat on; each is done after its last record."""
    rng = np.random.default_rng(cocotb.RANDOM_SEED)
    sources = {name: StreamSource(dut, name, stall=stall[0]) for name in ("job", "i")}
    sink, done = Sink(dut, "o", stall=stall[1]), []
    await start(dut)
    modes = [MODES[k] for k in rng.permutation(np.arange(40) % 4)]
    jobs, words, expected = drawn(rng, modes, 3)
    ends = np.cumsum([len(each) for each in expected]).tolist()
    taken = 0

    def watch():
        nonlocal taken
        if dut.done.value:
            done.append(taken)
        taken += int(dut.o__valid.value and dut.o__ready.value)

    every_cycle(dut, watch)
    sources["job"].put(*jobs)
    sources["i"].put(*(full(words, number) if number < BEAT else short(words)))
    found = await sink.receive(ends[-1])
    wanted = sum(expected, [])
    if found != wanted:
        assert_equal("records", unpack(packed(CONFIG), found), unpack(packed(CONFIG), wanted))
    await clock(dut, 2)
    assert done == ends


@cocotb.test(timeout_time=200, timeout_unit="us")
@cocotb.parametrize(mode=MODES)
async def one_record_a_cycle(dut, mode):
    """Neighbouring tiles lose no cycle, whether words or records are the limit; but two where beats are shared."""
    rng, (integer, diagonal) = np.random.default_rng(cocotb.RANDOM_SEED), mode
    sink, count = Sink(dut, "o"), 12
    sources = {name: StreamSource(dut, name) for name in ("job", "i")}
    await start(dut)
    jobs, words, expected = drawn(rng, [mode] * count, 1)
    sources["job"].put(*jobs)
    sources["i"].put(*full(words))
    words, cycles = tile_words(CONFIG, integer=bool(integer), diagonal=bool(diagonal)), 0
    parts = words, words - tile_words(CONFIG, integer=True, diagonal=bool(diagonal))  # all; stored exponents
    size, shared = -(-words // BEAT), any(part % BEAT for part in parts)
    while len(sink.queue) < sum(map(len, expected)):
        await clock(dut)
        cycles += 1
    dut._log.info("mode %s: %d groups, %d records, %.2f cycles", mode, size, len(expected[0]), cycles / count)
    assert cycles <= 10 + (max(size, len(expected[0])) + 2 * shared) * count


@cocotb.test(timeout_time=200, timeout_unit="us")
async def takes_no_word_without_a_job(dut):
    """Words wait for their job, also after an earlier one."""
    rng = np.random.default_rng(cocotb.RANDOM_SEED)
    sources = {name: StreamSource(dut, name) for name in ("job", "i")}
    sink = Sink(dut, "o")
    await start(dut)
    jobs, words, expected = zip(*(drawn(rng, [mode], 2) for mode in MODES), strict=True)
    sources["i"].put(*sum(map(short, words), []))
    for job, wanted in zip(jobs, expected, strict=True):
        before = len(sources["i"].queue)
        await clock(dut, 20)
        assert len(sources["i"].queue) == before
        sources["job"].put(*job)
        assert await sink.receive(len(wanted[0])) == wanted[0]
