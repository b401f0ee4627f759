# amaranth: UnusedElaboratable=no
"""Testbench of hw.lazy.tensor_quantizer against golden.lazy.tensor."""

from dataclasses import dataclass

import cocotb
import numpy as np
from concord.golden.lazy.tensor import measure, requantize
from concord.hw.lazy.tensor_quantizer import WIDTHS, TensorQuantizer, block_mantissas, block_order, block_sums
from concord.sim.drivers.bench import CONFIG, assert_equal, pack, unpack
from concord.sim.drivers.stream import Sink, StreamSource, moments, start
from concord.spec.machine.config import preset
from concord.spec.numbers.lazy import E_MAX, E_MIN

TESTED = ("tiny", "serial", "wide")
MUTANTS = (  #: Lines that the campaign `mutants` breaks, one at a time: a test must fail.
    {"old": "now | Mux(first, 0, found)", "new": "now | found"},
    {"old": 'lane["rounded"][bits - 1:].any()', "new": 'lane["rounded"][bits:].any()'},
    {"old": "(~negative).replicate(len(value))", "new": "Const(-1, len(value))"},
)


def component(config) -> TensorQuantizer:
    """A quantiser of sums of the most bits, of few bits, or of 32-bit gradients times 8 bits."""
    return TensorQuantizer({preset("tiny"): 62, preset("serial"): 12}.get(config, 48), config.mfu_lanes)


DUT = component(CONFIG)
SUM_BITS, LANES, LATENCY = DUT.sum_bits, DUT.lanes, DUT.latency


@dataclass(frozen=True, slots=True)
class Given:
    """One pass over a tensor: it measures, or it converts under `exponent`."""

    sums: np.ndarray
    lsb: int
    code: int
    exponent: int | None = None

    @property
    def sum_words(self) -> np.ndarray:
        """The sums in words of LANES elements, the last word padded with zeros."""
        return np.pad(self.sums, (0, -len(self.sums) % LANES)).reshape(-1, LANES)


def random_tensor(rng, size: int) -> list[Given]:
    """Make a random tensor: a pass that measures it, and one that converts it, mostly under the measured exponent."""
    top = 1 << SUM_BITS - 1
    anything = rng.integers(-top + 1, top, size)
    powers = rng.choice([-1, 1], size) << rng.integers(0, SUM_BITS - 1, size)
    halves = (2 * rng.integers(-64, 64, size) + 1) << rng.integers(0, max(SUM_BITS - 9, 1))
    single = np.where(np.arange(size) == rng.integers(size), anything, 0)
    kinds = [anything, anything >> rng.integers(SUM_BITS), powers, powers + rng.integers(-1, 2, size), halves, single,
             rng.choice([0, 1, -1], size), np.zeros(size, np.int64)]
    sums = np.clip(kinds[rng.integers(len(kinds))], 1 - top, top - 1)
    low = E_MIN - SUM_BITS - 3
    lsb = int(rng.choice([rng.integers(low, E_MAX + 4), rng.integers(-60, 10), low, E_MAX + 3]))
    code = int(rng.integers(len(WIDTHS)))
    exponent = int(measure(sums, lsb).item())
    if rng.random() < 0.3:
        exponent = int(np.clip(exponent + rng.integers(-40, 40), E_MIN, E_MAX))
    return [Given(sums, lsb, code), Given(sums, lsb, code, exponent)]


def bins(given: Given) -> dict[str, bool]:
    """The bins of functional coverage, and whether the pass hits each."""
    largest, bits = int(np.abs(given.sums).max()), WIDTHS[given.code]
    own = measure(given.sums, given.lsb).item()
    if given.exponent is None:
        return {"zero block": not largest, "power of two": largest > 1 and largest & (largest - 1) == 0,
                "one": largest == 1, "lowest exponent": own == E_MIN and largest > 0, "highest exponent": own == E_MAX}
    shift = given.exponent - (bits - 1) - given.lsb
    got = requantize(given.sums, given.lsb, bits, exponent=given.exponent).mantissas
    return {f"{bits} bits": True, "shift to the left": shift < 0, "shift to the right": shift > 0,
            "far to the left": shift < -32, "far to the right": shift > SUM_BITS,
            "saturated": bool((got == (1 << bits - 1) - 1).any()), "lowest": bool((got == -(1 << bits - 1)).any()),
            "rounded to zero": bool(((got == 0) & (given.sums != 0)).any())}


