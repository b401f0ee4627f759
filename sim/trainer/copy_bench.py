"""What the testbenches of load, store and move engines share: all memories against golden's."""

import random

import cocotb
import numpy as np
from concord.golden.trainer.core import TrainerCore
from concord.hw.trainer.wires import ROW_ADDS, CopyJob
from concord.sim.drivers.axi_memory import AxiMemory
from concord.sim.drivers.axi_monitor import AxiMonitor
from concord.sim.drivers.bench import Packer, assert_equal
from concord.sim.drivers.stream import StreamSource, clock, every_cycle, start, until
from concord.sim.trainer.copies import SERVER, Copies
from concord.sim.trainer.copy_stand import CONFIG
from concord.sim.trainer.memories import Memories
from concord.spec.numbers.lazy import ACCUMULATOR_BITS, E_MIN
from concord.spec.trainer.config import LANES, SUM_PLANES
from concord.spec.trainer.instructions import Space

BASE = 4096  #: Address of word 0 of server memory.
JOB = Packer(CopyJob)


class CopyBench:
    """An engine in its stand, and golden's core with the same memories.

    Args:
        dut:     The stand.
        name:    "load", "store" or "move".
        stall:   Probability of a cycle in which an access, or a channel of the port, rests.
        latency: Most cycles to an answer of server memory.
    """

    def __init__(self, dut, name: str, stall: float = 0.0, latency: int = 1):
        self.dut, self.stall, self.random = dut, stall, random.Random(cocotb.RANDOM_SEED)
        server = np.zeros((SERVER, LANES), np.uint8)
        self.core = TrainerCore(config=CONFIG, server=server)
        self.memories = Memories(dut, self.core)
        self.copies = Copies(name, self.core, cocotb.RANDOM_SEED)
        self.jobs = StreamSource(dut, "job", stall=stall)
        self.memory, self.monitor = None, None
        if name != "move":
            self.memory = AxiMemory(dut, LANES, BASE + server.size, stall=stall, latency=latency)
            self.monitor = AxiMonitor(dut, LANES)
        self.ended = self.failures = 0
        every_cycle(dut, self._watch)

    def _watch(self):
        self.ended += int(self.dut.ended.value) & 1
        self.failures += int(self.dut.failed.value)

    async def start(self):
        """Fill all memories."""
        dut, core, rng = self.dut, self.core, self.copies.rng
        dut.base.value = BASE
        await start(dut, "reset", "set")
        half = 1 << ACCUMULATOR_BITS - 1
        core.chip[:], core.server[:] = (rng.integers(0, 256, each.shape, np.uint8) for each in (core.chip, core.server))
        core.accumulators[:] = rng.integers(-half, half, core.accumulators.shape)
        for exponent in core.exponents:
            exponent.set(E_MIN + self.copies.part.number(0, 256))
        if self.memory:
            self.memory.contents[BASE:] = core.server.tobytes()
        await self.memories.write()
        dut.exponents_new.value, dut.set.value = int.from_bytes(self._exponents().tobytes(), "little"), 1
        await clock(dut)
        dut.set.value, dut.refused.value = 0, round(256 * self.stall)

    def _exponents(self) -> np.ndarray:
        return np.array([each.now - E_MIN for each in self.core.exponents], np.uint8)

    def expected(self) -> dict[str, np.ndarray]:
        """What golden has in all memories."""
        core = self.core
        found = {"word of the chip": core.chip, "row of the accumulators": core.accumulators, "server": core.server}
        return {name: values.copy() for name, values in found.items()} | {"exponents": self._exponents()}

    async def state(self) -> dict[str, np.ndarray]:
        """What hardware has there."""
        await self.memories.read()
        exponents = int(self.dut.exponents.value).to_bytes(CONFIG.exponents, "little")
        server = bytes(self.memory.contents[BASE:]) if self.memory else self.core.server.tobytes()
        return {
            "word of the chip": self.memories.chip.copy(),
            "row of the accumulators": self.memories.rows.copy(),
            "server": np.frombuffer(server, np.uint8).reshape(-1, LANES),
            "exponents": np.frombuffer(exponents, np.uint8),
        }

    async def run(self, *jobs: dict) -> int:
        """Give jobs, and wait for their ends. Returns cycles."""
        self.ended = 0
        self.jobs.put(*(JOB.join(job) for job in jobs))
        return await until(self.dut, lambda: self.ended == len(jobs))

    async def several(self, count: int):
        """So many times a few random copies that may be under way beside each other, and all memories behind them."""
        for _ in range(count):
            others, found = [], []
            while not found or self.random.random() < 0.8:
                found += filter(None, [self.copies.behind(others)])
            await self.run(*(job for job, _ in found))
            assert_equal("state", await self.state(), self.expected(), copies=[text for _, text in found])
            assert self.ended == len(found)

    async def fails(self, at: int):
        """A copy between all words of the chip and of server memory, of which a burst fails at a word."""
        to, source = (Space.CHIP, Space.SERVER) if self.copies.name == "load" else (Space.SERVER, Space.CHIP)
        self.memory.refused = [range(BASE + LANES * at, BASE + LANES * at + 1)]
        await self.run(self.copies.plain(to, source, CONFIG.words))
        await until(self.dut, lambda: self.dut.idle.value)
        assert self.failures
        self.memory.refused, self.failures = [], 0
        self._take(await self.state())

    async def follow(self, to: Space, source: Space, rows: int, more: int):
        """Words that follow each other take a cycle each, and a copy so many cycles more."""
        words = rows * (SUM_PLANES if Space.ACCUMULATORS in (to, source) else 1)
        cycles = await self.run(self.copies.plain(to, source, rows))
        self.dut._log.info(f"{source.name} to {to.name}: {cycles} cycles for {words} words")
        assert_equal("state", await self.state(), self.expected())
        assert cycles <= words + more

    async def resets(self, count: int):
        """Copies that a reset ends at any moment: each byte is old or new, and copies behind it are right."""
        dut = self.dut
        for _ in range(count):
            old = self.expected()
            job, text = self.copies.next()
            self.jobs.put(JOB.join(job))
            await self.jobs.drain()
            await clock(dut, self.random.choice((1, 2, 3, self.random.randrange(1, 120))))
            dut.reset.value = 1
            await clock(dut)
            dut.reset.value = 0
            await until(dut, lambda: dut.idle.value)
            assert self.memory is None or (self.memory.idle and self.monitor.ended)
            await clock(dut, ROW_ADDS)
            found, new = await self.state(), self.expected()
            for name, values in found.items():
                kept = np.where(values == new[name], new[name], old[name])
                assert_equal(f"{name} after a reset", values, kept, copy=text)
            self._take(found)
            await self.several(1)

    def _take(self, found: dict[str, np.ndarray]):
        """Make golden's memories what was found."""
        core = self.core
        core.chip[:], core.accumulators[:], core.server[:], exponents = found.values()
        for exponent, byte in zip(core.exponents, exponents.tolist(), strict=True):
            exponent.set(byte + E_MIN)
