"""The units of the matrix-vector multiplier under Verilator, against golden."""

import pytest

from hw.mvm import MatrixVectorMultiplier
from hw.quantizer import Quantizer
from sim.build import run
from spec.config import preset

CONFIGS = ("tiny", "serial", "wide")


@pytest.mark.parametrize("name", CONFIGS)
def test_quantizer(name):
    config = preset(name)
    dut = Quantizer(config.activations, config.mfu_lanes, config.native_dim)
    run(dut, "sim.quantizer", CONFIG=name, LATENCY=str(dut.latency))


@pytest.mark.parametrize("name", CONFIGS)
def test_mvm(name):
    run(MatrixVectorMultiplier(preset(name)), "sim.mvm", CONFIG=name)
