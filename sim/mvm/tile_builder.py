# amaranth: UnusedElaboratable=no
"""Testbench of hw.mvm.tile_builder: rows of tiles that are made of vectors, against numpy."""

import cocotb
import numpy as np
from concord.hw.lib.jobs import build_job
from concord.hw.lib.payloads import Load, word
from concord.hw.mvm.tile_builder import TileBuilder
from concord.sim.drivers.bench import CONFIG, Packer, pack
from concord.sim.drivers.stream import Sink, StreamSource, start

CONFIGURATIONS = ("tiny", "serial", "wide", "speech")
TESTED = ("tiny", "serial")
MUTANTS = (  #: Lines that the campaign `mutants` breaks, one at a time: a test must fail.
    {"old": "(vector < job.vectors) & ", "new": ""},
    {"old": "(lane >= job.tail)", "new": "(lane > job.tail)"},
    {"old": "take.eq(self.job.valid & self.i.valid & ~full)", "new": "take.eq(self.job.valid & self.i.valid)"},
    {"old": "(loads.i.ready | ~first)", "new": "1"},
    {"old": "place.eq(job.first + number)", "new": "place.eq(number)"},
    {"old": "rotated(list(self.i.p), -turn)", "new": "rotated(list(self.i.p), turn)", "config": "serial"},
    {"old": "kept.tile.eq(job.tile + tile)", "new": "kept.tile.eq(job.tile)"},
    {"old": "(job.tail != 0) & ", "new": ""},
)

JOB, LOAD = Packer(build_job(CONFIG)), Packer(Load)
CHAINS = 25


def component(config):
    """The unit, which the machine of any configuration may hold."""
    return TileBuilder(config)


class TileChain:
    """A random chain of vectors for tiles."""

    def __init__(self, rng: np.random.Generator):
        n, size, lanes = CONFIG.native_dim, CONFIG.vector_words, CONFIG.mfu_lanes
        self.words = int(rng.integers(1, size + 1)) if rng.random() < 0.7 else size
        self.first = int(rng.integers(size - self.words + 1))
        self.vectors = int(rng.integers(1, n + 1)) if rng.random() < 0.6 else n
        self.count, self.tail = int(rng.integers(1, 4)), int(rng.integers(lanes))
        self.job = {"tile": int(rng.integers(1 << 12)), "count": self.count, "integer": int(rng.integers(2)),
                    "transposed": int(rng.integers(2)), "vectors": self.vectors, "first": self.first,
                    "words": self.words, "tail": self.tail}
        self.numbers = rng.integers(0, 1 << 16, (self.count, self.vectors, self.words * lanes), np.uint16)

    @property
    def payloads(self) -> list[int]:
        """The words of the vectors."""
        return pack(word(CONFIG), self.numbers.reshape(-1, CONFIG.mfu_lanes))

    @property
    def tiles(self) -> list[np.ndarray]:
        """The tiles, row by row."""
        lanes, found = CONFIG.mfu_lanes, []
        length = self.words * lanes - (lanes - self.tail if self.tail else 0)
        for numbers in self.numbers:
            tile = np.zeros((CONFIG.native_dim,) * 2, np.uint16)
            tile[:self.vectors, self.first * lanes:][:, :length] = numbers[:, :length]
            found.append(tile.T if self.job["transposed"] else tile)
        return found


@cocotb.test(timeout_time=100, timeout_unit="us")
@cocotb.parametrize(stall=[0.0, 0.4])
async def builds_tiles(dut, stall):
    """Rows and columns, whole and parts of native vectors, with pauses on both sides; tiles may be named late."""
    rng = np.random.default_rng(cocotb.RANDOM_SEED)
    chains = [TileChain(rng) for _ in range(CHAINS)]
    sources = {name: StreamSource(dut, name, stall=stall) for name in ("job", "i")}
    sinks = {"load": Sink(dut, "load", stall=0.98 * bool(stall)), "o": Sink(dut, "o", stall=stall)}
    await start(dut)
    for chain in chains:
        sources["job"].put(JOB.join(chain.job))
        sources["i"].put(*chain.payloads)
    tiles = [(chain, k, tile) for chain in chains for k, tile in enumerate(chain.tiles)]
    loads = [LOAD.join({"tile": chain.job["tile"] + k, "integer": chain.job["integer"]}) for chain, k, _ in tiles]
    words = [payload for _, _, tile in tiles for payload in pack(word(CONFIG), tile.reshape(-1, CONFIG.mfu_lanes))]
    assert await sinks["o"].receive(len(words)) == words
    assert await sinks["load"].receive(len(loads)) == loads
