"""`nnp quantize FILE` and `nnp train FILE`: models of imported networks, and errors before slow work."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from concord.datasets.measures import measure
from concord.datasets.read import read_data
from concord.datasets.samples import Task
from concord.lib.progress import lines
from concord.net import graph_file as file
from concord.net import network as golden
from concord.net.cells.gru import AFTER
from concord.net.model_file import load_model
from concord.net.quantize import run
from concord.tests import float_networks
from concord.tests.command_line import done, nnp, refused
from concord.workflows.presets import compile_for
from rich.console import Console

torch = pytest.importorskip("torch", reason="PyTorch is in the dependency group `train`")
from concord.train.runs import imported

NETWORKS = {
    "perceptron": float_networks.perceptron, "residual": float_networks.residual, "lstm": float_networks.sequences,
    "gru": lambda: float_networks.sequences(AFTER),
    "both": lambda: float_networks.sequences(AFTER, both=True)}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A working folder with networks and data."""
    rng = np.random.default_rng(0)
    for name, make in NETWORKS.items():
        file.save(make(), tmp_path / f"{name}.safetensors")
    file.save(float_networks.perceptron(12, 12), tmp_path / "restoring.safetensors")
    x, y = rng.normal(size=(80, 12)).astype(np.float32), rng.integers(0, 3, 80)
    x[np.arange(80), y] += 3
    arrays = {"x_train": x[:60], "x_test": x[60:]}
    np.savez(tmp_path / "classes.npz", **arrays, y_train=y[:60], y_test=y[60:])
    targets = np.stack([x[:, 0] * 50, x[:, 1], x.sum(1), x[:, 2]], 1)
    np.savez(tmp_path / "targets.npz", **arrays, y_train=targets[:60], y_test=targets[60:])
    np.savez(tmp_path / "anomalies.npz", **arrays, y_train=np.arange(60) % 4 == 0, y_test=np.arange(20) % 2)
    np.savez(tmp_path / "images.npz", x_train=rng.normal(size=(30, 1, 8, 8)), y_train=np.arange(30) % 3)
    np.savez(tmp_path / "steps.npz", x_train=rng.normal(size=(30, 6, 5)), y_train=np.arange(30) % 4,
             x_test=rng.normal(size=(8, 6, 5)), y_test=np.arange(8) % 4)
    (tmp_path / "targets.toml").write_text('data = "targets.npz"\ntask = "regression"\n')
    (tmp_path / "anomalies.toml").write_text('data = "anomalies.npz"\ntask = "anomaly"\n')
    monkeypatch.chdir(tmp_path)
    return tmp_path


def assert_model(path, data: str, task: Task):
    """Assert that a model says how it is measured, and that the figures in it are those of golden."""
    model, found = load_model(path), read_data(data)
    test = (found.as_sequences() if model.recurrent else found).test
    assert model.task is task
    assert len(model.fp32_predictions) == len(model.quantized_predictions) == len(test)
    outputs = golden.outputs(model, test.inputs, test.lengths).view(np.float16).astype(np.float64)
    assert next(iter(measure(task, outputs, test).values())) == model.provenance.golden_accuracy
    assert "data = " in model.description
    compile_for(model, "speech")


@pytest.mark.parametrize("arithmetic", ["integer", "bfp"])
@pytest.mark.parametrize(("name", "data"), [
    ("perceptron", "classes.npz"), ("lstm", "steps.npz"), ("gru", "steps.npz")])
def test_quantized_networks_are_measured_and_compile(name, data, arithmetic):
    text = done("quantize", f"{name}.safetensors", "--for", "speech", "--data", data, "--arithmetic", arithmetic,
                "-o", "m.safetensors")
    assert "PTQ 1/" in text
    assert "m.safetensors: accuracy FP32 " in text
    assert "cannot run it" not in text
    assert_model("m.safetensors", data, Task.CLASSIFICATION)


