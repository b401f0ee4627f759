"""Chains in float64: with all roundings the machine's bits, with none the float network."""

from dataclasses import replace

import numpy as np
import pytest
from concord.campaigns.makers import networks
from concord.campaigns.makers.image_networks import ROOM, ImageNetworkMaker
from concord.compiler.network import compile_network, full_precision
from concord.datasets.dataset import DATA
from concord.datasets.samples import Samples
from concord.firmware.firmware import Firmware
from concord.firmware.firmware_file import load_firmware, save_firmware
from concord.firmware.unquantized import UnquantizedMachine
from concord.golden.lib.float16 import to_real
from concord.net import float_network as reference
from concord.net import network as quantized
from concord.net.cells.registry import CELLS
from concord.net.layers.dense import Dense
from concord.net.layers.joins import Softmax
from concord.net.lowering.full_precision import MemoryNumbers
from concord.net.model import INPUT, Model
from concord.net.model_file import load_model
from concord.spec.isa.memories import Mem
from concord.spec.machine.config import PRESETS
from concord.spec.numbers.activation import Activation
from concord.spec.numbers.formats import Format
from concord.tests.real_networks import assert_bits, compiler_error, network, with_reals
from concord.verification.error_split import ALONE, OUTPUT, ErrorSplit, images_of, split_errors

#: Rounding to float64, with room for long sums.
NONE = 1e-12


KINDS = pytest.mark.parametrize("kind", ["dense", "images", "mixed", *CELLS])
BLOCK = pytest.mark.parametrize("block", [False, True])


def split_of(model: Model, firmware: Firmware, samples: np.ndarray) -> ErrorSplit:
    lengths = np.full(len(samples), samples.shape[1]) if model.recurrent else None
    return split_errors(model, firmware, images_of(model, firmware), Samples(
        inputs=samples, lengths=lengths, labels=None, classes=()))


@KINDS
@BLOCK
@pytest.mark.parametrize("preset", ["tiny", "vision"])
def test_all_roundings_give_the_bits_of_the_machine(preset, block, kind):
    config = replace(PRESETS[preset], **ROOM, operand_columns=64)
    assert_bits(config, *network(kind, np.random.default_rng(2), config, block))


def test_start_values():
    """Those of networks that were quantised elsewhere hold more than the zero point of codes."""
    rng, config = np.random.default_rng(2), PRESETS["tiny"]
    model = networks.mlp(rng, config, [19, 12, 5], block=False)
    layers = [replace(layer, start=layer.start + rng.integers(-99, 100, layer.start.shape)) for layer in model.layers]
    assert_bits(config, replace(model, layers=tuple(layers)), networks.inputs(rng, 2, 19))


@BLOCK
@pytest.mark.parametrize("kind", ["dense", "images"])
def test_elements_with_exponents_of_their_own(kind, block):
    activations = Format.floating(3, 1, e_min=-3, e_max=4)
    config = replace(PRESETS["tiny"], **ROOM, operand_columns=64, multipliers=0, activations=activations)
    assert_bits(config, *network(kind, np.random.default_rng(2), config, block))


@BLOCK
def test_softmax(block):
    rng, config = np.random.default_rng(1), PRESETS["tiny_softmax"]
    model, samples = networks.mlp(rng, config, [9, 12, 7], block=block), networks.inputs(rng, 2, 9)
    model = with_reals(rng, replace(model, layers=(*model.layers, Softmax(name="softmax", inputs=7))))
    assert_bits(config, model, samples)
    assert compiler_error(config, model, samples) < NONE
    compiled = compile_network(model, config)
    split = split_of(model, compiled.firmware, samples)
    assert split.compiled
    assert split.first == ""


@BLOCK
def test_all_parts_of_an_error_together_are_the_error_of_the_machine(block):
    """In a network of one layer, the roundings of this layer alone are all roundings."""
    rng, config = np.random.default_rng(1), PRESETS["tiny"]
    model, samples = with_reals(rng, networks.mlp(rng, config, [19, 5], block=block)), networks.inputs(rng, 3, 19)
    firmware = compile_network(model, config).firmware
    exact, rounded = reference.forward(model, samples)[-1], to_real(quantized.forward(model, samples)[-1].outputs)
    error = np.sqrt(np.square(rounded - exact).sum() / np.square(exact).sum())
    split = split_of(model, firmware, samples)
    assert split.layers[OUTPUT]["together"] == pytest.approx(error)
    assert [parts[ALONE] for parts in split.layers.values() if ALONE in parts] == pytest.approx([error])


def test_parts_of_errors_are_those_of_the_results_of_layers():
    """Of an LSTM, the hidden vector; of an image, all pixels, which are laid out anew for each sample."""
    rng, config = np.random.default_rng(1), replace(PRESETS["tiny"], **ROOM)
    model = with_reals(rng, networks.recurrent(rng, config, [7, 9], block=[False]))
    found = split_of(model, compile_network(model, config).firmware, networks.inputs(rng, 3, 1, 7)).layers
    assert found["lstm0"]["together"] == pytest.approx(found[OUTPUT]["together"])
    model, samples = network("lstm", rng, config, True)
    model = with_reals(rng, model)
    found = split_of(model, compile_network(model, config).firmware, samples).layers
    assert all("compiler" in parts for parts in found.values())
    model, samples = network("images", rng, config, False)
    model = with_reals(rng, model)
    found = split_of(model, compile_network(model, config).firmware, samples).layers
    assert all("compiler" in found[name] for name in ("conv0", "conv2", "conv5", "dense8"))


