"""Inputs of commands: files they accept, reports of numbers beyond binary16, and errors before slow work."""

import json
from dataclasses import replace

import numpy as np
import pytest
from concord.campaigns.makers import networks
from concord.campaigns.makers.image_networks import ImageNetworkMaker
from concord.compiler.network import compile_network
from concord.datasets.dataset import DATA
from concord.firmware.firmware_file import save_firmware
from concord.net import network
from concord.net.model import INPUT
from concord.net.model_file import load_model, save_model
from concord.spec.machine.config import preset
from concord.tests.command_line import done, nnp, refused
from concord.tests.small_networks import small

MLP, LSTM = (DATA / "models" / f"{name}.safetensors" for name in ("fashion-mlp-w4a4", "vowels-lstm-w8"))
RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def firmware(folder):
    """A small network without class names and without a test set, as a model and as firmware."""
    model = replace(networks.mlp(np.random.default_rng(1), preset("tiny"), [6, 4], block=True), data="none", classes=())
    save_model(model, folder / "model.safetensors")
    save_firmware(compile_network(model, preset("tiny")).firmware, folder / "firmware.safetensors")
    return model


def test_an_archive_of_one_array_is_read_and_others_are_named(folder):
    images = RNG.random((2, 784))
    np.save("a.npy", images)
    np.savez("a.npz", images)
    np.savez("two.npz", x=images, y=images)
    (folder / "empty.npz").write_bytes(b"PK\x05\x06" + bytes(18))
    assert done("predict", MLP, "--inputs", "a.npz") == done("predict", MLP, "--inputs", "a.npy")
    advice = "save one array with numpy.save('inputs.npy', array), and name that file"
    assert f"two.npz: it holds 2 arrays, x, y; {advice}" in refused("predict", MLP, "--inputs", "two.npz")
    assert f"empty.npz: a zip archive without arrays of numpy, such as PyTorch writes; {advice}" in refused(
        "predict", MLP, "--inputs", "empty.npz")


def test_a_file_of_pytorch_is_refused_in_a_sentence():
    torch = pytest.importorskip("torch", reason="PyTorch is in the dependency group `train`")
    torch.save({"a": torch.zeros(2)}, "mlp.pt")
    assert "such as PyTorch writes; save one array" in refused("predict", MLP, "--inputs", "mlp.pt")
    assert "such as PyTorch writes; save one array" in refused("quantize", "mlp", "a", "--calibration", "mlp.pt")


def test_further_axes_are_flattened_in_c_order(firmware):
    vectors = RNG.normal(size=(3, 6))
    np.save("flat.npy", vectors)
    np.save("images.npy", np.asfortranarray(vectors.reshape(3, 1, 2, 3)))
    for words in ("predict", "model.safetensors"), ("run", "firmware.safetensors"):
        done(*words, "--inputs", "flat.npy", "-o", "flat.out.npy")
        done(*words, "--inputs", "images.npy", "-o", "images.out.npy")
        np.testing.assert_array_equal(np.load("flat.out.npy"), np.load("images.out.npy"))
    np.save("steps.npy", np.zeros((2, 5, 3, 4)))
    assert done("predict", LSTM, "--inputs", "steps.npy").count("speaker") == 2
    np.save("other.npy", np.zeros((2, 3, 3)))
    assert "takes numbers[samples, 6], not float64[2, 3, 3]" in refused("predict", "model.safetensors", "--inputs",
                                                                        "other.npy")
    np.save("one.npy", np.zeros(6))
    assert "takes numbers[samples, 6], not float64[6]" in refused("run", "firmware.safetensors", "--inputs", "one.npy")


def test_as_many_samples_as_there_are(firmware):
    np.save("two.npy", RNG.normal(size=(2, 6)))
    assert done("predict", "model.safetensors", "--inputs", "two.npy").splitlines()[-1] == "2 samples"
    assert done("run", "firmware.safetensors", "--inputs", "two.npy", "--first", 1).splitlines()[-1] == "1 samples"
    assert "--samples 3 is neither 'all' nor a number in 1..2" in refused(
        "predict", "model.safetensors", "--inputs", "two.npy", "--samples", 3)
    assert done("predict", LSTM).splitlines()[-1].endswith("of 10 right")


def test_quiet_leaves_the_summary(firmware):
    np.save("two.npy", RNG.normal(size=(2, 6)))
    assert done("predict", "model.safetensors", "--inputs", "two.npy", "-q") == "2 samples\n"
    assert done("run", "firmware.safetensors", "--inputs", "two.npy", "--quiet") == "2 samples\n"
    assert done("predict", LSTM, "-q", "--samples", 20).count("\n") == 1


