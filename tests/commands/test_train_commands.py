"""`nnp train`, `nnp quantize` and `nnp compare`: the files that they write, and errors before training."""

import csv
import os
import sys

import numpy as np
import pytest
from concord.datasets import dataset
from concord.net import network
from concord.net.model_file import load_model
from concord.tests.command_line import done, nnp

torch = pytest.importorskip("torch", reason="PyTorch is in the dependency group `train`")
from concord.train.lib import data
from concord.train.runs import compare_starts, image

OWN = """
from torch import nn

def build():
    return nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(12, 4))

def dense():
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 8), nn.ReLU(), nn.Linear(8, 10))

def curved():
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 10), nn.Softplus())
"""
TINY = ("--samples", 60, "--epochs", "1,1,1")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A working folder with a module of networks, and data sets that take no time to train on."""
    few = dataset.load("fashion-mnist").first(60)
    monkeypatch.setattr(data, "fashion_mnist", lambda folder: few)
    monkeypatch.setattr(dataset, "load", lambda name: few)
    (tmp_path / "own_layers.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    sys.modules.pop("own_layers", None)


@pytest.fixture
def too_late(monkeypatch):
    """Fail the test if data are read or training begins."""
    def reached(*_, **__):
        raise AssertionError("too late")

    functions = ((data, "fashion_mnist"), (data, "japanese_vowels"), (image, "trained"),
              (compare_starts, "trained"))
    for module, name in functions:
        monkeypatch.setattr(module, name, reached)


def test_a_seed_gives_the_same_bytes(folder):
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        done("train", "image", "own_layers:dense", *TINY, "--seed", seed, "-o", folder / name / "m", "--fp32",
             folder / name / "f")
    for name in "m", "f":
        a, b, c = ((folder / run / name).read_bytes() for run in "abc")
        assert a == b != c


def test_training_that_goes_on_and_is_logged(folder):
    words = ("train", "image", "own_layers:dense", *TINY, "--checkpoint", "kept", "-o", "m")
    done(*words, "--log", "a.csv")
    first = (folder / "m").read_bytes()
    done(*words, "--log", "b.csv")
    assert (folder / "m").read_bytes() == first
    assert (folder / "a.csv").read_text() == (folder / "b.csv").read_text()
    assert len((folder / "a.csv").read_text().splitlines()) == 4
    (folder / "kept" / "qat-lowered.checkpoint").unlink()
    (folder / "kept" / "qat.checkpoint").unlink()
    done(*words)
    assert (folder / "m").read_bytes() == first
    refused = nnp(*words, "--weights-bits", 3)
    assert refused.exit_code == 2
    assert "it is of another training, with recipe.weights_bits 4, not 3; give the same command" in refused.stderr
    assert "it is of another training, with kind image, not mlp" in nnp("train", "mlp", "--checkpoint", "kept").stderr


def test_quantize_what_was_trained(folder):
    text = done("train", "image", "own_layers:dense", *TINY, "-o", "m", "--fp32", "net.safetensors")
    assert "\nno preset takes the model; the nearest is vision: " in text
    assert "`nnp presets --fit m --preset vision -o my.toml`" in text
    text = done("quantize", "own_layers:dense", "net.safetensors", "-o", "q.safetensors", "--weights-bits", 5,
                "--layer", "3=8,6")
    assert "\nno preset takes the model; the nearest is vision: q cannot be compiled" in text
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in text.splitlines() if line.startswith("│")]
    assert [row[:3] for row in rows] == [
        ["1", "5 bits", "4 bits"], ["3", "8 bits", "6 bits"]]
    assert all(float(cell) > 10 for row in rows for cell in row[3:5])
    assert float(rows[1][3]) > float(rows[0][3]) + 15  # weights have 3 more bits
    made = load_model("q.safetensors")
    assert made.layers[1].weights_format.bits == 8
    right = network.predict(made, dataset.load("fashion-mnist").inputs) == dataset.load("fashion-mnist").labels
    assert right.mean() == made.provenance.golden_accuracy
    assert text.index("weights, dB") < text.index("quantised ")
    assert f"accuracy FP32 {made.provenance.fp32_accuracy:.2%}, quantised " in text
    assert f", golden {right.mean():.2%}" in text
    assert made.provenance.fp32_accuracy == load_model("m").provenance.fp32_accuracy


def test_quantize_ones_own_network_on_ones_own_data(folder):
    from concord.train.lib import networks
    from concord.train.lib.networks import build

    networks.save(build("own_layers:build"), folder / "net.safetensors")
    inputs = np.random.default_rng(0).normal(size=(30, 2, 4, 4))
    np.save("inputs.npy", inputs)
    words = ("quantize", "own_layers:build", "net.safetensors", "--calibration", "inputs.npy", "-o", "q.safetensors")
    options = ("--weights-bits", 8, "--input-bits", 8, "--ptq-activations", "uniform")
    assert "no labelled test set, so no measure" in done(*words, *options)
    made = load_model("q.safetensors")
    assert (made.data, made.provenance.golden_accuracy) == ("none", None)
    np.save("flat.npy", inputs.reshape(30, 32))
    done("predict", "q.safetensors", "--inputs", "flat.npy", "--samples", "all", "-o", "out.npy")
    net = build("own_layers:build").eval()
    with torch.no_grad():
        wanted = net(torch.from_numpy(inputs).float()).numpy()
    assert np.abs(np.load("out.npy") - wanted).max() < 0.05 * np.abs(wanted).max()


def test_compare_draws_and_tells_the_numbers(folder):
    words = ("compare", "--network", "own_layers:dense", "--seeds", 2, "--epochs", 1, "--fp32-epochs", 1,
             "--samples", 60, "--input-bits", 32)
    text = done(*words, "-o", folder / "out" / "figure.svg")
    assert "own_layers:dense W4/A32" in text
    assert "<svg" in (folder / "out" / "figure.svg").read_text()
    with (folder / "out" / "figure.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["accuracy"] != "" for row in rows] == [True] * (2 + 3 * 2 * 2)
    assert {row["start"] for row in rows} == {"FP32 network", "FP32", "min-max", "PTQ"}
    mean = np.mean([float(row["accuracy"]) for row in rows if (row["start"], row["epoch"]) == ("PTQ", "1")])
    assert f"{mean:.2f} ±" in next(line for line in text.splitlines() if line.startswith("│ PTQ"))


@pytest.mark.parametrize(("kind", "begins"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_pictures_are_the_same_for_the_same_numbers(kind, begins):
    from concord.nnp.lib.curves import picture, table

    curves = {"PTQ": [[1.0, 2.0], [3.0, 2.5]], "FP32": [[0.0, 2.0], [1.0, 2.5]]}
    first, again = (picture(kind, "net W4/A4", 4.0, curves) for _ in range(2))
    assert first == again
    assert first.startswith(begins)
    assert table([4.0, 4.5], curves).splitlines()[:5] == [
        "start,seed,epoch,accuracy", "FP32 network,0,,4.0", "FP32 network,1,,4.5", "PTQ,0,0,1.0", "PTQ,0,1,2.0"]


@pytest.mark.parametrize(("words", "sentence"), [
    (("train", "image", "own_layers:curved"), "'2': there is no quantised form of Softplus: use AdaptiveAvgPool1d"),
    (("train", "image", "mlp", "--layer", "x=8,8"), "there is no layer 'x' to give bits to; the network has 1, 3, 5"),
    (("train", "image", "mlp", "--weights-bits", 17), "17 bits: choose 1 to 16; `nnp compare`"),
    (("train", "image", "mlp", "--weights-bits", 1), "wrpn cannot train weights of 1 bit, which have no zero"),
    (("train", "image", "mlp", "--batch-norm", "--accumulator", 16), "--accumulator changes ranges, which"),
    (("train", "image", "mlp", "--samples", 0), "--samples 0: one training image at least"),
    (("train", "image", "mlp", "--epochs", "1,-1,1"), "epochs are [1, -1, 1]: none of the phases"),
    (("train", "image", "mlp", "-o", "own_layers.py/m"), "own_layers.py: it is a file, so own_layers.py/m cannot be"),
    (("train", "image", "mlp", "--fp32", "."), ".: it is a folder; name"),
    (("train", "image", "mlp", "--log", "own_layers.py/log.csv"), "own_layers.py: it is a file, so"),
    (("train", "image", "mlp", "--log", "own_layers.py"), "own_layers.py: it is a file; name another path"),
    (("train", "image", "mlp", "--checkpoint", "own_layers.py"), "own_layers.py: it is a file, so"),
    (("train", "lstm", "-o", "."), ".: it is a folder; name"),
    (("train", "mlp", "--patience", 2), "--patience is for --arithmetic bfp-lazy: leave it out"),
    (("train", "mlp", "--arithmetic", "bfp-lazy", "--rows", 2), "bfp-lazy trains from the start: --weights, --rows"),
    (("train", "image", "mlp", "--rule", "none"), "--rule is for --arithmetic bfp-lazy: leave it out"),
    (("train", "image", "mlp", "--arithmetic", "bfp-lazy", "--rule", "fp32"), "--rule fp32 leaves no mantissas for a"),
    (("train", "image", "mlp", "--arithmetic", "bfp-lazy", "--momentum", 1), "--momentum 1: 0 for none, or a number"),
    (("train", "image", "mlp", "--arithmetic", "bfp-lazy", "--epochs", "1,2"), "--epochs 1,2: bfp-lazy takes one"),
    (("train", "image", "mlp", "--arithmetic", "bfp-lazy", "--block", 8), "bfp-lazy trains from the start: besides"),
    (("train", "image", "mlp", "--arithmetic", "bfp-lazy", "--preset", "vision"), "vision_bfp8 for image networks"),
    (("train", "image", "mlp", "--arithmetic", "bfp-lazy", "--checkpoint", "own_layers.py"), "own_layers.py: it is a"),
    (("train", "gru", "--arithmetic", "bfp-lazy", "--bidirectional"), "bfp-lazy trains from the start: besides its"),
    (("train", "image", "mobilenet", "--arithmetic", "bfp-lazy"), "64 groups of channels, which training by lazy"),
    (("quantize", "mlp", "own.pt"), "own.pt: there is no such file; `nnp train image --fp32 FILE` writes one"),
    (("quantize", "own_layers:curved", "own.pt"), "there is no quantised form of Softplus"),
    (("quantize", "mlp", "a", "--calibration", "own_layers.py"), "own_layers.py: not a whole .npy file of numbers"),
    (("quantize", "mlp", "a", "--calibration", "b.npy"), "b.npy: there is no such file"),
    (("compare", "-o", "figure.txt"), "-o figure.txt: the name of a picture ends with .png, .svg or .pdf"),
    (("compare", "-o", "own_layers.py/a.png"), "own_layers.py: it is a file"),
    (("compare", "--weights-bits", 32, "--input-bits", 32), "leave nothing to quantise"),
    (("compare", "--network", "own_layers:curved"), "there is no quantised form of Softplus"),
])
def test_what_is_refused_before_anything_slow(words, sentence, too_late, folder):
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.suffix == ".py"}
    result = nnp(*words)
    assert result.exit_code == 2, result.output
    assert result.stderr.startswith("nnp: ")
    assert sentence in result.stderr
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc"} == before


def test_a_folder_that_may_not_be_written(too_late, monkeypatch, folder):
    monkeypatch.setattr(os, "access", lambda path, mode: path != folder)
    result = nnp("train", "image", "mlp", "-o", folder / "deep" / "m")
    assert result.exit_code == 2
    assert f"{folder / 'deep' / 'm'}: {folder} cannot be written; name another path" in result.stderr


def test_calibration_sets_that_are_refused(folder):
    def refused(array) -> str:
        np.save("in.npy", array)
        return nnp("quantize", "mlp", "a", "--calibration", "in.npy").stderr

    assert "in.npy: numbers[samples, ...] are needed, not float64[3]" in refused(np.zeros(3))
    assert "in.npy: some numbers are too large for binary16, or are none; scale them" in refused(np.full((2, 784), 1e6))
    assert "the network does not take inputs of shape [7]" in refused(np.zeros((2, 7)))
    np.save("in.npy", np.array([{}]), allow_pickle=True)
    assert "not a whole .npy file" in nnp("quantize", "mlp", "a", "--calibration", "in.npy").stderr