def test_channels_are_equalised_where_it_is_asked_for():
    asked = ("perceptron.safetensors", "--preset", "speech", "--data", "classes.npz")
    text = done("quantize", *asked, "--equalize", "-o", "m.safetensors")
    assert "equalise 1/4 share 0: outputs " in text
    assert "channels " in load_model("m.safetensors").provenance.method
    assert "equalise" not in done("quantize", *asked, "-o", "plain.safetensors")
    checked = done("verify", *asked, "--equalize", "--machine", "golden", "--report", "report")
    assert "equalise 1/4 share 0: outputs " in checked
    kept = load_model("report/perceptron.safetensors")
    assert kept.provenance.command.endswith("--equalize --data classes.npz -o report/perceptron.safetensors")
    for words, said in (
            (("verify", "m.safetensors", "--equalize"), "--equalize is for networks in float32"),
            (("train", "perceptron.safetensors", "--data", "classes.npz", "--options", "own.toml"),
             "--equalize is for `nnp quantize` and `nnp verify`, which do not train"),
            (("quantize", "mlp", "p.safetensors", "--equalize"), "--equalize is for files of networks")):
        Path("own.toml").write_text('preset = "speech"\nequalize = true\n')
        assert said in " ".join(refused(*words).split())


def test_a_machine_that_cannot_run_the_result_is_named():
    text = done("quantize", "both.safetensors", "--for", "speech", "--data", "steps.npz")
    assert "the machine has no VectorRf, which images need: choose a preset that has one" in " ".join(text.split())


def test_a_machine_that_is_too_small_for_the_result_is_named(folder):
    (folder / "small.toml").write_text('based_on = "speech"\ninstructions = 8\n')
    text = done("quantize", "perceptron.safetensors", "--for", "small.toml", "--data", "classes.npz", "-o",
                "m.safetensors")
    assert "small.toml cannot run it: " in text
    assert "`nnp presets --fit m.safetensors --preset small.toml -o my.toml`" in text


def test_images_without_a_test_set_and_with_a_calibration_file(folder):
    text = done("quantize", "residual.safetensors", "--for", "vision", "--data", "images.npz", "-o", "a.safetensors")
    assert "quantised" in text, "a share of the training samples is the test set"
    np.save("c.npy", np.random.default_rng(1).normal(size=(9, 1, 8, 8)))
    text = done("quantize", "residual.safetensors", "--for", "vision", "--calibration", "c.npy", "-o", "b.safetensors")
    assert "no labelled test set, so no measure" in text
    made = load_model(folder / "b.safetensors")
    assert (made.data, made.provenance.fp32_accuracy, len(made.fp32_predictions)) == ("none", None, 0)


@pytest.mark.parametrize(("name", "data", "task"), [
    ("perceptron", "classes.npz", Task.CLASSIFICATION), ("perceptron", "targets.toml", Task.REGRESSION),
    ("restoring", "anomalies.toml", Task.ANOMALY), ("lstm", "steps.npz", Task.CLASSIFICATION)])
def test_training_goes_on_from_the_networks_weights(name, data, task, folder):
    words = ("train", f"{name}.safetensors", "--for", "speech", "--data", data, "--epochs", "3,1")
    text = done(*words, "-o", "m.safetensors", "--log", "log.csv", "--checkpoint", "kept")
    assert "QAT 2/6 loss" in text or "QAT 1/3 loss" in text
    assert_model("m.safetensors", data, task)
    rows = (folder / "log.csv").read_text().splitlines()
    losses = [float(row.split(",")[-2]) for row in rows[1:4]]
    assert losses[-1] < losses[0]


