"""Testbench of hw.dram.range_walker: ranges of random chains have the words of `spec.isa.chain`, in order."""

import random

import cocotb
from concord.hw.dram.burst_reader import Range
from concord.hw.dram.range_walker import ENOUGH, RangeWalker, Walk
from concord.sim.drivers.bench import CONFIG, Packer
from concord.sim.drivers.stream import Sink, StreamSource, clock, moments, start
from concord.spec.machine.config import preset_name

CONFIGURATIONS = ("tiny", "serial")  #: Chains with strides, and tiles.
TESTED = ("tiny", "serial")
MUTANTS = (  #: Lines that the campaign `mutants` breaks, one at a time: a test must fail.
    {"old": "return last | ~joined", "new": "return ~joined"},
    {"old": "(total >> ENOUGH).any()", "new": "0"},
    {"old": "joined.eq(job.inc & (", "new": "joined.eq(("},
    {"old": "return ~job.inc", "new": "return 0", "config": "serial"},
    {"old": "with m.If(~open_):", "new": "with m.If(1):"},
    {"old": "Mux(last, row, at)", "new": "at"},
)


MOST = {"serial": 300}  #: Most words of an iteration, by the preset whose runs have tiles.


def component(config) -> RangeWalker:
    """A walker of this run."""
    return RangeWalker(MOST.get(preset_name(config), 0))


WALK, RANGE, TILES = Packer(Walk), Packer(Range), preset_name(CONFIG) in MOST


def drawn(chance: random.Random) -> dict:
    """A chain whose iterations may follow each other along x, or from row to row."""
    x, y, words = chance.choice((1, 2, 5, 70)), chance.choice((1, 2, 3)), chance.choice((1, 2, 7, 100, 300))
    strides = {"stride_x": chance.choice((0, words, words, words + 1)),
               "stride_y": chance.choice((0, x * words, 65535))}
    if TILES:
        x, y, strides = x * y, 1, {"stride_x": words, "stride_y": 0}
    return {"first": chance.randrange(1 << 20), "inc": chance.randrange(4) > 0, "words": words, **strides,
            "tag": chance.randrange(99), "iterations": x * y, "iterations_x": x}


def words_of(walk: dict) -> list[int]:
    """The words of a chain, in order."""
    starts = [walk["first"] + walk["inc"] * (k % walk["iterations_x"] * walk["stride_x"]
                                             + k // walk["iterations_x"] * walk["stride_y"])
              for k in range(walk["iterations"])]
    return [begin + k for begin in starts for k in range(walk["words"])]


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(stall=[0.0, 0.5])
async def has_the_words_of_chains(dut, stall):
    """Every word once and in order, the last range of each chain marked, none much longer than needed."""
    chance = random.Random(cocotb.RANDOM_SEED)
    source, sink = StreamSource(dut, "i", stall=stall), Sink(dut, "o", stall=stall)
    await start(dut)
    walks = [drawn(chance) for _ in range(150)]
    source.put(*map(WALK.join, walks))
    for walk in walks:
        found, last = [], False
        while not last:
            one, = map(RANGE.of, await sink.receive(1))
            assert one["tag"] == walk["tag"]
            assert one["count"] < walk["words"] + (1 << ENOUGH)
            found += range(one["first"], one["first"] + one["count"])
            last = one["last"]
        assert found == words_of(walk), walk
    await clock(dut, 200)
    assert not sink.queue


@cocotb.test(timeout_time=1, timeout_unit="ms", skip=TILES)
async def an_iteration_a_cycle(dut):
    """A chain of single words that do not follow each other."""
    source, _ = StreamSource(dut, "i"), Sink(dut, "o")
    await start(dut)
    source.put(WALK.join({"first": 7, "inc": 1, "words": 1, "iterations": 50, "iterations_x": 50, "stride_x": 2}))
    moved, = await moments(dut, "o", cycles=80)
    assert moved == list(range(moved[0], moved[0] + 50))
