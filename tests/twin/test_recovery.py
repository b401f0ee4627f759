"""Recovered scripts return golden's bits, and say what the layers of the network are."""

from dataclasses import replace

import numpy as np
import pytest
from concord.campaigns.makers import networks
from concord.campaigns.makers.image_networks import ImageNetworkMaker, geometry
from concord.campaigns.twin_random import calls, results
from concord.compiler.network import compile_network
from concord.firmware.firmware import Section, Tiles
from concord.firmware.firmware_file import load_firmware, save_firmware
from concord.net import network
from concord.net.cells.registry import CELLS
from concord.net.model import INPUT
from concord.net.model_file import load_model
from concord.spec.isa.memories import Mem
from concord.spec.machine.config import PRESETS
from concord.spec.numbers.activation import Activation
from concord.tests import small_networks
from concord.tests.compiler.test_image_networks import roomy
from concord.tests.test_rooms import ROOT
from concord.tests.twin.bare_firmware import bare
from concord.tests.twin.recovered import agree, golden
from concord.twin.recovery.layers.naming import reserved
from concord.twin.recovery.nodes.elements import Unrecognised
from concord.twin.recovery.recover import recover, without_hints

SHIPPED = {"fashion-mlp-bfp8": "trainer", "fashion-mlp-w4a4": "ulx3s", "vowels-lstm-w8": "vision",
           "fashion-resnet-w8": "vision"}
BLOCK = pytest.mark.parametrize("block", [False, True], ids=["integers", "blocks"])


def shipped(name: str):
    """Firmware of a shipped network."""
    return compile_network(load_model(ROOT / f"data/models/{name}.safetensors"), PRESETS[SHIPPED[name]]).firmware


def random_inputs(firmware, count: int) -> np.ndarray:
    """Random samples, sequences of seven time steps."""
    rng = np.random.default_rng(0)
    shape = (count, firmware.steps or 7, firmware.inputs) if firmware.recurrent else (count, firmware.inputs)
    return networks.inputs(rng, *shape)


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_networks(name):
    firmware = shipped(name)
    samples = random_inputs(firmware, 20)
    wanted = golden(firmware, samples)
    for each in (firmware, without_hints(firmware)):
        script = recover(each)
        np.testing.assert_array_equal(results(script, samples), wanted)
        assert "take" not in {call.function for call in calls(script)}  # no table of elements is stored


