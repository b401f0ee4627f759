"""Trained tensors of a twin, back in the firmware that it was made from."""

import subprocess
import sys

import numpy as np
import pytest
from concord.campaigns.makers import networks
from concord.campaigns.twin_random import compiled as drawn
from concord.compiler.network import compile_network
from concord.firmware.firmware_file import load_firmware
from concord.spec.machine.config import preset
from concord.tests.command_line import compiled, done, nnp, refused
from concord.tests.test_rooms import ROOT
from concord.tests.twin.test_source import load
from concord.tests.twin.training import train
from concord.twin.recovery.recover import recover, without_hints
from concord.twin.source.lines import attribute
from concord.twin.source.writer import tensors
from concord.twin.weights import trainable, twin_script, with_tensors
from concord.verification.twins import differing_bits
from safetensors.numpy import load_file, save_file

NETWORKS = {"fashion-mlp-bfp8": "trainer", "vowels-lstm-w8": "vision", "fashion-resnet-w8": "vision"}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return compiled(tmp_path_factory.mktemp("weights"), NETWORKS)


def test_tensors_with_elements_that_firmware_does_not_hold():
    """Without names of layers, a scale has elements that no memory holds."""
    firmware, _ = drawn("dense", 2030)
    script = recover(without_hints(firmware))
    assert any((tensor.places < 0).any() for tensor in script.tensors.values())
    trainable(script, firmware)


@pytest.mark.parametrize("name", NETWORKS)
def test_a_trained_twin_has_the_bits_of_its_firmware(files, name, tmp_path):
    """A few steps of Adam on random samples: the loss falls, and golden computes what the twin does."""
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)
    done("twin", files[name], "--to", "torch", "-o", tmp_path, "--samples", 1)
    (path,) = tmp_path.glob("*.py")
    script = recover(load_firmware(files[name]))
    twin = load(path).Twin().trainable()
    weights = [key for key, each in script.tensors.items() if each.bits]
    assert len(weights) >= 3
    assert len(list(twin.parameters())) >= 2 * len(weights)
    rng = np.random.default_rng(0)
    shape = [4 if size is None else size for size in script.inputs]
    inputs = torch.from_numpy(rng.normal(size=(4, *shape)).astype(np.float32))
    labels = torch.from_numpy(rng.integers(0, script.outputs, 4))
    train(twin, inputs, labels, steps=6, rate=1e-4, share=0.01)
    twin.save(tmp_path / "trained.safetensors")
    said = done("compile", files[name], "--weights-from", tmp_path / "trained.safetensors", "-o",
                tmp_path / "firmware.safetensors")
    assert " 0 differing bits" in said
    assert "0 of" not in said.partition(": ")[2].partition(" mantissas")[0]
    assert np.array_equal(load_firmware(tmp_path / "firmware.safetensors").instruction_words,
                          load_firmware(files[name]).instruction_words)


@pytest.mark.parametrize("name", NETWORKS)
def test_tensors_that_nobody_trained_give_the_same_firmware(files, name):
    firmware = load_firmware(files[name])
    same = with_tensors(firmware, tensors(recover(firmware)))
    assert np.array_equal(same.tiles.mantissas, firmware.tiles.mantissas)
    assert np.array_equal(same.biases, firmware.biases)
    assert all(np.array_equal(words, firmware.vectors[mem]) for mem, words in same.vectors.items())


def test_start_values_follow_the_weights_of_unsigned_codes(files):
    firmware = load_firmware(files["fashion-resnet-w8"])
    given = tensors(recover(firmware))
    name = next(name for name in given if name.startswith("convolution_1") and name.endswith("weights"))
    given[name] = np.where(given[name] > 100, given[name], given[name] + 1)
    changed = with_tensors(firmware, given)
    assert not np.array_equal(changed.biases, firmware.biases)
    assert differing_bits(changed, twin_script(firmware, given), given) == 0


def test_start_values_of_one_product_follow_its_own_weights():
    """The second layer takes signed codes and has no start values."""
    model = networks.mlp(np.random.default_rng(0), preset("tiny"), [10, 12, 5], block=False)
    assert [layer.unsigned for layer in model.layers] == [True, False]
    firmware = compile_network(model, preset("tiny")).firmware
    given = tensors(recover(firmware))
    given["dense0_weights"] = np.where(given["dense0_weights"] < 100, given["dense0_weights"] + 1, 0)
    changed = with_tensors(firmware, given)
    assert not np.array_equal(changed.biases, firmware.biases)
    assert differing_bits(changed, twin_script(firmware, given), given) == 0


def test_vectors_that_stand_for_several_places_are_not_trained(files):
    firmware = load_firmware(files["fashion-resnet-w8"])
    script = recover(firmware)
    found = trainable(script, firmware)
    left = [each for name, each in script.tensors.items() if name not in found]
    # Beside vectors, only the weights of the average, whose tiles stand for several channels.
    assert all(each.values.ndim == 1 or len(np.unique(each.places)) < each.places.size for each in left)
    assert any(each.memory.startswith("multiply") for each in left)


@pytest.mark.parametrize(("kind", "seed"), [
    ("recurrent", 5010), ("recurrent", 5017), ("both directions", 1), ("both directions", 5006),
    ("both directions", 5019), ("both directions", 5026), ("mixed", 5024)])
def test_vectors_of_layers_whose_states_begin_with_other_numbers_than_zero(kind, seed):
    """Firmware may store a first state times the scale that products need: then this scale cannot change alone."""
    firmware, _ = drawn(kind, seed)
    script, rng = recover(firmware), np.random.default_rng(1)
    given = tensors(script)
    names = [attribute(name) for name, each in trainable(script, firmware).items() if each.function == "half"]
    assert len(names) >= 3
    for name in names:
        given[name] = (given[name] * rng.uniform(0.8, 1.2, given[name].shape)).astype(np.float16)
    assert differing_bits(with_tensors(firmware, given), twin_script(firmware, given), given) == 0


