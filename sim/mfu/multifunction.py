"""Testbench of hw.mfu.multifunction against sim.reference.multifunction."""

import cocotb
import numpy as np
from amaranth.lib import data
from concord.hw.lib.payloads import control as control_shape
from concord.hw.lib.payloads import turn as turn_shape
from concord.sim.drivers.bench import CONFIG, assert_equal, pack, unpack
from concord.sim.drivers.stream import drive_pipeline
from concord.sim.reference.multifunction import multifunction, turns
from concord.spec.isa.operations import TAPS, Stage, Tap, codes
from concord.spec.machine import timing

CONFIGURATIONS = ("tiny", "serial", "wide", "tiny_vector")
MUTANTS = (  #: Lines that the campaign `mutants` breaks, one at a time: a test must fail.
    {"old": "delay(m, self.control.mul, self.factor_at)", "new": "delay(m, self.control.mul, self.factor_at - 1)"},
)

LANES, MORE, REGISTERS = CONFIG.mfu_lanes, CONFIG.more_functions, CONFIG.mfu_registers
FACTOR_AT, LATENCY = timing.factor_due(LANES, REGISTERS, more=MORE), timing.mfu(LANES, REGISTERS, more=MORE)
WORD = data.ArrayLayout(16, LANES)
BROUGHT = data.ArrayLayout(WORD, TAPS)


@cocotb.test()
async def matches_golden(dut):
    """Random words and taps, half of them numbers near one; the control changes every cycle."""
    rng, count = np.random.default_rng(cocotb.RANDOM_SEED), 4000
    value, addend, factor = rng.integers(0, 1 << 16, (3, count, LANES), dtype=np.uint16)
    calm = rng.random(count) < 0.5
    for word in (value, addend, factor):
        word[calm] = word[calm] & 0x8FFF | 0x3000
    taps = rng.integers(0, 1 << 16, (count, TAPS, LANES), dtype=np.uint16)
    control = {stage.name.lower(): rng.choice(codes(stage, more=MORE), count) for stage in Stage}
    control["tap"] = rng.integers(0, len(Tap), (count, TAPS))
    turn = turns(rng, count, LANES) if MORE else None
    want, want_taps = multifunction(value, addend, factor, taps, turn=turn, **control)

    late = np.roll(factor, FACTOR_AT, axis=0)
    late[:FACTOR_AT] = 0x5555
    inputs = {"value": pack(WORD, value), "addend": pack(WORD, addend), "factor": pack(WORD, late),
              "tap": pack(BROUGHT, taps), "control": pack(control_shape(more=MORE), control)}
    if MORE:
        inputs["turn"] = pack(turn_shape(LANES), turn)
    got = await drive_pipeline(dut, inputs, ["value_out", "tap_out"], LATENCY)
    done = np.arange(count) < count - FACTOR_AT  # words whose factor came before the stream ended
    given = {"value": value, "addend": addend, "factor": factor}
    given |= {each.name.lower(): (control[each.name.lower()], each) for each in Stage} | {"tap": (control["tap"], Tap)}
    assert_equal("value_out", unpack(WORD, got["value_out"]), want, where=done[:, None], **given)
    assert_equal("tap_out", unpack(BROUGHT, got["tap_out"]), want_taps, **given)
