# amaranth: UnusedElaboratable=no
"""Testbench of hw.mvm.tile_engine against golden.mvm.tile_engine."""

import cocotb
import numpy as np
from amaranth.hdl import signed
from amaranth.lib import data
from concord.golden.mvm.overflow import wrap
from concord.golden.mvm.tile_engine import lane_sums
from concord.hw.mvm.matrix_rf import record
from concord.hw.mvm.operand_buffer import operand
from concord.hw.mvm.row_groups import lateness
from concord.hw.mvm.tile_engine import TileEngine
from concord.sim.drivers.bench import CONFIG, assert_equal, pack, stored, unpack
from concord.sim.drivers.stream import drive_pipeline
from concord.sim.stimulus.random_values import mantissas

CONFIGURATIONS = ("tiny", "serial", "wide", "tiny_float")
TESTED = ("tiny", "serial", "wide", "tiny_float")
MUTANTS = (  #: Lines that the campaign `mutants` breaks, one at a time: a test must fail.
    {"old": "minus=top and widths[k + 1] == 1", "new": "minus=False", "file": "hw/mvm/dot_products.py"},
    {"old": "(value >> self.shift) + Cat(value[self.shift - 1], Const(0, 1)).as_signed()", "new": "value >> self.shift",
     "file": "hw/mvm/dot_products.py"},
    {"old": "value.shift_left(1)) if", "new": "value) if", "file": "hw/mvm/dot_products.py", "config": "tiny_float"},
    {"old": "field[0] | ~normal", "new": "field[0]", "file": "hw/lib/elements.py", "config": "tiny_float"},
    {"old": "sign ^ other_sign", "new": "other_sign", "file": "hw/mvm/dot_products.py", "config": "tiny_float"},
    {"old": "weight.sign ^ x.sign", "new": "weight.sign", "file": "hw/mvm/dot_products.py", "config": "tiny_float"},
)

DUT = TileEngine(CONFIG)
WIDTH, LATENCY, LATE = DUT.width, DUT.latency, lateness(CONFIG)


def exponents(rng, fmt, shape):
    """Random stored exponents, many of them at the ends of their range."""
    largest = fmt.e_max - fmt.e_min
    return np.where(rng.random(shape) < 0.3, rng.choice((0, largest), shape), rng.integers(0, largest + 1, shape))


@cocotb.test()
async def matches_golden(dut):
    """Random mantissas and exponents in both modes, one lane group with its operand in each cycle."""
    rng, cycles = np.random.default_rng(cocotb.RANDOM_SEED), 600
    n, lanes, fmts = CONFIG.native_dim, CONFIG.lanes, (CONFIG.weights, CONFIG.activations)
    weights, vector = mantissas(rng, fmts[0], (cycles, n, lanes)), mantissas(rng, fmts[1], (cycles, lanes))
    # Sums at their limits: in some cycles, all mantissas of a row, or of the vector, are the lowest or the highest one.
    for values, fmt in ((weights, fmts[0]), (vector, fmts[1])):
        whole = rng.random(values.shape[:-1]) < 0.3
        values[whole] = rng.choice((fmt.lowest, fmt.highest), (np.count_nonzero(whole), 1))
    scales, scale = exponents(rng, fmts[0], (cycles, n)), exponents(rng, fmts[1], cycles)
    integer = rng.random(cycles) < 0.3

    after = TileEngine.weights_after
    coming = (np.arange(cycles)[:, None] - after - LATE) % cycles  # the record of each row that comes in a cycle
    late = {"mantissas": stored(weights, fmts[0])[coming, np.arange(n)], "exponent": scales[coming, np.arange(n)]}
    inputs = {"operand": pack(operand(CONFIG), {"mantissas": stored(vector, fmts[1]), "exponent": scale}),
              "integer": integer, "weights": pack(data.ArrayLayout(record(CONFIG), n), late)}
    shown = unpack(data.ArrayLayout(signed(WIDTH), n), (await drive_pipeline(dut, inputs, ["o"], LATENCY))["o"])
    leaving = (np.arange(cycles)[:, None] + LATE) % cycles
    got = np.asarray(shown)[leaving, np.arange(n)]
    sums = lane_sums(weights[None], vector, lanes)[0, :, :, 0].astype(object)
    shift = np.where(integer[:, None], 0, CONFIG.alignment + scales + scale[:, None]).astype(object)
    # The last weights came after the last operand.
    assert_equal("o", got, wrap(sums << shift, WIDTH), where=np.arange(cycles)[:, None] < cycles - after - max(LATE),
                 integer=integer, weights=weights, vector=vector, weight_exponent=scales, vector_exponent=scale)
