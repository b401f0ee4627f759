# amaranth: UnusedElaboratable=no
"""Testbench of hw.lazy.lazy_update against golden.lazy.lazy_update."""

from collections import Counter

import cocotb
import numpy as np
from concord.golden.lazy.lazy_update import Parameters, Pass
from concord.hw.lazy.exponent_search import COUNTS, pass_answer
from concord.hw.lazy.lazy_update import LazyUpdate, lazy_block, lazy_elements, lazy_parameters
from concord.sim.drivers.bench import CONFIG, assert_equal, pack, unpack
from concord.sim.drivers.stream import Sink, StreamSource, clock, every_cycle, moments, reset, start
from concord.sim.stimulus.lazy_passes import Given, again, bins, lazy_format, overflowing, random_pass
from concord.spec.numbers.lazy import E_MIN

TESTED = ("tiny", "serial", "wide")
MUTANTS = (  #: Lines that the campaign `mutants` breaks, one at a time: a test must fail.
    {"file": "hw/lazy/lazy_step.py", "old": 'limited = e["above"] | (e["full"] & half)', "new": 'limited = e["above"]'},
    {"file": "hw/lazy/lazy_step.py", "old": 'half & (~v[-1] | e["rounded"])', "new": "half"},
    {"old": "first.eq(self.i.p.last)", "new": "first.eq(0)"},
    {"file": "hw/lazy/exponent_search.py", "old": "summary.updated & ~summary.changes\n", "new": "~summary.changes\n"},
    {"file": "hw/lib/arithmetic.py", "old": "(~value[-1] | value[:shift - 1].any())", "new": "~value[-1]"},
)


def component(config) -> LazyUpdate:
    """The unit with the format that is tested on a machine."""
    return LazyUpdate(lazy_format(config), config.mfu_lanes)


DUT = component(CONFIG)
FMT, LANES, SEARCH, LATENCY = DUT.fmt, DUT.lanes, DUT.search, DUT.latency
TOTALS = (*COUNTS, "changes")


