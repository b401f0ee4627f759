"""Vector memories in Python, for units that read and write them."""

import random

from amaranth.lib import data
from concord.hw.lib.payloads import word
from concord.hw.schedule.address_generator import read_request
from concord.hw.schedule.writeback import write_request
from concord.sim.drivers.bench import Record
from concord.sim.drivers.stream import every_cycle
from concord.spec.isa.memories import VRFS, depth
from concord.spec.machine.config import Config


class Vectors:
    """Vector memories at the ports `request`, `grant` and `data` of `dut`, and at `writes` and `free` if it has them.

    When no word was requested, `data` is noise. A word is readable in the cycle after its write.

    Args:
        stall: Probability that a cycle grants no read, or that a memory takes no write.

    Attributes:
        contents: Words of each memory, random at the start.
        reads:    (memory, address) of each word read.
    """

    def __init__(self, dut, config: Config, *, seed: int, stall: float):
        self.dut, self.stall, self.random = dut, stall, random.Random(f"vectors {seed}")
        self.word, self.bits = Record(word(config)), word(config).size
        self.contents = [[self.random.getrandbits(self.bits) for _ in range(depth(config, mem))] for mem in VRFS]
        self.reads: list[tuple[int, int]] = []
        self.request = Record(read_request(config))
        self.write = Record(data.ArrayLayout(write_request(config), len(VRFS))) if hasattr(dut, "writes") else None
        dut.vectors__grant.value = 0
        every_cycle(dut, self._serve)

    def _serve(self):
        dut = self.dut
        request = self.request.of(int(dut.vectors__request.value))
        dut.vectors__data.value = self.random.getrandbits(self.bits)
        if request["valid"] and dut.vectors__grant.value and not dut.rst.value:
            self.reads.append((request["memory"], request["address"]))
            dut.vectors__data.value = self.contents[request["memory"]][request["address"]]
        dut.vectors__grant.value = int(self.random.random() >= self.stall)
        if self.write:
            self._take_writes()

    def _take_writes(self):
        free = int(self.dut.free.value)
        for memory, write in self.write.of(int(self.dut.writes.value)).items():
            if write["valid"]:
                assert free >> memory & 1, f"memory {memory} was written while it was not free"
                self.contents[memory][write["address"]] = self.word.join(write["word"])
        self.dut.free.value = sum((self.random.random() >= self.stall) << k for k in range(len(VRFS)))