def test_what_firmware_cannot_hold_is_refused_in_a_sentence(files, tmp_path):
    mlp, lstm = files["fashion-mlp-bfp8"], files["vowels-lstm-w8"]
    blocks, whole = tensors(recover(load_firmware(mlp))), tensors(recover(load_firmware(lstm)))
    weights = next(name for name in whole if name.endswith("weights"))
    scale = next(name for name in whole if name.endswith("scale"))
    hidden = next(name for name in blocks if name.endswith("weights"))
    cases = [
        (mlp, whole, "of fashion-mlp-bfp8 (missing: hidden1_bias, hidden1_weights and 3 more; unknown: lstm1_f_"),
        (lstm, {name: whole[name] for name in whole if name != weights}, f"(missing: {weights})"),
        (lstm, whole | {"other": whole[scale]}, "(unknown: other)"),
        (lstm, whole | {"tanh": whole["tanh"] + np.float16(1)}, "tanh: it is a table of the machine"),
        (lstm, whole | {"tanh": whole["tanh"][:9]}, "tanh: its shape is [9]"),
        (mlp, blocks | {hidden: blocks[hidden] * 1.01}, f"{hidden}: its values are no mantissas of 8 bits"),
        (mlp, blocks | {hidden: blocks[hidden][1:]}, f"{hidden}: its shape is"),
        (lstm, whole | {weights: whole[weights] + 0.5}, f"{weights}: its values are no whole numbers in -127..127"),
        (lstm, whole | {weights: whole[weights] + 128}, f"{weights}: its values are no whole numbers in -127..127"),
        (lstm, whole | {scale: whole[scale].astype(np.float32) * 1.0001}, f"{scale}: its values are no binary16"),
        (lstm, whole | {scale: whole[scale] * np.float16(np.nan)}, f"{scale}: it has values that are not finite"),
    ]
    for firmware, given, sentence in cases:
        path = tmp_path / "trained.safetensors"
        save_file({name: np.ascontiguousarray(values) for name, values in given.items()}, path)
        assert sentence in refused("compile", firmware, "--weights-from", path, "-o", tmp_path / "out.safetensors")
    assert "there is no such file; `save`" in refused("compile", mlp, "--weights-from", tmp_path / "nothing")
    assert "it holds firmware; `save`" in refused("compile", mlp, "--weights-from", mlp)
    model = "data/models/fashion-mlp-bfp8.safetensors"
    assert "name the firmware that `nnp twin` read" in refused("compile", model, "--weights-from", path)
    assert "not a whole safetensors file" in refused("compile", mlp, "--weights-from", __file__)
    assert "only -o and --listing" in refused("compile", mlp, "--weights-from", path, "--preset", "tiny")
    assert not (tmp_path / "out.safetensors").exists()


def test_twins_without_quantizers_are_no_weights(tmp_path):
    path = tmp_path / "full.safetensors"
    done("compile", "data/models/vowels-lstm-w8.safetensors", "--preset", "vision", "--full-precision", "-o", path)
    done("twin", path, "--unquantised", "-o", tmp_path, "--samples", 1)
    given = tmp_path / "vowels_lstm_w8_unquantized_numpy.safetensors"
    assert "writes without --unquantised" in refused("compile", path, "--weights-from", given)


def test_without_a_name_trained_firmware_lies_beside_the_firmware(files, tmp_path):
    firmware = tmp_path / "net.safetensors"
    firmware.write_bytes(files["vowels-lstm-w8"].read_bytes())
    save_file(tensors(recover(load_firmware(firmware))), tmp_path / "given")
    done("compile", firmware, "--weights-from", tmp_path / "given")
    assert (tmp_path / "net.trained.safetensors").is_file()
    said = " ".join(done("compile", "--help").replace("│", " ").split())
    assert "with --weights-from, MODEL.trained.safetensors beside MODEL" in said


def test_the_page_has_the_magnitudes_of_the_twin(files, tmp_path):
    page = (ROOT / "docs/twins.md").read_text().partition("mean magnitudes")[2]
    code, _, after = page.partition("```python\n")[2].partition("```\n\n")
    shown = "".join(f"{line[4:]}\n" for line in after.partition("\n\n")[0].splitlines())
    done("twin", files["vowels-lstm-w8"], "--to", "torch", "-o", tmp_path / "twins", "--samples", 1)
    printed = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, capture_output=True, text=True)
    assert printed.stdout == shown


def test_firmware_that_differs_from_its_twin_is_not_written(files, tmp_path, monkeypatch):
    monkeypatch.setattr("concord.verification.twins.differing_bits", lambda *_: 3)
    path = tmp_path / "trained.safetensors"
    save_file(tensors(recover(load_firmware(files["vowels-lstm-w8"]))), path)
    result = nnp("compile", files["vowels-lstm-w8"], "--weights-from", path, "-o", tmp_path / "out.safetensors")
    assert result.exit_code == 1
    assert not (tmp_path / "out.safetensors").exists()
    assert load_file(path)


def test_trained_firmware_has_no_numbers_of_the_untrained_network(tmp_path):
    """`--unquantized` would compute without the training."""
    path = tmp_path / "full.safetensors"
    done("compile", "data/models/vowels-lstm-w8.safetensors", "--preset", "vision", "--full-precision", "-o", path)
    firmware = load_firmware(path)
    given = tensors(recover(firmware))
    assert with_tensors(firmware, given).full_precision is not None
    assert with_tensors(firmware, given | {"output_offset": given["output_offset"] * 2}).full_precision is None
