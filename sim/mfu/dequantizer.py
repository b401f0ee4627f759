# amaranth: UnusedElaboratable=no
"""Testbench of hw.mfu.dequantizer against golden.lib.float16."""

import cocotb
import numpy as np
from amaranth.lib import data
from concord.golden.lib.float16 import from_integer
from concord.hw.lib.payloads import Mode, lane_group
from concord.hw.mfu.dequantizer import Dequantizer
from concord.sim.drivers.bench import CONFIG, assert_equal, pack, stored, unpack
from concord.sim.drivers.stream import drive_pipeline
from concord.sim.stimulus.random_values import legal
from concord.spec.machine.config import preset
from concord.spec.numbers.formats import Format

CONFIGURATIONS = ("tiny", "serial", "wide", "tiny_float")
TESTED = ("tiny", "serial", "wide", "tiny_float")
MUTANTS = (  #: Lines that the campaign `mutants` breaks, one at a time: a test must fail.
    {"old": "Mux(self.mode.unsigned, fmt.zero, 0)", "new": "Mux(self.mode.unsigned, fmt.highest, 0)"},
    {"old": "Mux(self.mode.integer, 0,", "new": "Mux(self.mode.unsigned, 0,"},
)


def component(config) -> Dequantizer:
    """A dequantiser of the machine's format, or of the widest, whose numbers are rounded, overflow and underflow."""
    return Dequantizer(Format(bits=16) if config == preset("tiny") else config.activations, config.mfu_lanes)


FORMAT, LANES, LATENCY = component(CONFIG).fmt, CONFIG.mfu_lanes, Dequantizer.latency


@cocotb.test()
async def matches_golden(dut):
    """Mantissas of every size under every exponent, in every mode."""
    rng, count = np.random.default_rng(cocotb.RANDOM_SEED), 6000
    mantissas = rng.integers(FORMAT.lowest, FORMAT.highest + 1, (count, LANES))
    mantissas = legal(mantissas >> rng.integers(0, FORMAT.bits, (count, LANES)), FORMAT)
    exponents = rng.integers(0, FORMAT.e_max - FORMAT.e_min + 1, count)
    integer = rng.integers(0, 2, count)
    unsigned = integer & rng.integers(0, 2, count)
    inputs = {"i": pack(lane_group(FORMAT, LANES), {"mantissas": stored(mantissas, FORMAT), "exponent": exponents}),
              "mode": pack(Mode, {"integer": integer, "unsigned": unsigned})}
    got = (await drive_pipeline(dut, inputs, ["o"], LATENCY))["o"]
    scale = np.where(integer, 0, FORMAT.bits - 1 - (exponents + FORMAT.e_min))
    expected = from_integer(mantissas + (unsigned * FORMAT.zero)[:, None], scale[:, None])
    assert_equal("o", unpack(data.ArrayLayout(16, LANES), got), expected, mantissa=mantissas, exponent=exponents,
                 integer=integer, unsigned=unsigned)
