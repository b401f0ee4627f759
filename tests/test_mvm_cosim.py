"""The units of the matrix-vector multiplier under Verilator, against golden."""

import pytest

from sim.build import run
from sim.units import CONFIGURATIONS, UNITS
from spec.config import preset

ARITHMETIC = ("quantizer", "matrix_loader", "tile_engine", "overflow", "accumulator", "converter", "mvm")
#: They move and order words; several engines exercise them most.
CONTROL = ("row_tiles", "beat_sequencer", "matrix_rf", "operand_buffer", "steering", "result_sequencer", "bias_rf")

CASES = [(name, config) for name in ARITHMETIC for config in CONFIGURATIONS] + [(name, "wide") for name in CONTROL]


@pytest.mark.parametrize(("name", "config"), CASES)
def test_unit(name, config):
    dut = UNITS[name].component(preset(config))
    run(dut, f"sim.{name}", CONFIG=config, **UNITS[name].environment(dut))
