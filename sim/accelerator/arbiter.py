# amaranth: UnusedElaboratable=no
"""Testbench of hw.accelerator.arbiter: managers that read and write at random, and a memory that mixes its answers."""

import random
from collections import Counter

import cocotb
from concord.hw.accelerator.arbiter import Arbiter
from concord.sim.drivers.axi_manager import BLOCK, AxiManager
from concord.sim.drivers.axi_memory import AxiMemory
from concord.sim.drivers.axi_monitor import AxiMonitor
from concord.sim.drivers.bench import CONFIG
from concord.sim.drivers.stream import clock, every_cycle, start, until

CONFIGURATIONS = ("tiny", "wide")
TESTED = ("tiny",)
MUTANTS = (  #: Lines that the campaign `mutants` breaks, one at a time: a test must fail.
    {"old": "chosen & room & (~valid | ready)", "new": "chosen & room"},
    {"old": "chosen & room & (~valid | ready)", "new": "chosen & (~valid | ready)"},
    {"old": "among = Mux(above.any(), above, requests)", "new": "among = requests"},
    {"old": 'whose.ready.eq(moved & beat["wlast"])', "new": "whose.ready.eq(moved)"},
    {"old": 'one["wready"].eq(whose.valid & free)', "new": 'one["wready"].eq(free)'},
    {"old": "with m.If(free):", "new": "with m.If(1):"},
    {"old": 'self.port[f"{channel}ready"].eq(~there | ready)', "new": 'self.port[f"{channel}ready"].eq(1)'},
    {"old": "for one in self.managers) | nobody)", "new": "for one in self.managers))"},
    {"old": "there & (whose == number)", "new": "there"},
    {"old": "ended & level.any()", "new": "ended"},
    {"old": 'for channel in ("ar", "aw")', "new": 'for channel in ("ar",)'},
)
#: Bytes of the bus and number of managers, by the bytes of a beat of messages. 5 managers leave numbers to nobody.
SHAPES = {4: (4, 5), 16: (16, 2)}
BLOCKS = 8  #: Blocks of each manager; the memory refuses the last one.


def component(config) -> Arbiter:
    """A narrow one with many managers, or a wide one with two."""
    return Arbiter(*SHAPES[config.message_bytes])


UNIT = component(CONFIG)


class Bench:
    """Managers with blocks of their own, the arbiter, and a memory that mixes its answers."""

    def __init__(self, dut, stall: float, **options):
        self.dut, blocks = dut, [range(BLOCKS * k, BLOCKS * (k + 1)) for k in range(UNIT.count)]
        self.managers = [AxiManager(
            dut, UNIT.size, seed=cocotb.RANDOM_SEED + k, stall=stall, blocks=mine, refused={mine[-1]},
            prefix=f"manager{k}", **options) for k, mine in enumerate(blocks)]
        self.memory = AxiMemory(dut, UNIT.size, BLOCKS * UNIT.count * BLOCK, stall=stall, latency=60)
        self.memory.refused = [range(BLOCK * mine[-1], BLOCK * (mine[-1] + 1)) for mine in blocks]
        self.monitor = AxiMonitor(dut, UNIT.size, holds=stall > 0)
        self.passed = [Counter() for _ in self.managers]  # of each, bursts of others while it offers one, by channel
        self.most = 0
        every_cycle(dut, self._watch)

    def _watch(self):
        """Count how many bursts pass a manager that waits."""
        for channel in ("ar", "aw"):
            offers = [bool(getattr(self.dut, f"manager{k}_{channel}valid").value) for k in range(UNIT.count)]
            taken = [offer and bool(getattr(self.dut, f"manager{k}_{channel}ready").value)
                     for k, offer in enumerate(offers)]
            assert sum(taken) <= 1
            for passed, offer, mine in zip(self.passed, offers, taken, strict=True):
                passed[channel] = passed[channel] + any(taken) if offer and not mine else 0
                self.most = max(self.most, passed[channel])

    async def finish(self, count: int) -> int:
        """Let each manager do so many bursts. Returns the number of cycles."""
        for manager in self.managers:
            manager.start(count)
        cycles = await until(self.dut, lambda: all(manager.idle for manager in self.managers))
        assert [manager.ended for manager in self.managers] == [count] * UNIT.count
        assert self.memory.idle
        assert self.monitor.ended
        for manager in self.managers:
            assert all(self.memory.contents[at] == byte for at, byte in manager.memory.items())
        await clock(self.dut)
        assert not self.dut.busy.value
        return cycles