class Bench:
    """The unit with its streams, and the totals that golden expects."""

    def __init__(self, dut, *, stall: tuple[float, ...] = (0.0, 0.0, 0.0, 0.0)):
        self.dut = dut
        sides = zip((StreamSource, StreamSource, Sink, Sink), ("block", "i", "o", "answer"), stall, strict=True)
        self.block, self.i, self.o, self.answer = (side(dut, name, stall=p) for side, name, p in sides)
        dut.clear.value = 0

    async def start(self):
        await start(self.dut)
        self.waiting, self.last = 0, lazy_parameters(FMT, LANES).size - 1
        every_cycle(self.dut, self._watch)

    def _watch(self):
        """Fail if an answer comes before the last word of its pass."""
        dut = self.dut
        assert not dut.answer__valid.value or self.waiting, "an answer before its pass has left"
        self.waiting += int(dut.o__valid.value and dut.o__ready.value and int(dut.o__payload.value) >> self.last & 1)
        self.waiting -= int(dut.answer__valid.value and dut.answer__ready.value)

    def stop(self):
        """Stop driving the wires."""
        for port in (self.block, self.i, self.o, self.answer):
            port.task.cancel()

    def send(self, passes: list[Given]):
        """Queue the words of passes."""
        self.block.put(*headers(passes))
        self.i.put(*(word for given in passes for word in elements(given)))

    async def check(self, passes: list[Given], golden: list[Pass]):
        """Receive the results of passes and compare them with golden."""
        for given, want in zip(passes, golden, strict=True):
            size = len(given.update)
            count = -(-size // LANES)
            got = unpack(lazy_parameters(FMT, LANES), await self.o.receive(count))
            assert_equal("last", got["last"], np.arange(count) == count - 1)
            header = {"exponent": given.old.exponent, "update_exponent": given.update_exponent, "change": given.change}
            for name in ("mantissas", "residuals"):
                flat = got[name].ravel()
                assert_equal(name, flat[:size], getattr(want, name), mantissa=given.old.mantissas,
                             residual=given.old.residuals, update=given.update, **header)
                assert not flat[size:].any(), f"{name} after the last element are not zero"
            told = unpack(pass_answer(FMT), [await self.answer.get()])
            for name in ("repeat", "change", *COUNTS):
                assert_equal(f"answer {name}", told[name][0], getattr(want, name), elements=size, **header)

    def totals(self) -> dict[str, int]:
        """The totals that the unit has counted."""
        value = int(self.dut.totals.value)
        return {name: value >> 32 * index & 0xFFFFFFFF for index, name in enumerate(TOTALS)}


def headers(passes: list[Given]) -> list[int]:
    """Payloads of the header stream, one for each pass."""
    return pack(lazy_block(FMT), {
        "exponent": [given.old.exponent - E_MIN for given in passes],
        "update_exponent": [given.update_exponent - E_MIN for given in passes],
        "change": [given.change for given in passes]})


def elements(given: Given) -> list[int]:
    """Payloads of the element stream: the words of a tensor."""
    def words(values):
        return np.pad(values, (0, -len(values) % LANES)).reshape(-1, LANES)

    mantissas = words(given.old.mantissas)
    return pack(lazy_elements(FMT, LANES), {
        "mantissas": mantissas, "residuals": words(given.old.residuals), "updates": words(given.update),
        "last": np.arange(len(mantissas)) == len(mantissas) - 1})


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(stall=[(0.0, 0.0, 0.0, 0.0), (0.5, 0.5, 0.0, 0.0), (0.0, 0.0, 0.6, 0.6), (0.0, 0.3, 0.3, 0.9)])
async def matches_golden(dut, stall):
    """Tensors of all kinds in as many passes as golden asks for; totals count only the last pass of a tensor."""
    bench, rng = Bench(dut, stall=stall), np.random.default_rng(cocotb.RANDOM_SEED)
    await bench.start()
    met, totals = Counter(), dict.fromkeys(TOTALS, 0)
    passes = [random_pass(rng, FMT, int(rng.integers(1, 6 * LANES + 1))) for _ in range(400)]
    while passes:
        golden = [given.golden for given in passes]
        bench.send(passes)
        await bench.check(passes, golden)
        pairs = list(zip(passes, golden, strict=True))
        for pair in pairs:
            met.update({name: int(hit) for name, hit in bins(*pair).items()})
        for given, done in pairs:
            for name in TOTALS if not done.repeat else ():
                totals[name] += given.change != 0 if name == "changes" else getattr(done, name)
        passes = [again(done, given) for given, done in pairs if done.repeat]
    await clock(dut, 2)
    assert bench.totals() == totals
    assert all(met.values()), f"no example of {', '.join(name for name, hits in met.items() if not hits)}"
    dut.clear.value = 1
    await clock(dut, 2)
    assert not any(bench.totals().values())


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(long=[False, True])
async def takes_and_gives_a_word_every_cycle(dut, long):
    """Tensors in a row leave no idle cycle: short ones without, longer ones with an exponent search in each pass."""
    rng, count = np.random.default_rng(cocotb.RANDOM_SEED), 40
    size = LANES * (SEARCH if long else 4)
    passes = [overflowing(rng, FMT, size) if long else still(rng, size) for _ in range(count)]
    golden = [given.golden for given in passes]
    assert all(done.change == 0 or long and done.change >= FMT.changes[-3] for done in golden)
    bench = Bench(dut)
    await bench.start()
    bench.send(passes)
    cocotb.start_soon(bench.check(passes, golden))
    taken, given = await moments(dut, "i", "o", cycles=2 * count * size // LANES + 100)
    assert taken[-1] - taken[0] == given[-1] - given[0] == count * size // LANES - 1
    assert given[0] - taken[0] == LATENCY


def still(rng, size: int) -> Given:
    """A pass whose update is so small that the exponent stays."""
    old = Parameters(rng.integers(FMT.lowest + 1, FMT.highest, size), np.zeros(size, int), 0, FMT)
    return Given(old, np.zeros(size, int), 0)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def reset_within_a_pass(dut):
    """A reset drops the pass under way; the next pass is intact."""
    rng = np.random.default_rng(cocotb.RANDOM_SEED)
    await start(dut)
    for cycles in range(5, 60, 7):
        bench = Bench(dut)
        bench.send([random_pass(rng, FMT, 8 * LANES) for _ in range(4)])
        await clock(dut, cycles)
        bench.stop()
        await reset(dut)
        bench = Bench(dut)
        passes = [random_pass(rng, FMT, 3 * LANES) for _ in range(3)]
        bench.send(passes)
        await bench.check(passes, [given.golden for given in passes])
        bench.stop()
