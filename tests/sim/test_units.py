"""Every unit under Verilator, by its testbench; the whole machine has its own tests."""

from dataclasses import replace

import pytest
from concord.sim.drivers.configs import to_text
from concord.sim.machines.build import run
from concord.sim.units import UNITS, testbench
from concord.spec.config import preset

#: Their arithmetic depends on formats and widths; the others move and order words, which several engines and the widest
#: beats exercise most.
ARITHMETIC = ("quantizer", "tensor_quantizer", "lazy_update", "matrix_loader", "tile_engine", "overflow", "accumulator",
              "converter", "mvm", "normalizer")

CASES = [(name, config) for name, unit in UNITS.items() if name != "nnp"
         for config in (unit.configurations if name in ARITHMETIC else unit.configurations[-1:])]


@pytest.mark.parametrize(("name", "config"), CASES)
def test_unit(name, config):
    dut = UNITS[name].component(preset(config))
    run(dut, testbench(name), CONFIG=config, **UNITS[name].environment(dut))


@pytest.mark.parametrize("name", ["accumulator", "mvm"])
def test_two_engines_count_sums_of_more_than_62_bits(name):
    config = replace(preset("tiny"), tile_engines=2)
    dut = UNITS[name].component(config)
    run(dut, testbench(name), CONFIG=to_text(config), **UNITS[name].environment(dut))