@cocotb.test(timeout_time=30, timeout_unit="us")
@cocotb.parametrize(stall=[0.0, 0.4])
async def bytes_find_their_way(dut, stall):
    """Reads and writes of all managers, mixed and refused answers, pauses: each byte, response and ID is right."""
    bench = Bench(dut, stall)
    await start(dut)
    await bench.finish(16)
    assert bench.most <= UNIT.count - 1
    numbers = {id_ >> 1 for id_ in bench.monitor.asked}, {id_ >> 1 for id_ in bench.monitor.wrote}
    assert numbers == (set(range(UNIT.count)),) * 2


@cocotb.test(timeout_time=30, timeout_unit="us")
@cocotb.parametrize(writes=[0.0, 1.0])
async def turns_are_fair(dut, writes):
    """While all have bursts, each is served as often as the others, and the bus of writes has no pause."""
    bench = Bench(dut, 0.0, writes=writes, shortest=16)
    await start(dut)
    cycles = await bench.finish(8)
    turns = [id_ >> 1 for id_ in bench.monitor.wrote + bench.monitor.asked][:5 * UNIT.count]
    assert set(Counter(turns).values()) == {5}
    assert bench.most <= UNIT.count - 1
    assert not writes or cycles < 1.05 * sum(manager.beats for manager in bench.managers) + 80


@cocotb.test(timeout_time=30, timeout_unit="us")
async def surplus_answers_do_no_harm(dut):
    """Answers to nobody, and to a manager that waits for none, are lost; `busy` stays right."""
    for channel in ("ar", "aw"):
        getattr(dut, f"m_axi_{channel}ready").value = 1
    for k in range(UNIT.count):
        for wire in ("arvalid", "awvalid", "wvalid"):
            getattr(dut, f"manager{k}_{wire}").value = 0
        for wire in ("rready", "bready"):
            getattr(dut, f"manager{k}_{wire}").value = 1
    dut.m_axi_rvalid.value = dut.m_axi_bvalid.value = 0
    await start(dut)
    chance = random.Random(cocotb.RANDOM_SEED)
    for id_ in [*range(1 << UNIT.ids), 0]:
        for channel in ("r", "b"):
            getattr(dut, f"m_axi_{channel}id").value = id_
            getattr(dut, f"m_axi_{channel}resp").value = chance.randrange(4)
            getattr(dut, f"m_axi_{channel}valid").value = 1
        dut.m_axi_rlast.value = 1
        await clock(dut)
        assert dut.m_axi_rready.value
        assert dut.m_axi_bready.value
        assert not dut.busy.value
    dut.m_axi_rvalid.value = dut.m_axi_bvalid.value = 0
    await clock(dut, 3)
    assert not dut.busy.value


@cocotb.test(timeout_time=30, timeout_unit="us")
async def busy_from_the_offer_to_the_last_answer(dut):
    """A burst that waits for the port, and one that waits for its answer, are under way."""
    bench = Bench(dut, 0.0, writes=0.5)
    await start(dut)
    await clock(dut, 3)
    for manager in bench.managers:
        for _ in range(4):
            manager.start(1)
            while not manager.idle:
                await clock(dut)
                offers = [getattr(dut, f"{manager.prefix}_{channel}valid").value for channel in ("ar", "aw")]
                assert dut.busy.value or not (any(offers) or bench.memory.reads or bench.memory.writes)
