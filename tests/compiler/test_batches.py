"""Networks of vectors that take several samples at once: each sample has the bits that it has alone."""

from dataclasses import replace

import concord
import numpy as np
import pytest
from concord.campaigns.makers import networks
from concord.campaigns.makers.image_networks import ROOM, ImageNetworkMaker
from concord.compiler.network import compile_network, full_precision
from concord.firmware.firmware_file import load_firmware, save_firmware
from concord.firmware.session import Session, outputs_of
from concord.net import network
from concord.net.model import INPUT, Model
from concord.sim.machines.host import machine as host
from concord.spec.host.registers import Counter
from concord.spec.machine.config import Config, preset
from concord.twin.flow.flow_of import flow_of
from concord.twin.recovery.recover import recover

TINY = replace(preset("tiny"), dram_words=1 << 20, dram_bus=8)
DRAM = {"dram_words": 1 << 20, "dram_bus": 8}


def roomy(name: str, **changes) -> Config:
    return replace(preset(name), **ROOM | DRAM | {"vector_rf": 512} | changes)


def perceptron(config: Config, sizes: list[int], *, block: bool) -> Model:
    return networks.mlp(np.random.default_rng(3), config, sizes, block=block)


@pytest.mark.parametrize("block", [False, True])
@pytest.mark.parametrize("batch", [2, 5, 16])
@pytest.mark.parametrize("name", ["tiny", "vision", "wide", "ulx3s"])
def test_each_sample_has_its_own_bits(name, batch, block):
    config = roomy(name)
    model = perceptron(config, [19, 30, 11, 7], block=block)
    samples = networks.inputs(np.random.default_rng(0), 2 * batch - 1, model.inputs)
    firmware = compile_network(model, config, batch=batch).firmware
    assert (firmware.batch, firmware.inputs, firmware.outputs) == (batch, 19, 7)
    assert np.array_equal(outputs_of("golden", firmware, samples), network.outputs(model, samples))


def test_a_batch_shares_the_tiles_that_are_loaded(tmp_path):
    """Words of tiles that are read for each run are those of one sample."""
    config = roomy("vision", matrix_tiles=16)
    model = perceptron(config, [60, 90, 33, 7], block=False)
    samples, read = networks.inputs(np.random.default_rng(0), 8, model.inputs), {}
    for batch in (1, 8):
        save_firmware(compile_network(model, config, batch=batch).firmware, tmp_path / "net.firmware")
        firmware = load_firmware(tmp_path / "net.firmware")
        with host("golden", config) as golden:
            session = Session(golden, firmware)
            outputs = session.infer_all(list(samples))
            read[batch] = session.counters()[Counter.READ_DRAM]
        assert np.array_equal(outputs, network.outputs(model, samples))
    assert 0 < read[8] <= read[1] / 7


def test_hardware_agrees():
    model = perceptron(TINY, [11, 13, 5], block=False)
    samples = networks.inputs(np.random.default_rng(0), 5, model.inputs)
    firmware = compile_network(model, TINY, batch=4).firmware
    assert np.array_equal(outputs_of("library", firmware, samples), network.outputs(model, samples))


def test_what_takes_no_batch():
    rng = np.random.default_rng(0)
    images = ImageNetworkMaker(rng, TINY, (2, 3, 3), block=False)
    images.dense(images.conv(INPUT, 3, (2, 2)), 2)
    sequences = networks.recurrent(rng, TINY, [8, 8], block=[False])
    for model, what in ((images.model(), "takes images"), (sequences, "takes sequences")):
        with pytest.raises(ValueError, match=what):
            compile_network(model, TINY, batch=4)


@pytest.mark.parametrize("samples", [
    np.zeros((5, 11), np.uint16), np.zeros((4, 12), np.uint16), np.zeros((0, 11), np.uint16), np.zeros(12, np.uint16),
    np.zeros(11, np.float32)])
def test_samples_that_are_no_batch(samples):
    firmware = compile_network(perceptron(TINY, [11, 13, 5], block=False), TINY, batch=4).firmware
    with pytest.raises(ValueError, match=r"takes uint16\[1 to 4, 11\], not"):
        firmware.words_of(samples)


def test_a_batch_of_no_sample_and_full_precision():
    model = perceptron(TINY, [11, 13, 5], block=False)
    with pytest.raises(ValueError, match="one at least"):
        compile_network(model, TINY, batch=0)
    with pytest.raises(ValueError, match="takes 4 samples at once"):
        full_precision(model, compile_network(model, TINY, batch=4).firmware)


def test_python_takes_batches(tmp_path):
    path, options = "data/models/fashion-mlp-w4a4.safetensors", {"preset": "ulx3s_dram", "batch": 8}
    found = concord.verify(path, machine="golden", samples=20, report=tmp_path, **options)
    assert (found.verified.reference_bits, found.verified.parts[0].batch) == (0, 8)
    assert concord.compile(path, **options).firmware.batch == 8


def test_twins_take_one_sample():
    """The twins of layers, and those of any program, which `nnp run --twin` compares with."""
    firmware = compile_network(perceptron(TINY, [11, 13, 5], block=False), TINY, batch=4).firmware
    for made in (recover, flow_of):
        with pytest.raises(ValueError, match="a twin takes one input at a time"):
            made(firmware)