@KINDS
@BLOCK
@pytest.mark.parametrize("preset", ["tiny", "vision"])
def test_without_rounding_the_chains_are_the_float_network(preset, block, kind):
    rng = np.random.default_rng(1)
    config = replace(PRESETS[preset], **ROOM, operand_columns=64)
    model, samples = network(kind, rng, config, block)
    assert compiler_error(config, with_reals(rng, model), samples) < NONE


@pytest.mark.parametrize("offset", [0.0, 0.05])
def test_relu6_stays_where_the_quantizer_does_its_work(offset):
    rng, config = np.random.default_rng(0), PRESETS["tiny"]
    model, samples = networks.mlp(rng, config, [9, 12, 4], block=False), networks.inputs(rng, 8, 9)
    first, second = with_reals(rng, model).layers
    second = replace(second, unsigned=True, real={**second.real, "input": np.array([0.02, offset]),
                                                  "fp32_ceiling": np.array([1.0])}, quant_scale=None, quant_offset=None)
    first = replace(first, activation=Activation.NONE, real={**first.real, "output": np.array([0.02, offset])})
    model = replace(model, layers=(first, second))
    middle = reference.forward(model, samples)[0]
    assert middle.min() == 0
    assert middle.max() == 1
    assert compiler_error(config, model, samples) < NONE


@pytest.mark.parametrize("name", ["fashion-mlp-bfp8", "fashion-mlp-w4a4", "fashion-resnet-w8", "vowels-lstm-w8"])
def test_shipped_networks(name):
    model = load_model(DATA / "models" / f"{name}.safetensors")
    preset = {"fashion-mlp-bfp8": "trainer", "fashion-mlp-w4a4": "ulx3s"}.get(name, "vision")
    shape = (1, 5, model.inputs) if model.recurrent else (1, model.inputs)
    samples = np.random.default_rng(0).uniform(0, 1, shape).astype(np.float16).view(np.uint16)
    assert compiler_error(PRESETS[preset], model, samples) < NONE


def test_a_wrong_weight_shows():
    rng, config = np.random.default_rng(0), PRESETS["tiny"]
    model, samples = network("dense", rng, config, False)
    model = with_reals(rng, model)
    firmware = compile_network(model, config).firmware
    images = full_precision(model, firmware)
    wrong = replace(images, tiles=images.tiles.copy())
    wrong.tiles[0, 0, :4] += 1
    right, found = (UnquantizedMachine(firmware, one).infer(samples[0]) for one in (images, wrong))
    assert np.abs(found - right).max() > 1e-6


def test_each_rounding_alone_changes_results():
    rng, config = np.random.default_rng(0), PRESETS["tiny"]
    model, samples = network("dense", rng, config, False)
    model = with_reals(rng, model)
    firmware = compile_network(model, config).firmware
    real, weights = (full_precision(model, firmware, numbers) for numbers in (MemoryNumbers.REAL,
                                                                              MemoryNumbers.WEIGHTS))
    results = [UnquantizedMachine(firmware, *given, **switches).infer(samples[0]) for given, switches in (
        ([real], {}), ([weights], {}), ([real], {"activations": True}), ([real], {"binary16": True}))]
    assert len({result.tobytes() for result in results}) == len(results)


@BLOCK
@pytest.mark.parametrize("kind", ["dense", "lstm", "gru", "images"])
def test_roundings_of_chosen_layers(kind, block):
    rng, config = np.random.default_rng(0), replace(PRESETS["tiny"], **ROOM, operand_columns=64)
    model, samples = network(kind, rng, config, block)
    model = with_reals(rng, model)
    firmware = compile_network(model, config).firmware
    real, stored = (full_precision(model, firmware, numbers) for numbers in (MemoryNumbers.REAL, MemoryNumbers.STORED))
    machine = UnquantizedMachine(firmware, real)
    exact = machine.infer(samples[0])
    # The chains of no layer quantise an image of the network's input.
    names, found = [*(layer.name for layer in model.layers), ""], {}
    for chosen in (names, names[:1], names[-2:]):
        machine.round_layers(chosen, stored)
        found[tuple(chosen)] = machine.infer(samples[0])
    rounded = UnquantizedMachine(firmware, stored, activations=True, binary16=True).infer(samples[0])
    np.testing.assert_array_equal(found[tuple(names)], rounded)
    assert not any(np.array_equal(result, exact) for result in found.values())
    assert not np.array_equal(found[names[0],], rounded)
    machine.round_layers((), stored)
    np.testing.assert_array_equal(machine.infer(samples[0]), exact)


