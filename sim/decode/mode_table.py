# amaranth: UnusedElaboratable=no
"""Testbench of hw.decode.mode_table against a list of flags."""

import random

import cocotb
from concord.hw.decode.mode_table import CHUNK, LATENCY, ModeRequest, ModeTable
from concord.sim.drivers.bench import CONFIG, Packer
from concord.sim.drivers.stream import StreamSource, clock, start

MUTANTS = (  #: Lines that the campaign `mutants` breaks, one at a time: a test must fail.
    {"old": "(disagree | (marks", "new": "((marks"},
)


def component(config) -> ModeTable:
    """A table of a number of tiles that is no power of two."""
    return ModeTable(3 * config.matrix_tiles + 5)


TILES = component(CONFIG).tiles
REQUEST = Packer(ModeRequest)


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(stall=[0.0, 0.5])
async def answers_like_a_list(dut, stall):
    """Ranges of all lengths are set and queried; in half of the queries exactly one tile differs from the others."""
    chance, modes = random.Random(cocotb.RANDOM_SEED), [False] * TILES
    source = StreamSource(dut, "i", stall=stall)
    await start(dut)
    requests = [{"set": 1, "integer": 0, "first": 0, "count": TILES}]
    for _ in range(400):
        first = chance.randrange(TILES)
        count = chance.choice((1, TILES - first, chance.randint(1, TILES - first)))
        mode, odd = chance.getrandbits(1), chance.randrange(first, first + count)
        requests += [{"set": 1, "integer": mode, "first": first, "count": count},
                     {"set": chance.getrandbits(1), "integer": 1 - mode, "first": odd, "count": 1},
                     {"set": 0, "integer": mode, "first": first, "count": count}]
    source.put(*map(REQUEST.join, requests))
    answers = 0
    for request in requests:
        tiles, cycles = range(request["first"], request["first"] + request["count"]), 0
        while True:
            await clock(dut)
            cycles += int(dut.i__valid.value)
            if dut.done.value:
                break
        assert dut.i__ready.value
        assert cycles == tiles[-1] // CHUNK - tiles[0] // CHUNK + 1 + LATENCY
        if request["set"]:
            modes[tiles.start:tiles.stop] = [request["integer"]] * len(tiles)
        else:
            assert bool(dut.agree.value) == all(modes[t] == request["integer"] for t in tiles)
            answers += bool(dut.agree.value)
    assert 50 < answers < 600