def test_a_checkpoint_of_other_weights_is_refused(folder):
    """A network that was trained again under the same name is another training, and so is a model to start from."""
    words = ("train", "net.safetensors", "--for", "speech", "--data", "classes.npz", "--epochs", "1,0", "-o", "m")
    network = file.load(folder / "perceptron.safetensors")
    file.save(network, folder / "net.safetensors")
    done(*words, "--checkpoint", "kept")
    done(*words, "--checkpoint", "kept")
    *nodes, final = network.nodes
    final = replace(final, op=replace(final.op, weight=2 * final.op.weight))
    file.save(replace(network, nodes=(*nodes, final)), folder / "net.safetensors")
    assert "it is of another training, with numbers of the network " in nnp(*words, "--checkpoint", "kept").stderr
    done(*words[:-1], "first")
    done(*words, "--start-from", "first", "--checkpoint", "others")
    done(*words[:-1], "first", "--seed", 1)
    refused = nnp(*words, "--start-from", "first", "--checkpoint", "others")
    assert "it is of another training, with file of begun " in refused.stderr


def test_a_regression_in_blocks(folder):
    done("train", "perceptron.safetensors", "--arithmetic", "bfp", "--weights-bits", 6, "--input-bits", 6, "--data",
         "targets.toml", "--epochs", "1,1", "-o", "m.safetensors")
    made = load_model(folder / "m.safetensors")
    assert made.fp32_predictions.shape == (20, 4)
    assert "block floating point" in made.provenance.method


@pytest.mark.parametrize(("words", "message"), [
    (("quantize", "nix.onnx", "--for", "vision"), "nix.onnx: there is no such file"),
    (("train", "nix.safetensors", "--for", "vision", "--data", "classes.npz"), "nix.safetensors: there is no such"),
    (("train", "perceptron.safetensors", "--for", "vision"), "name the data to train on with --data"),
    (("train", "perceptron.safetensors", "--data", "classes.npz"), "name the machine, such as --preset vision"),
    (("quantize", "perceptron.safetensors", "--for", "visoin", "--data", "classes.npz"), "visoin"),
    (("quantize", "perceptron.safetensors", "--for", "speech"), "give data to calibrate with, by --data"),
    (("quantize", "perceptron.safetensors", "p", "--for", "speech"), "it holds its parameters, so leave p out"),
    (("quantize", "mlp", "--for", "speech"), "name a file after it that holds its FP32 parameters"),
    (("quantize", "mlp", "p", "--arithmetic", "bfp"), "--bias-bits are for files of networks"),
    (("train", "perceptron.safetensors", "--for", "speech", "--data", "images.npz"), "a sample is 1 x 8 x 8, but"),
    (("train", "perceptron.safetensors", "--for", "speech", "--data", "targets.toml", "--epochs", "3"),
     "two numbers parted by commas are needed, such as 4,1"),
    (("train", "restoring.safetensors", "--for", "speech", "--data", "targets.toml"), "4 targets for each sample"),
    (("train", "lstm.safetensors", "--for", "speech", "--data", "steps.npz", "--layer", "rnn_one=4,4"),
     "there is no layer 'rnn_one' to give bits to"),
    (("train", "lstm.safetensors", "--for", "speech", "--data", "steps.npz", "--accumulator", 66),
     "--accumulator 66 is no width"),
    (("train", "perceptron.safetensors", "--for", "speech", "--data", "classes.npz", "--gate-bits", 4),
     "--bias-bits are for recurrent networks"),
    (("train", "perceptron.safetensors", "--for", "speech", "--data", "classes.npz", "--rate", -1), "above 0"),
    (("train", "perceptron.safetensors", "--arithmetic", "bfp", "--for", "speech", "--data", "classes.npz",
      "--weights", "lsq"), "bfp finds its own exponents")])
def test_errors_come_before_slow_work(words, message, folder, monkeypatch):
    def reached(*_, **__):
        raise AssertionError("too late")

    monkeypatch.setattr(imported, "calibrate", reached)
    monkeypatch.setattr(run, "quantized", reached)
    before = set(folder.iterdir())
    result = nnp(*words)
    assert result.exit_code == 2, result.output
    assert message in result.stderr
    assert set(folder.iterdir()) == before


def test_progress_in_a_pipe_is_lines(capsys):
    show = lines(Console(force_terminal=False, width=200))
    for step in range(1, 4):
        show("QAT", step, 3, "loss 0.5" if step == 3 else "")
    assert capsys.readouterr().out == "QAT 3/3 loss 0.5\n"