@BLOCK
@pytest.mark.parametrize("preset", ["tiny", "vision"])
def test_the_roundings_of_the_only_layer_alone_are_all_roundings(preset, block):
    """A padded convolution: its input and the border around it are quantised, with a zero point in integers."""
    config = replace(PRESETS[preset], **ROOM, operand_columns=64)
    rng = np.random.default_rng(0)
    made = ImageNetworkMaker(rng, config, (3, 5, 4), block=block)
    made.conv(INPUT, 4, (3, 3), padding=(1, 1, 1, 1), offset=-0.25, unsigned=True, activation=Activation.NONE)
    model = with_reals(rng, made.model())
    firmware, samples = compile_network(model, config).firmware, networks.inputs(rng, 3, 3 * 5 * 4)
    split = split_errors(model, firmware, images_of(model, firmware), Samples(inputs=samples))
    assert split.layers["conv0"]["alone"] == pytest.approx(split.layers["network output"]["together"], rel=1e-6)
    assert split.layers["conv0"]["alone"] > 0


def test_weights_and_constants_that_the_model_rounded_are_found_again():
    """Quantised weights with all other numbers real differ from the machine by binary16 only."""
    rng, config = np.random.default_rng(0), PRESETS["tiny"]
    model, samples = network("dense", rng, config, False)
    model = with_reals(rng, model)
    firmware = compile_network(model, config).firmware
    stored, weights = (full_precision(model, firmware, numbers) for numbers in (MemoryNumbers.STORED,
                                                                                MemoryNumbers.WEIGHTS))
    for mem, words in stored.vectors.items():
        np.testing.assert_allclose(weights.vectors[mem], words, rtol=3e-3, atol=1e-6)
        factors = mem in (Mem.MULTIPLY_VRF0, Mem.MULTIPLY_VRF1)  # They may hold nothing but factors R, which stay.
        assert factors or not np.array_equal(weights.vectors[mem], words) or not words.any()
    np.testing.assert_array_equal(weights.tiles, stored.tiles)


def test_firmware_files_keep_full_precision(tmp_path):
    config = replace(PRESETS["tiny"], **ROOM)
    model, samples = network("images", np.random.default_rng(0), config, False)
    model = with_reals(np.random.default_rng(0), model)
    plain = compile_network(model, config).firmware
    firmware = replace(plain, full_precision=full_precision(model, plain))
    save_firmware(firmware, tmp_path / "firmware")
    loaded = load_firmware(tmp_path / "firmware")
    assert loaded.full_precision.clips == firmware.full_precision.clips
    np.testing.assert_array_equal(
        UnquantizedMachine(loaded).infer(samples[0]), UnquantizedMachine(firmware).infer(samples[0]))
    with pytest.raises(ValueError, match="compile its model with --full-precision"):
        UnquantizedMachine(plain)


def test_images_of_other_places_are_refused():
    config = replace(PRESETS["tiny"], **ROOM)
    model, _ = network("images", np.random.default_rng(0), config, False)
    model = with_reals(np.random.default_rng(0), model)
    firmware = compile_network(model, config).firmware
    images = full_precision(model, firmware)
    with pytest.raises(ValueError, match="full precision, tiles: float64"):
        replace(firmware, full_precision=replace(images, tiles=images.tiles[:-1]))
    with pytest.raises(ValueError, match="full precision, biases: it holds a NaN"):
        replace(firmware, full_precision=replace(images, biases=images.biases * np.nan))
    with pytest.raises(ValueError, match="other ranges of VectorRf"):
        replace(firmware, full_precision=replace(images, entries=()))


def test_models_without_a_float_network_are_refused():
    rng, config = np.random.default_rng(0), PRESETS["tiny"]
    model, _ = network("dense", rng, config, False)
    firmware = compile_network(model, config).firmware
    with pytest.raises(ValueError, match="layer 'dense0' carries no FP32 parameters"):
        full_precision(model, firmware)
    other = with_reals(rng, networks.mlp(rng, config, [19, 20, 5], block=False))
    with pytest.raises(ValueError, match="not the firmware of model"):
        full_precision(other, firmware)
    turned = with_reals(rng, model).layers[0]
    assert isinstance(turned, Dense)
    turned = replace(turned, real={**turned.real, "output": np.array([-1.0, 0.0])})
    with pytest.raises(ValueError, match="codes in another unit than its float network"):
        full_precision(replace(with_reals(rng, model), layers=(turned, *with_reals(rng, model).layers[1:])), firmware)


@pytest.mark.parametrize(("kind", "missing", "said"), [
    ("dense", "gain", "lacks 'gain'"), ("lstm", "input_steps", "lacks 'input_steps'"),
    ("gru", "fp32_hidden_bias", "carries no FP32 parameters")])
def test_models_without_some_numbers_are_refused(kind, missing, said):
    rng, config = np.random.default_rng(0), replace(PRESETS["tiny"], **ROOM)
    model = with_reals(rng, network(kind, rng, config, False)[0])
    first, *others = model.layers
    first = replace(first, real={name: value for name, value in first.real.items() if name != missing})
    model = replace(model, layers=(first, *others))
    with pytest.raises(ValueError, match=f"layer '{first.name}' {said}"):
        full_precision(model, compile_network(model, config).firmware)