class Bench:
    """The unit with its streams."""

    def __init__(self, dut, *, stall: tuple[float, ...] = (0.0, 0.0, 0.0, 0.0)):
        sides = zip((StreamSource, StreamSource, Sink, Sink), ("block", "i", "measured", "o"), stall, strict=True)
        self.block, self.i, self.measured, self.o = (
            side(dut, name, stall=p) for side, name, p in sides)

    def send(self, passes: list[Given]):
        """Queue the words of passes."""
        self.block.put(*pack(block_order(), {
            "lsb": [given.lsb for given in passes], "bits": [given.code for given in passes],
            "convert": [given.exponent is not None for given in passes],
            "exponent": [(E_MIN if given.exponent is None else given.exponent) - E_MIN for given in passes]}))
        for given in passes:
            count = len(given.sum_words)
            beats = {"sums": given.sum_words, "last": np.arange(count) == count - 1}
            self.i.put(*pack(block_sums(SUM_BITS, LANES), beats))

    async def check(self, passes: list[Given]):
        """Receive the results of passes and compare them with golden."""
        for given in passes:
            if given.exponent is None:
                exponent = await self.measured.get()
                assert_equal("exponent", exponent + E_MIN, measure(given.sums, given.lsb).item(), sums=given.sums,
                             lsb=given.lsb)
                continue
            count = len(given.sum_words)
            got = unpack(block_mantissas(LANES), await self.o.receive(count))
            want = requantize(given.sum_words, given.lsb, WIDTHS[given.code], exponent=given.exponent).mantissas
            assert_equal("mantissas", got["mantissas"], want, sum=given.sum_words, lsb=given.lsb,
                         bits=WIDTHS[given.code], exponent=given.exponent)
            assert_equal("last", got["last"], np.arange(count) == count - 1)


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(stall=[(0.0, 0.0, 0.0, 0.0), (0.5, 0.5, 0.0, 0.0), (0.0, 0.0, 0.8, 0.6), (0.0, 0.3, 0.9, 0.3)])
async def matches_golden(dut, stall):
    """Tensors of all kinds, measured and converted."""
    bench, rng = Bench(dut, stall=stall), np.random.default_rng(cocotb.RANDOM_SEED)
    await start(dut)
    passes = [given for _ in range(500) for given in random_tensor(rng, int(rng.integers(1, 5 * LANES + 1)))]
    bench.send(passes)
    await bench.check(passes)
    missing = {name for given in passes for name in bins(given)}
    missing -= {name for given in passes for name, hit in bins(given).items() if hit}
    assert not missing, f"no example of {', '.join(sorted(missing))}"


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(convert=[False, True])
async def takes_and_gives_a_word_every_cycle(dut, convert):
    """Tensors in a row leave no idle cycle, even tensors of one word."""
    rng, bench = np.random.default_rng(cocotb.RANDOM_SEED), Bench(dut)
    await start(dut)
    passes = [random_tensor(rng, LANES)[convert] for _ in range(100)]
    bench.send(passes)
    checking, count = cocotb.start_soon(bench.check(passes)), sum(len(given.sum_words) for given in passes)
    taken, given = await moments(dut, "i", "o", cycles=2 * count + 100)
    await checking
    assert taken[-1] - taken[0] == count - 1
    if convert:
        assert given[-1] - given[0] == count - 1
        assert given[0] - taken[0] == LATENCY
