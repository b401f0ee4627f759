"""Every unit under Verilator, by its testbench; the whole machine has its own tests."""

import pytest
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
