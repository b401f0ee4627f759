# amaranth: UnusedElaboratable=no
"""The hardware has the latencies that `spec.machine.timing` says."""

import gc
from dataclasses import replace

import pytest
from amaranth.hdl import UnusedElaboratable
from concord.campaigns.lint_machines import random_machine
from concord.hw.mfu.mfu_pipeline import MfuPipeline
from concord.hw.mvm.mvm import MatrixVectorMultiplier
from concord.hw.mvm.quantizer import Quantizer
from concord.hw.mvm.tile_engine import TileEngine
from concord.spec.machine import timing
from concord.spec.machine.config import PRESETS, preset


@pytest.fixture(scope="module", autouse=True)
def unused():
    """Components, and those inside them, are asked for their latency alone, of which Amaranth would warn."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(UnusedElaboratable, "_MustUse__silence", True)
        yield
        gc.collect()


@pytest.mark.parametrize("config", [*(it for it in PRESETS.values() if it.native_dim < 400),
                                    *map(random_machine, range(20))])
def test_latencies_of_a_product(config):
    assert TileEngine(config).latency == timing.tile_engine(config)
    quantizer = Quantizer(config.activations, config.mfu_lanes, config.native_dim)
    assert quantizer.latency == timing.quantizer(config.mfu_lanes)
    assert MatrixVectorMultiplier(config).latency == timing.product(config)


def test_stages_of_three_registers():
    shallow = replace(preset("vision"), mfu_registers=3)
    assert timing.operands_due(shallow) == (0, 9, 6, 15)
    assert MfuPipeline(shallow).latency == 20
