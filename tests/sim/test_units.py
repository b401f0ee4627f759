"""Run the testbench of every unit under Verilator; `nox -s regress` does so in more configurations and seeds."""

from dataclasses import replace

import pytest
from concord.hw.mvm.quantizer import Quantizer
from concord.sim.machines.build import run
from concord.sim.units import CONFIGURATIONS, TESTBENCHES
from concord.spec.machine.config import preset
from concord.spec.numbers.formats import Format


def test_unit(job, record_property):
    """The testbench passes."""
    for name in ("unit", "config", "seed"):
        record_property(name, getattr(job, name))
    failure = None
    try:
        record_property("folder", str(job.run()))
    except (AssertionError, RuntimeError) as error:
        failure = f"{error}\nRepeat with: {job.command}"
    if failure:
        pytest.fail(failure, pytrace=False)


@pytest.mark.parametrize(("name", "changes"), [
    ("accumulator", {}),
    ("mvm", {"lanes": 8, "matrix_tiles": 64}),  # a beat for each step
])
def test_two_engines_count_sums_of_more_than_62_bits(name, changes):
    TESTBENCHES[name].run(replace(preset("tiny"), tile_engines=2, **changes))


#: Machines of floats and powers of two: powers of two in every exponent of a block, on one side or on both, with one
#: lane; floats of other shapes, some under an exponent that their block shares; and the widest beside mantissas.
FLOATS = {
    "serial": replace(preset("serial"), weights=Format.floating(2, 0, e_min=-3, e_max=4)),
    "both": replace(preset("tiny"), weights=Format.floating(3, 0), activations=Format.floating(2, 0), multipliers=0),
    "shared": replace(preset("wide"), weights=Format.floating(2, 1, e_min=-6, e_max=9), multipliers=0,
                      activations=Format.floating(3, 2, e_min=-15, e_max=0), lanes=2, tile_engines=1),
    "E5M2": replace(preset("tiny"), weights=Format(bits=8, e_min=0, e_max=1), multipliers=8,
                    activations=Format.floating(5, 2, e_min=8, e_max=8))}


@pytest.mark.parametrize(("name", "machine"), [
    *(("tile_engine", name) for name in FLOATS), ("quantizer", "both"), ("mvm", "both")])
def test_floats(name, machine):
    TESTBENCHES[name].run(FLOATS[machine])


@pytest.mark.parametrize("fmt", [Format.floating(4, 3), Format.floating(5, 2)], ids=lambda fmt: fmt.element)
def test_every_number_becomes_a_float(fmt):
    TESTBENCHES["quantizer"].run(replace(preset("tiny_float"), acc_frac=55, weights=Format(bits=8), lanes=16,
                                         mfu_lanes=16, native_dim=16, activations=replace(fmt, e_min=0, e_max=0)))


def test_stages_of_three_registers():
    TESTBENCHES["mfu_pipeline"].run(replace(preset("tiny"), mfu_registers=3))


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_blocks_that_end_early(name):
    config, bench = preset(name), TESTBENCHES["quantizer"]
    dut = Quantizer(config.activations, config.mfu_lanes, config.native_dim, short=True)
    run(dut, bench.module, CONFIG=name, SHORT="True")


#: Words as large as a beat, two words in a beat, and two beats to a word; tiles of 4, of 13 and of 17 words.
WITH_DRAM = {name: replace(preset(name), dram_words=1 << 20, dram_bus=8) for name in ("tiny", "serial", "wide")}


@pytest.mark.parametrize(("name", "machine"), [("interlock", "wide"), *(("copy", name) for name in WITH_DRAM)])
def test_chains_that_name_dram(name, machine):
    """Chains from and to Dram keep the order of the program, beside all others."""
    TESTBENCHES[name].run(WITH_DRAM[machine])


def test_entries_of_several_units_leave():
    """A beat holds a word, and an entry fills two beats and a half."""
    config = replace(preset("tiny"), native_dim=16, mfu_lanes=4, message_bytes=8,
                     activations=Format(bits=7, e_min=-11, e_max=4))
    TESTBENCHES["message_output"].run(config)