def test_outputs_without_names_are_no_classes(firmware):
    np.save("in.npy", RNG.normal(size=(2, 6)).astype(np.float16))
    outputs = network.outputs(firmware, np.load("in.npy").view(np.uint16)).view(np.float16)
    lines = done("predict", "model.safetensors", "--inputs", "in.npy").splitlines()
    for index, row in enumerate(outputs):
        assert lines[index] == f"{index}: output {row.argmax()} is the largest, {row.max():.4g}"


def test_numbers_that_no_machine_holds_are_counted(firmware):
    numbers = np.zeros((7, 6))
    numbers[1, 0], numbers[2, :2], numbers[4, 3] = np.nan, np.inf, 1e30
    np.save("odd.npy", numbers)
    sentence = ("nnp: odd.npy: of 42 values 3 are not finite and 1 too large for binary16, which makes them infinite; "
                "results of samples 1, 2, 4 mean nothing\n")
    assert nnp("predict", "model.safetensors", "--inputs", "odd.npy").stderr == sentence
    result = nnp("run", "firmware.safetensors", "--inputs", "odd.npy")
    assert sentence in result.stderr
    assert "nnp: INVALID_VECTOR: a quantiser met a NaN" in result.stderr
    result = nnp("verify", "model.safetensors", "--inputs", "odd.npy", "--machine", "golden", "--jobs", 1)
    assert result.exit_code == 0, result.output
    assert result.stderr == sentence
    assert nnp("run", "firmware.safetensors", "--inputs", "odd.npy", "--samples", 1).stderr == ""
    np.save("odd.npy", np.full((9, 6), np.nan))
    assert "samples 0, 1, 2, 3, 4 and 4 more mean nothing" in nnp("predict", "model.safetensors", "--inputs",
                                                                  "odd.npy").stderr


def test_the_axes_of_images_are_those_of_the_network(folder):
    rng = np.random.default_rng(3)
    model = networks.mlp(rng, preset("vision"), [96, 4], block=False)
    images = ImageNetworkMaker(rng, preset("vision"), (3, 4, 8), block=False)
    images.dense(images.conv(INPUT, 4, (3, 3)), 2)
    save_model(replace(images.model(), data="none", classes=()), folder / "images.safetensors")
    save_model(replace(model, data="none", classes=()), folder / "vectors.safetensors")
    done("compile", "images.safetensors", "--preset", "vision", "-o", "images.firmware")
    for name, shape in (("flat", (2, 96)), ("image", (2, 3, 4, 8)), ("last", (2, 4, 8, 3)), ("one", (2, 1, 3, 4, 8))):
        np.save(f"{name}.npy", rng.normal(size=shape))
        done("predict", "vectors.safetensors", "--inputs", f"{name}.npy")
    for words in ("predict", "images.safetensors"), ("run", "images.firmware"):
        for name in "flat", "image", "one":
            done(*words, "--inputs", f"{name}.npy")
        assert "a sample is 4 x 8 x 3, but random takes 3 x 4 x 8, as its file does; transpose or" in refused(
            *words, "--inputs", "last.npy")


def test_verify_on_inputs_without_labels(firmware, folder):
    np.save("in.npy", RNG.normal(size=(3, 6)))
    assert "no labels" in done("verify", "model.safetensors", "--inputs", "in.npy", "--machine", "golden", "--jobs", 1,
                               "--report", "out")
    (record,) = json.loads((folder / "out" / "verify.json").read_text())
    assert record["equal"]
    assert record["accuracy"] == {}
    assert (record["samples"], record["data"]) == (3, "in.npy")


def test_a_model_without_test_set_says_how_to_give_inputs(firmware):
    for words in ("predict", "model.safetensors"), ("verify", "model.safetensors"), ("overflow", "model.safetensors"):
        assert "no test set: give inputs with --inputs FILE.npy, or a test set with --data LOCATION" in refused(*words)
    assert "has no test set" in refused("run", "firmware.safetensors")
    save_model(replace(firmware, data="folder digits"), "model.safetensors")
    assert "has the test set of folder digits, which is not shipped: give" in refused("verify", "model.safetensors")
    assert "name one of them" in refused("predict", "model.safetensors", "--inputs", "a", "--data", "b")


