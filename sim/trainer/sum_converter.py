# amaranth: UnusedElaboratable=no
"""Testbench of hw.trainer.sum_converter: mantissas of golden.lazy.tensor, lengths of golden.trainer.exponents."""

import cocotb
import numpy as np
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from concord.golden.lazy.tensor import requantize
from concord.golden.trainer.exponents import length as golden_length
from concord.hw.trainer.sum_converter import (
    LENGTH_CYCLES,
    SumConverter,
    converted_mantissas,
    converted_sums,
    length,
)
from concord.hw.trainer.wires import LENGTH
from concord.sim.drivers.bench import CONFIG, assert_equal, pack, unpack
from concord.sim.drivers.stream import drive_pipeline
from concord.spec.machine.config import preset
from concord.spec.numbers.lazy import ACCUMULATOR_BITS

CONFIGURATIONS = ("tiny", "serial", "wide")
TESTED = ("tiny", "wide")
MUTANTS = (  #: Lines that the campaign `mutants` breaks, one at a time: a test must fail.
    {"old": "half ^ negative)", "new": "half)"},
    {"old": "whole[bits - 1:].any()", "new": "whole[bits:].any()"},
    {"old": "(rounded & ~negative)", "new": "rounded"},
    {"old": 'lane["beyond"] | value[kept:].any()', "new": 'lane["beyond"]'},
    {"old": '{"beyond": beyond, "end": end ^', "new": '{"beyond": lane["beyond"], "end": end ^'},
    {"old": 'lane["beyond"] | above', "new": "above"},
    {"old": "below & some.replicate(len(below))", "new": "below"},
    {"old": "below + 1", "new": "below"},
)
RIGHT = -32, 63  #: Ends of shifts.


class MeasuredSums(wiring.Component):
    """A converter, and the length of each word."""

    def __init__(self, lanes: int, planes: int):
        self.converter = SumConverter(lanes, planes)
        super().__init__(
            {"i": In(converted_sums(lanes)), "o": Out(converted_mantissas(lanes, planes)), "length": Out(LENGTH)}
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.converter = converter = self.converter
        m.d.comb += [converter.i.eq(self.i), self.o.eq(converter.o), self.length.eq(length(m, converter.o.found))]
        return m


def component(config) -> MeasuredSums:
    """A converter to mantissas of one, two or four planes."""
    planes = {preset("tiny"): 1, preset("serial"): 2}.get(config, 4)
    return MeasuredSums(2 * planes, planes)


CONVERTER = component(CONFIG).converter
LANES, PLANES, LATENCY = CONVERTER.lanes, CONVERTER.planes_most, CONVERTER.latency


def random_words(rng, count: int) -> dict[str, np.ndarray]:
    """Words of sums of all sizes, mostly under shifts that bring the largest one near the end of its range."""
    shape, top = (count, LANES), 1 << ACCUMULATOR_BITS - 1
    shift, sign = rng.integers(0, ACCUMULATOR_BITS - 1, shape), rng.choice([-1, 1], shape)
    anything = rng.integers(-top, top, shape)
    kinds = [
        anything,
        anything >> shift,
        anything >> rng.integers(ACCUMULATOR_BITS, size=(count, 1)),
        sign << shift,
        (sign << shift) + rng.integers(-1, 2, shape),
        (2 * rng.integers(-64, 64, shape) + 1) << np.minimum(shift, ACCUMULATOR_BITS - 9),
        rng.choice([0, 0, 1, -1, -top], shape),
        np.zeros(shape, np.int64),
    ]
    sums = np.clip(np.choose(rng.integers(len(kinds), size=(count, 1)), kinds), -top, top - 1)
    planes = rng.choice([number for number in (1, 2, 4) if number <= PLANES], count)
    near = np.array([golden_length(word) for word in sums]) - 8 * planes + rng.integers(-2, 3, count)
    right = np.where(rng.random(count) < 0.6, near, rng.integers(RIGHT[0], RIGHT[1] + 1, count))
    return {"valid": rng.integers(0, 2, count), "sums": sums, "right": np.clip(right, *RIGHT), "planes": planes}


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def matches_golden(dut):
    """A word every cycle: mantissas, what is found, and the length."""
    rng, count = np.random.default_rng(cocotb.RANDOM_SEED), 6000
    words = random_words(rng, count)
    given = {"i": pack(converted_sums(LANES), words)}
    got = await drive_pipeline(dut, given, ["o"], LATENCY)
    found = unpack(converted_mantissas(LANES, PLANES), got["o"])
    sums, bits, right = words["sums"], 8 * words["planes"][:, None], words["right"][:, None]
    expected = np.array(
        [
            requantize(word, 0, 8 * planes, exponent=right + 8 * planes - 1).mantissas
            for word, planes, right in zip(sums, words["planes"].tolist(), words["right"].tolist(), strict=True)
        ]
    )
    assert_equal("mantissas", found["mantissas"], expected, sum=sums, right=right + 0 * sums, bits=bits + 0 * sums)
    assert_equal("valid", found["valid"], words["valid"])
    below = np.bitwise_or.reduce(np.where(sums != 0, np.abs(sums) - 1, 0), 1)
    some = (sums != 0).any(1).astype(np.int64)
    assert_equal("found", found["found"], below | some << ACCUMULATOR_BITS, sums=sums)
    got = await drive_pipeline(dut, given, ["length"], LATENCY + LENGTH_CYCLES)
    assert_equal("length", got["length"], [golden_length(word) for word in sums], sums=sums)