@pytest.mark.parametrize("name", SHIPPED)
def test_places_of_weights_and_vectors_in_the_firmware(name):
    firmware = shipped(name)
    memories = {"matrix_rf": firmware.tiles.mantissas.reshape(-1), "bias_rf": firmware.biases.reshape(-1)}
    memories |= {mem.name.lower(): words.reshape(-1).view(np.float16) for mem, words in firmware.vectors.items()}
    tensors = recover(firmware).tensors
    assert {tensor.memory for tensor in tensors.values()} >= {"matrix_rf"}
    for tensor in tensors.values():
        if tensor.memory:
            known, held = tensor.places >= 0, memories[tensor.memory][np.maximum(tensor.places, 0)]
            if tensor.memory == "matrix_rf" and not firmware.tiles.integer.any():
                exponents = firmware.tiles.exponents.reshape(-1)[tensor.places // firmware.config.native_dim]
                held = np.ldexp(held.astype(float), exponents.astype(int) - firmware.config.weights.bits + 1)
            np.testing.assert_array_equal(tensor.values[known], held[known])
            assert not tensor.values[~known].any()


def test_weights_of_the_shipped_networks_are_those_of_the_model():
    model = load_model(ROOT / "data/models/fashion-mlp-w4a4.safetensors")
    tensors = recover(shipped(model.name)).tensors
    for layer in model.layers:
        np.testing.assert_array_equal(tensors[f"{layer.name}.weights"].values, layer.weights)


def test_routines_of_the_shipped_lstm():
    script = recover(shipped("vowels-lstm-w8"))
    step, output = script.routines
    assert (step.name, step.parameters, step.results) == ("lstm1", ("x", "h", "c"), ("h", "c"))
    assert step.title == "LSTM of 32 cells, one time step."
    assert output.name == "output"
    assert {"lstm1.input_weights", "lstm1.recurrent_weights", "lstm1.f_scale", "lstm1.initial_h"} <= set(script.tensors)
    plain = recover(without_hints(shipped("vowels-lstm-w8")))
    assert [routine.name for routine in plain.routines] == ["lstm1", "dense1"]


def test_one_bit_of_a_weight_changes_the_results():
    firmware = shipped("fashion-mlp-bfp8")
    mantissas = firmware.tiles.mantissas.copy()
    mantissas[-1, 0, 0] ^= 1
    changed = replace(firmware, tiles=replace(firmware.tiles, mantissas=mantissas))
    samples = random_inputs(firmware, 4)
    assert (results(recover(changed), samples) != golden(firmware, samples)).any()
    np.testing.assert_array_equal(results(recover(changed), samples), golden(changed, samples))


def test_hints_travel_with_the_firmware_and_may_be_absent(tmp_path):
    firmware = shipped("vowels-lstm-w8")
    save_firmware(firmware, tmp_path / "firmware")
    sections = load_firmware(tmp_path / "firmware").sections
    assert sections == firmware.sections
    step = next(section for section in sections if section.kind)
    assert step.kind == "lstm"
    assert [name for _, name in step.names] == ["f", "i", "o", "j"]
    # A file without hints has sections of three attributes.
    assert Section(layer="lstm1", first=step.first, last=step.last) == replace(step, kind="", names=())


#: A state of seven elements, and a product that reads the eighth number of its word, too.
STATE = """s_wr Rows, 7
loop 1
v_rd NetQ
v_wr AddSubVrf0, 0
end_chain
v_rd InitialVrf, 0
mv_mul 0
vv_add0 0
v_wr InitialVrf, 0
end_chain
end_loop
v_rd InitialVrf, 0
v_wr NetQ
end_chain
end"""


def test_only_the_first_time_step_reads_a_number_that_no_time_step_writes():
    config, rng = PRESETS["tiny"], np.random.default_rng(0)
    size, first = config.native_dim, rng.normal(size=config.native_dim).astype(np.float16)
    first[7] = 900
    tiles = Tiles(mantissas=rng.integers(-100, 100, (1, size, size)).astype(np.int16),
                  exponents=np.zeros((1, size), np.int8), integer=np.zeros(1, bool))
    firmware = replace(bare(config, STATE, loop=1), inputs=7, outputs=7, tiles=tiles,
                       vectors={Mem.INITIAL_VRF: first.view(np.uint16).reshape(-1, config.mfu_lanes)})
    samples = networks.inputs(rng, 1, 4, 7)
    np.testing.assert_array_equal(results(recover(firmware), samples), golden(firmware, samples))


LOADS = "m_rd NetQ\nm_wr MatrixRf, 0\nend_chain\nv_rd NetQ\nmv_mul 0\nv_wr NetQ\nend_chain\nend"
#: The second word of the vector is added to what the first one has left.
RUNNING = "v_rd NetQ\nvv_add0 1\nv_wr AddSubVrf0, 2\nv_wr NetQ\nend_chain\nend"


@pytest.mark.parametrize(("text", "reason"), [(LOADS, "loads weights"), (RUNNING, "words of one iteration")])
def test_programs_without_layers_are_refused(text, reason):
    config = PRESETS["vision"]
    size = config.native_dim
    firmware = replace(bare(config, text), inputs=(size + 1) * size, outputs=size)
    with pytest.raises(Unrecognised, match=reason):
        recover(firmware)


@BLOCK
@pytest.mark.parametrize("cell", CELLS)
def test_cells(cell, block):
    config = replace(PRESETS["speech"], mvmq_words=int(block) * 60 + 4)  # gates in pieces, or all in one product
    rng = np.random.default_rng(0)
    model = networks.recurrent(rng, config, [5, 13, 10], block=[block, block], outputs=9, cell=CELLS[cell])
    script = agree(config, model, networks.inputs(rng, 3, 4, 5))
    assert [routine.name for routine in script.routines][-1] == "dense_layer"


def test_no_layer_has_a_name_that_a_twin_has_already():
    torch = pytest.importorskip("torch")
    assert all(reserved(name) for name in vars(torch.nn.Module()) | vars(torch.nn.Module) if name[0] != "_")
    config, rng = PRESETS["tiny"], np.random.default_rng(0)
    model = networks.mlp(rng, config, [5, 6, 4], block=False)
    first, last = model.layers
    script = agree(config, replace(model, layers=(replace(first, name="forward"), replace(last, name="class"))),
                   networks.inputs(rng, 3, 5))
    assert [routine.name for routine in script.routines] == ["forward_layer", "class_layer"]


@BLOCK
def test_both_directions(block):
    config, rng = PRESETS["speech"], np.random.default_rng(0)
    model = networks.both_directions(rng, config, block=block, cell=CELLS["lstm"])
    agree(config, model, networks.inputs(rng, 3, 4, 5))


@pytest.mark.parametrize("seed", range(3))
@BLOCK
def test_convolutions(block, seed):
    rng, config = np.random.default_rng(seed), roomy("vision")
    images = ImageNetworkMaker(rng, config, (int(rng.integers(1, 20)), 6, 7), block=block)
    size, options = geometry(rng, images.shapes[INPUT])
    at = images.conv(INPUT, 18, size, **options)
    size, options = geometry(rng, images.shapes[at])
    images.conv(at, 6, size, groups=3, activation=Activation.TANH, **options)
    agree(config, images.model(), networks.inputs(rng, 3, images.model().inputs))


@BLOCK
def test_maxima_averages_sums_and_joined_images(block):
    rng, config = np.random.default_rng(0), roomy("vision")
    images = ImageNetworkMaker(rng, config, (3, 8, 8), block=block)
    at = images.conv(INPUT, 16, padding=(1, 1, 1, 1))
    other = images.conv(at, 16, padding=(1, 1, 1, 1), groups=16)
    at = images.maximum(images.sum(at, other), (3, 3), stride=(2, 2), padding=(1, 1, 1, 1))
    at = images.concat(at, images.conv(at, 32, (1, 1)))
    images.dense(images.average(at, (4, 4)), 10)
    script = agree(config, images.model(), networks.inputs(rng, 3, images.model().inputs))
    functions = [call.function for call in calls(script)]
    assert functions.count("convolution") == 4
    assert functions.count("dense") == 1
    assert "max_pool" in functions
    assert "take" not in functions


@BLOCK
def test_convolution_before_a_recurrent_layer(block):
    rng, config = np.random.default_rng(0), roomy("vision", operand_columns=64)
    model = small_networks.keyword_spotter(rng, config, block=block, steps=6, cell=CELLS["gru"])
    agree(config, model, networks.inputs(rng, 3, model.steps, model.inputs))


@BLOCK
def test_every_way_between_images_and_sequences(block):
    rng, config = np.random.default_rng(0), roomy("vision", operand_columns=64)
    model = small_networks.small(rng, config, block=block)
    samples = networks.inputs(rng, 3, model.steps, model.inputs)
    agree(config, model, samples)
    assert len(np.unique(network.forward(model, samples)[-1].outputs)) > 1
