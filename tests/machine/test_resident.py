"""Firmware without its loads: the same bits on a machine that holds all tiles, and twins of it."""

from dataclasses import replace

import numpy as np
import pytest
from concord.campaigns.makers import networks
from concord.compiler.network import compile_network
from concord.firmware.resident import resident
from concord.firmware.session import Session
from concord.net.model_file import load_model
from concord.sim.machines.host import machine
from concord.spec.isa.instructions import Op, decode
from concord.spec.isa.memories import Mem
from concord.spec.machine.config import preset
from concord.tests.twin import recovered

ROOM = {"instructions": 4096, "initial_vrf": 2048, "addsub_vrf": 2048, "multiply_vrf": 2048, "bias_words": 1024,
        "mvmq_words": 256, "operand_columns": 16, "dram_words": 1 << 20, "dram_bus": 8}
TINY = replace(preset("tiny"), **ROOM, matrix_tiles=16)


def model_of(name: str, block: bool):
    rng = np.random.default_rng(3)
    if name == "lstm":
        return networks.recurrent(rng, TINY, [12, 20, 10], block=[block, block])
    return networks.mlp(rng, TINY, [40, 40, 40, 9], block=block)


@pytest.mark.parametrize("block", [False, True])
@pytest.mark.parametrize("name", ["mlp", "lstm"])
def test_the_same_bits_without_loads(name, block):
    model = model_of(name, block)
    firmware = compile_network(model, TINY).firmware
    whole = resident(firmware)
    assert not any(one.op == Op.M_RD for one in map(decode, whole.instruction_words.tolist()))
    assert whole.config.matrix_tiles == len(whole.tiles.integer) > TINY.matrix_tiles
    assert Mem.DRAM not in whole.vectors
    steps = (5,) if name == "lstm" else ()
    for sample in networks.inputs(np.random.default_rng(1), 3, *steps, model.inputs):
        wanted, got = (Session(machine("golden", one.config), one).infer(sample) for one in (firmware, whole))
        np.testing.assert_array_equal(got, wanted)
    assert {one.layer for one in whole.sections} == {one.layer for one in firmware.sections}


@pytest.mark.parametrize("block", [False, True])
@pytest.mark.parametrize("name", ["mlp", "lstm"])
def test_twins(name, block):
    model, steps = model_of(name, block), (5,) if name == "lstm" else ()
    recovered.agree(TINY, model, networks.inputs(np.random.default_rng(1), 3, *steps, model.inputs))


def test_images():
    model = load_model("data/models/fashion-resnet-w8.safetensors")
    firmware = compile_network(model, replace(preset("vision_dram"), matrix_tiles=64)).firmware
    assert len(resident(firmware).tiles.integer) == 112
    recovered.agree(firmware.config, model, networks.inputs(np.random.default_rng(1), 1, model.inputs))


def test_firmware_without_loads_is_itself():
    firmware = compile_network(model_of("mlp", False), replace(TINY, matrix_tiles=512)).firmware
    assert resident(firmware) is firmware


def test_machines_of_several_engines():
    """MatrixRf holds a multiple of their number."""
    config = replace(preset("speech"), dram_words=1 << 16, dram_bus=8, matrix_tiles=12)
    model = networks.mlp(np.random.default_rng(3), config, [70, 33, 33, 9], block=False)
    whole = resident(compile_network(model, config).firmware)
    assert len(whole.tiles.integer) % 2 == 1
    recovered.agree(config, model, networks.inputs(np.random.default_rng(1), 2, model.inputs))
