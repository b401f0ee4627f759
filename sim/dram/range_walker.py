"""Testbench of hw.dram.range_walker: ranges of random chains have the words of `spec.isa.chain`, in order."""

import random

import cocotb
from concord.hw.dram.burst_reader import Range
from concord.hw.dram.range_walker import ENOUGH, RangeWalker, Walk
from concord.sim.drivers.bench import Packer
from concord.sim.drivers.stream import Sink, StreamSource, clock, moments, start

CONFIGURATIONS = ("tiny",)
MUTANTS = (  #: Lines that the campaign `mutants` breaks, one at a time: a test must fail.
    {"old": "last | last_x | ~joined", "new": "last | ~joined"},
    {"old": "(total >> ENOUGH).any()", "new": "0"},
    {"old": "joined.eq(job.inc & (", "new": "joined.eq(("},
    {"old": "Mux(last_x, row, at)", "new": "at"},
)


def component(_) -> RangeWalker:
    """A walker, which machines without Dram do not hold."""
    return RangeWalker()


WALK, RANGE = Packer(Walk), Packer(Range)


def drawn(chance: random.Random) -> dict:
    """A chain whose iterations may follow each other along x, or from row to row."""
    x, y, words = chance.choice((1, 2, 5, 70)), chance.choice((1, 2, 3)), chance.choice((1, 2, 7, 100, 300))
    return {"first": chance.randrange(1 << 20), "inc": chance.randrange(4) > 0, "words": words,
            "tag": chance.randrange(99), "iterations": x * y, "iterations_x": x,
            "stride_x": chance.choice((0, words, words, words + 1)), "stride_y": chance.choice((0, x * words, 65535))}


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


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def an_iteration_a_cycle(dut):
    """A chain of single words that do not follow each other."""
    source, _ = StreamSource(dut, "i"), Sink(dut, "o")
    await start(dut)
    source.put(WALK.join({"first": 7, "inc": 1, "words": 1, "iterations": 50, "iterations_x": 50, "stride_x": 2}))
    moved, = await moments(dut, "o", cycles=80)
    assert moved == list(range(moved[0], moved[0] + 50))
