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


#: Machines whose weights are powers of two: in every exponent of a block, and with one lane.
LOGARITHMIC = {
    "tiny": replace(preset("tiny"), weights=Format.floating(3, 0), multipliers=0),
    "serial": replace(preset("serial"), weights=Format.floating(2, 0, e_min=-3, e_max=4))}


@pytest.mark.parametrize(("name", "config"), [
    *(("tile_engine", name) for name in LOGARITHMIC), ("matrix_loader", "tiny"), ("mvm", "tiny")])
def test_weights_that_are_powers_of_two(name, config):
    TESTBENCHES[name].run(LOGARITHMIC[config])


def test_the_quantizer_of_powers_of_two():
    config = replace(LOGARITHMIC["tiny"], activations=LOGARITHMIC["tiny"].weights)
    TESTBENCHES["quantizer"].run(config)


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_blocks_that_end_early(name):
    config, bench = preset(name), TESTBENCHES["quantizer"]
    dut = Quantizer(config.activations, config.mfu_lanes, config.native_dim, short=True)
    run(dut, bench.module, CONFIG=name, SHORT="True")
