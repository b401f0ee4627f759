"""Testbench of hw.mvm.converter against golden.mvm.converter and golden.mvm.overflow."""

import cocotb
import numpy as np
from amaranth.hdl import signed
from amaranth.lib import data
from concord.golden.lib.float16 import INFINITY, from_integer
from concord.golden.mvm.overflow import misfits, wrap
from concord.hw.lib.payloads import word
from concord.hw.mvm.converter import Converter, conversion
from concord.hw.mvm.overflow import OverflowCounter
from concord.sim.drivers.bench import CONFIG, assert_equal, pack, unpack
from concord.sim.drivers.stream import drive_pipeline
from concord.sim.stimulus.random_values import integers

TESTED = ("tiny", "serial", "wide")
MUTANTS = (  #: Lines that the campaign `mutants` breaks, one at a time: a test must fail.
    {"old": "used = [delay(m, lane < i.lanes,", "new": "used = [delay(m, lane <= i.lanes,"},
)

LATENCY, LANES = Converter.latency, CONFIG.mfu_lanes
EVENTS = ("partial", "excess_partial", "output", "excess_output")


@cocotb.test()
async def matches_golden(dut):
    """Sums of all sizes in both modes, with and without start values, of any number of rows."""
    rng, cycles = np.random.default_rng(cocotb.RANDOM_SEED), 2000
    control = {name: (rng.random(cycles) < 0.7).astype(int) for name in ("valid", "bias", "integer")}
    control |= {"out_scale": rng.integers(-32, 32, cycles), "lanes": rng.integers(0, LANES + 1, cycles)}
    sums, start = integers(rng, CONFIG.sum_bits, (cycles, LANES)), integers(rng, CONFIG.bias_bits, (cycles, LANES))
    inputs = {"i": pack(conversion(CONFIG), control),
              "sums": pack(data.ArrayLayout(signed(CONFIG.sum_bits), LANES), sums),
              "start": pack(data.ArrayLayout(signed(CONFIG.bias_bits), LANES), start)}
    tail = LATENCY + OverflowCounter.latency  # the outputs have different latencies
    inputs = {name: [*payloads, *payloads[:1] * tail] for name, payloads in inputs.items()}
    for name in ("sums", "start"):
        inputs[name] = [*inputs[name][-Converter.sums_after:], *inputs[name][:-Converter.sums_after]]
    got = await drive_pipeline(dut, inputs, ["valid", "o", *EVENTS], 0)

    kept = np.arange(LANES) < control["lanes"][:, None]
    exact = np.where(kept, sums + np.where(control["bias"][:, None], start, 0), 0)
    totals = wrap(exact, CONFIG.sum_bits)
    scale = np.where(control["integer"], control["out_scale"], CONFIG.acc_frac)
    bits = from_integer(totals, np.broadcast_to(scale[:, None], totals.shape))
    given = control | {"sums": sums, "start": start}
    assert_equal("valid", got["valid"][LATENCY:][:cycles], control["valid"])
    assert_equal("o", unpack(word(CONFIG), got["o"][LATENCY:][:cycles]), bits, **given)

    want = np.zeros((cycles, len(EVENTS)), int)
    for cycle in np.flatnonzero(control["valid"]) if CONFIG.count_overflows else ():
        used = slice(control["lanes"][cycle])
        output = misfits(totals[cycle, used], CONFIG.output_bits)
        if not control["integer"][cycle]:
            infinite = int(((bits[cycle, used] & 0x7FFF) == INFINITY).sum())
            output = infinite, int(infinite > 0)
        want[cycle] = *misfits(exact[cycle, used], CONFIG.sum_bits), *output
    for k, name in enumerate(EVENTS):
        late = OverflowCounter.latency + (LATENCY if k >= 2 else Converter.sums_after)
        assert_equal(name, got[name][late:][:cycles], want[:, k], **given)
