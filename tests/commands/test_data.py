"""Training on the user's own data, whose test set the model names, and in the formats of a machine."""

import gzip
import struct

import numpy as np
import pytest
from concord.compiler.support import problems
from concord.datasets import dataset
from concord.net import network
from concord.net.model_file import load_model
from concord.spec.machine.config import preset
from concord.tests.command_line import done, refused

pytest.importorskip("torch", reason="PyTorch is in the dependency group `train`")
from concord.train.lib import data

NETS = """
from torch import nn

def dense():
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 8), nn.ReLU(), nn.Linear(8, 10))
"""


def write_images(folder, part: str, pixels: np.ndarray, labels: np.ndarray):
    """One part of a data set as IDX files."""
    header = struct.pack(">4I", 0x803, *pixels.shape)
    for name, content in (("images-idx3", header + pixels.tobytes()),
                          ("labels-idx1", struct.pack(">2I", 0x801, len(labels)) + labels.tobytes())):
        (folder / f"{part}-{name}-ubyte.gz").write_bytes(gzip.compress(content))


def write_utterances(path, *, features: int, classes: int, count: int):
    """Utterances that are easy to tell apart, one class after another."""
    rng, centres = np.random.default_rng(1), np.random.default_rng(0).normal(size=(classes, features))
    lines = ["@data"]
    for index in range(count):
        frames = centres[index % classes] + rng.normal(0, 0.1, (rng.integers(5, 9), features))
        lines.append(":".join([*(",".join(f"{v:.3f}" for v in channel) for channel in frames.T),
                               str(index % classes + 1)]))
    path.write_text("\n".join(lines))


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A working folder with images of stripes in six directions, and a network."""
    (tmp_path / "own_nets.py").write_text(NETS)
    (tmp_path / "stripes").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    rng = np.random.default_rng(0)
    patterns = rng.integers(0, 256, (6, 28, 28))
    for part, count in (("train", 300), ("t10k", 40)):
        labels = rng.integers(0, 6, count).astype(np.uint8)
        pixels = np.clip(patterns[labels] + rng.normal(0, 20, (count, 28, 28)), 0, 255).astype(np.uint8)
        write_images(tmp_path / "stripes", part, pixels, labels)
    return tmp_path


def test_accuracy_is_that_of_the_data_that_were_trained_on(folder):
    text = done("train", "image", "own_nets:dense", "--data", "stripes", "--epochs", "8,1,1", "-o", "m", "--fp32", "f")
    model, test = load_model("m"), dataset.images(folder / "stripes", "t10k")
    assert model.data == "folder stripes"
    assert model.classes[:2] == ("class 0", "class 1")
    right = np.mean(network.predict(model, test.inputs) == test.labels)
    assert model.provenance.golden_accuracy == right > 0.9
    assert f"golden {right:.2%}" in text
    assert len(model.fp32_predictions) == len(test) == 40
    done("quantize", "own_nets:dense", "f", "--data", "stripes", "-o", "q")
    assert load_model("q").data == "folder stripes"
    assert load_model("q").provenance.fp32_accuracy == model.provenance.fp32_accuracy
    assert "has the test set of folder stripes, which is not shipped: give inputs" in refused("predict", "m")
    assert "with --data LOCATION" in refused("verify", "m")
    assert done("predict", "m", "--data", "stripes", "--samples", "all", "-q") == f"{right:.2%} of 40 right\n"


def test_images_test_what_a_calibration_set_of_its_own_quantises(folder):
    done("train", "image", "own_nets:dense", "--data", "stripes", "--epochs", "1,0,0", "-o", "m", "--fp32", "f")
    np.save("c.npy", np.random.default_rng(0).random((20, 1, 28, 28)))
    words = ("quantize", "own_nets:dense", "f", "--data", "stripes", "-o", "q", "--calibration")
    assert "accuracy FP32 " in done(*words, "c.npy")
    made = load_model("q")
    assert (made.data, made.provenance.fp32_accuracy) == ("folder stripes", load_model("m").provenance.fp32_accuracy)
    assert "20 samples to calibrate" in made.provenance.method
    np.save("d.npy", np.zeros((20, 2, 28, 14)))
    (folder / "q").unlink()
    assert "d.npy: samples of [2, 28, 14] do not go with the images [1, 28, 28] of stripes" in refused(*words, "d.npy")
    assert not (folder / "q").exists()


@pytest.mark.parametrize("arithmetic", ["integer", "bfp-lazy"])
def test_a_perceptron_takes_images_of_any_size(arithmetic, folder):
    rng = np.random.default_rng(0)
    labels = (np.arange(200) % 3).astype(np.uint8)
    for part in "train", "t10k":
        pixels = (rng.integers(0, 40, (200, 5, 5)) + 100 * (np.arange(25) % 3 == labels[:, None]).reshape(-1, 5, 5))
        write_images(folder / "stripes", part, pixels.astype(np.uint8), labels)
    done("train", "mlp", "--arithmetic", arithmetic, "--data", "stripes", "-o", "m")
    model = load_model("m")
    assert (model.inputs, model.outputs, model.data) == (25, 3, "folder stripes")
    assert model.preprocessing.startswith("25 pixels")
    assert model.provenance.golden_accuracy > 0.9
    assert "take images of 28 x 28 pixels in at most 10 classes, not 25 pixels in 3 classes" in refused(
        "train", "image", "mlp", "--data", "stripes", "-o", "i")


def test_the_published_test_set_keeps_its_name(folder):
    shipped = dataset.load("fashion-mnist")
    for kind in "images-idx3", "labels-idx1":
        content = (dataset.DATA / "fashion-mnist" / f"t10k-{kind}-ubyte.gz").read_bytes()
        for part in "train", "t10k":
            (folder / "stripes" / f"{part}-{kind}-ubyte.gz").write_bytes(content)
    sets = data.image_sets(folder / "stripes")
    assert (sets.name, sets.test.classes) == ("fashion-mnist", shipped.classes)


def test_folders_without_their_own_test_set_are_refused(folder):
    (folder / "stripes" / "t10k-labels-idx1-ubyte.gz").unlink()
    assert "t10k-labels-idx1-ubyte.gz: no such file" in refused("train", "mlp", "--data", "stripes", "-o", "m")
    write_utterances(folder / "JapaneseVowels_TRAIN.ts", features=3, classes=2, count=20)
    assert "JapaneseVowels_TEST.ts: there is no such file" in refused("train", "lstm", "--data", ".", "-o", "m")
    assert not (folder / "m").exists()


@pytest.mark.parametrize(("part", "features", "classes", "sentence"), [
    ("TEST", 4, 2, "training samples have 3 numbers, test samples 4"),
    ("TEST", 3, 5, "the test set has class 4, which no training sample has; training has the classes 0..1"),
])
def test_test_sets_of_other_data_are_refused(part, features, classes, sentence, folder):
    write_utterances(folder / "JapaneseVowels_TRAIN.ts", features=3, classes=2, count=20)
    write_utterances(folder / f"JapaneseVowels_{part}.ts", features=features, classes=classes, count=20)
    assert sentence in refused("train", "lstm", "--data", ".", "-o", "m")


@pytest.mark.parametrize("line", ["1,2:3,4:one", "1,2:x,4:1", "1,2:3,4:0", "1,2,3:4:1", "1,2:1"])
def test_utterances_that_are_none(line, folder):
    write_utterances(folder / "JapaneseVowels_TRAIN.ts", features=2, classes=2, count=4)
    with (folder / "JapaneseVowels_TRAIN.ts").open("a") as file:
        file.write(f"\n{line}\n")
    assert "JapaneseVowels_TRAIN.ts, line 6: not an utterance" in refused("train", "lstm", "--data", ".", "-o", "m")


def test_an_lstm_takes_ten_classes_and_28_features_on_the_machine_that_is_named(folder):
    for part in "TRAIN", "TEST":
        write_utterances(folder / f"JapaneseVowels_{part}.ts", features=28, classes=10, count=150)
    done("train", "lstm", "--data", ".", "--hidden", 8, "--epochs", "30,1,1", "--preset", "tiny", "-o", "m")
    model = load_model("m")
    assert (model.inputs, model.outputs, model.provenance.golden_accuracy > 0.9) == (28, 10, True)
    assert problems(model, preset("tiny")) == []
    assert "150 of ." in done("verify", "m", "--preset", "trainer", "--data", ".", "--machine", "golden", "-j", 1)


@pytest.mark.parametrize("name", ["ulx3s", "trainer"])
def test_a_preset_takes_formats_from_the_machine(name):
    words = ("--data", "stripes", "--preset", name)
    done("train", "image", "own_nets:dense", *words, "--epochs", "1,1,0", "--weights", "lsq-odd", "-o", "i",
         "--fp32", "f")
    done("quantize", "own_nets:dense", "f", *words, "-o", "q")
    done("train", "mlp", *words, "-o", "m")
    for path in "iqm":
        assert problems(load_model(path), preset(name)) == []


@pytest.mark.parametrize("name", ["speech", "ulx3s"])
def test_a_preset_of_block_floating_point(folder, name):
    words = ("train", "image", "own_nets:dense", "--data", "stripes", "--epochs", "1,1,0", "--arithmetic", "bfp")
    done(*words, "--preset", name, "-o", "b")
    assert problems(load_model("b"), preset(name)) == []


def test_presets_of_other_block_floating_point_are_refused(folder):
    words = ("train", "image", "own_nets:dense", "--data", "stripes", "--epochs", "1,1,0", "--arithmetic", "bfp")
    assert "does not have; --preset speech has" in refused(*words, "--preset", "serial")
    assert "--preset speech decides --block" in refused(*words, "--preset", "speech", "--block", 16)


@pytest.mark.parametrize(("words", "sentence"), [
    (("train", "image", "mlp", "--preset", "ulx3s", "--weights-bits", 4), "--preset ulx3s decides --weights-bits"),
    (("train", "image", "mlp", "--preset", "huge"), "there is no preset 'huge'"),
    (("quantize", "mlp", "f", "--preset", "ulx3s", "--full"), "--preset ulx3s decides --weights-bits, --input-bits"),
    (("compare", "--preset", "ulx3s", "--input-bits", 4), "--preset ulx3s decides --weights-bits, --input-bits,"),
    (("train", "lstm", "--preset", "speech", "--bits", 8), "--preset speech decides --bits"),
    (("train", "mlp", "--arithmetic", "bfp-lazy", "--preset", "speech"), "does not take; trainer does"),
    (("train", "lstm", "--epochs", "3,2"), "--epochs 3,2: three numbers parted by commas are needed, such as 8,4,1"),
    (("train", "image", "mlp", "--epochs", "a,b,c"), "--epochs a,b,c: three numbers parted by commas"),
])
def test_options_that_exclude_each_other(words, sentence):
    assert sentence in refused(*words)


def test_a_refusal_names_the_option():
    done("train", "image", "own_nets:dense", "--data", "stripes", "--epochs", "1,0,0", "-o", "full")
    assert "quantise the model for this machine with --preset, or choose another preset" in refused(
        "compile", "full", "--preset", "ulx3s")


def test_help_shows_epochs_as_they_are_taken():
    assert "3,2,1" not in done("train", "image", "--help")
    assert "8,4,1" in done("train", "image", "--help")