def test_a_test_set_of_another_shape_is_refused(firmware, folder):
    assert "a sample is 1 x 28 x 28, but random takes 6 numbers; give the data that it was trained on" in refused(
        "predict", "model.safetensors", "--data", DATA / "fashion-mnist")
    assert "none: there is no such file or folder" in refused("predict", MLP, "--data", "none")
    assert f"{folder}: it holds no data: neither" in refused("predict", MLP, "--data", folder)
    assert done("predict", MLP, "--data", DATA / "fashion-mnist") == done("predict", MLP)


@pytest.fixture
def no_build(monkeypatch):
    """Fail the test if anything is built."""
    def reached(*_):
        raise AssertionError("too late")

    monkeypatch.setattr("concord.verification.batches.Builds.__init__", reached)


@pytest.mark.parametrize(("words", "sentence"), [
    (("--report", "file"), "file: it is a file; name another path"),
    (("--report", "file/deep"), "file: it is a file, so file/deep cannot be written into it"),
    (("--first", 10_000), "--first 10000 is not one of the samples 0..9999"),
    (("--inputs", "file"), "file: not a whole .npy file"),
    (("--data", "none"), "none: there is no such file or folder"),
])
def test_verify_checks_everything_before_it_builds(words, sentence, folder, no_build):
    (folder / "file").write_text("")
    assert sentence in refused("verify", MLP, *words)


def test_verify_checks_the_data_of_every_model_before_it_builds(firmware, no_build):
    assert "has no test set" in refused("verify", MLP, "model.safetensors")


def test_verify_needs_a_worker(folder):
    result = nnp("verify", MLP, "--jobs", 0)
    assert result.exit_code == 2
    assert "Invalid value for '--jobs'" in result.stderr


def test_a_folder_as_a_model(folder):
    assert f"{folder}: it is a folder; name the model file in it" in refused("predict", folder)
    assert f"{folder}: it is a folder; name the firmware file in it" in refused("run", folder)


@pytest.mark.parametrize("command", ["compile", "predict", "run"])
def test_an_output_that_is_a_folder(command, firmware, folder):
    (folder / "out").mkdir()
    model = "firmware.safetensors" if command == "run" else "model.safetensors"
    assert "out: it is a folder; name another path" in refused(command, model, "-o", "out")
    with pytest.raises(OSError, match="out"):
        save_firmware(compile_network(firmware, preset("tiny")).firmware, folder / "out")
    assert not list(folder.rglob("*.part"))


def test_a_fuller_test_set_than_the_model_was_measured_on(firmware, folder):
    model = load_model(MLP)
    save_model(replace(model, fp32_predictions=model.fp32_predictions[:50],
                       quantized_predictions=model.quantized_predictions[:50]),
               folder / "few.safetensors")
    assert "few carries FP32 predictions for 50 samples" in refused("verify", "few.safetensors").replace(
        "fashion-mlp-w4a4", "few")


def test_slow_steps_are_announced(firmware, monkeypatch):
    from concord.sim.machines import host

    monkeypatch.setattr(host, "machine", lambda kind, config, machine=host.machine: machine("golden", config))
    np.save("in.npy", RNG.normal(size=(2, 6)))
    result = nnp("run", "firmware.safetensors", "--inputs", "in.npy", "--machine", "library")
    assert "1/2 build the machine ...  library; minutes" in result.stderr
    assert "2/2 run" in result.stderr
    assert nnp("run", "firmware.safetensors", "--inputs", "in.npy").stderr == ""
    result = nnp("verilog", "--unit", "crc", "--preset", "tiny", "-o", "out")
    assert "1/1 generate Verilog ...  crc of tiny" in result.stderr


def test_sequences_of_a_fixed_length(folder):
    model = replace(small(np.random.default_rng(0), preset("tiny"), block=False), data="none")
    save_model(model, folder / "model.safetensors")
    done("compile", "model.safetensors", "--preset", "tiny", "-o", "firmware.safetensors")
    np.save("right.npy", RNG.normal(size=(3, 4, 2)))
    np.save("wrong.npy", RNG.normal(size=(3, 5, 2)))
    np.save("flat.npy", RNG.normal(size=(3, 8)))
    for command in (["predict", "model.safetensors"], ["run", "firmware.safetensors"]):
        assert done(*command, "--inputs", "right.npy")
        message = refused(*command, "--inputs", "wrong.npy")
        assert "wrong.npy: random takes sequences of 4 time steps, not of 5: cut or pad them" in message
        assert "random takes numbers[samples, 4, 2], not float64[3, 8]" in refused(*command, "--inputs", "flat.npy")
