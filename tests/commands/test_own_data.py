"""Data of one's own under `nnp predict`, `verify`, `run` and `overflow`: measures by task, and early refusals."""

import csv
import json
from dataclasses import replace

import numpy as np
import pytest
from concord.campaigns.makers import networks
from concord.compiler.network import compile_network
from concord.datasets.measures import measure, predictions, text
from concord.datasets.read import read_data
from concord.datasets.samples import DataSet, Task
from concord.firmware.firmware_file import save_firmware
from concord.net import network
from concord.net.model_file import save_model
from concord.spec.machine.config import preset
from concord.tests.command_line import done, nnp, refused
from concord.tests.float_networks import Chain
from concord.workflows.imports import data_set
from concord.workflows.results import described, real
from PIL import Image

RNG = np.random.default_rng(0)
X = RNG.normal(size=(20, 6))


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def made(outputs: int, labels, text: str = "test = 1", **fields) -> tuple[DataSet, np.ndarray]:
    """A model m of 6 inputs, whose data own.toml describes, with the float predictions of its own golden outputs.

    Returns:
        The data set, and the outputs of the network for its test samples, as real numbers.
    """
    np.savez("own.npz", x=X, **({} if labels is None else {"y": labels}))
    with open("own.toml", "w") as file:
        file.write(f'data = "own.npz"\n{text}\n')
    data = read_data("own.toml")
    model = networks.mlp(np.random.default_rng(1), preset("tiny"), [6, outputs], block=True)
    found = real(network.outputs(model, data.test.inputs))
    kept = predictions(data.task, found + 0.25 if data.task is Task.REGRESSION else found)
    model = replace(model, data="own", task=data.task, description=data.description, fp32_predictions=kept,
                    quantized_predictions=kept, classes=data.classes, **fields)
    save_model(model, "m")
    save_firmware(compile_network(model, preset("tiny")).firmware, "f")
    return data, found


def verified(*words) -> dict:
    """The record of a verification on golden, whose report lies in `out`."""
    done("verify", "m", *words, "--preset", "tiny", "--machine", "golden", "-j", 1, "--report", "out")
    with open("out/verify.json") as file:
        (found,) = json.load(file)
    return found


def rows() -> list[dict]:
    with open("out/m.csv", newline="") as file:
        return list(csv.DictReader(file))


def test_classes_of_any_number():
    labels = np.arange(20) % 4
    data, outputs = made(4, labels)
    right = (outputs.argmax(axis=1) == labels).mean()
    assert done("predict", "m", "--data", "own.toml", "-q", "--samples", "all") == f"{right:.2%} of 20 right\n"
    assert done("run", "f", "--data", "own.toml", "-q", "--samples", "all") == f"{right:.2%} of 20 right\n"
    record = verified("--data", "own.toml")
    assert (record["task"], record["description"]) == ("classification", data.description)
    assert record["measures"] == {name: {"accuracy": right} for name in ("FP32", "quantised", "golden")}
    assert np.trace(record["confusion"]) == right * 20
    assert {row["FP32 class"] == row["golden class"] for row in rows()} == {True}
    with open("out/verify.html") as file:
        page = file.read()
    for words in ("<h2 class=\"first\">Accuracy</h2>", "Confusion matrix", "@media print", "test_digest",
                  "nnp verify m --preset tiny --machine golden --data own.toml --first 0 --samples 20"):
        assert words in page


def test_regression_is_measured_by_rmse():
    targets = RNG.normal(size=(20, 3))
    data, outputs = made(3, targets)
    wanted = measure(Task.REGRESSION, outputs, data.test)
    words = f"RMSE {text('RMSE', wanted['RMSE'])}, R2 {text('R2', wanted['R2'])} of 20 samples"
    lines = done("predict", "m", "--data", "own.toml", "--samples", "all").splitlines()
    assert lines[-1] == words
    assert lines[3] == (f"3: {' '.join(f'{v:.4g}' for v in outputs[3])} "
                        f"(is {' '.join(f'{v:.4g}' for v in targets[3].astype(np.float32))})")
    assert done("run", "f", "--data", "own.toml", "-q", "--samples", "all").strip() == words
    record = verified("--data", "own.toml")
    assert record["measures"]["golden"] == wanted
    assert record["measures"]["FP32"] == measure(Task.REGRESSION, outputs.astype(np.float32) + 0.25, data.test)
    assert record["confusion"] == []
    assert record["accuracy"] == {}
    first = rows()[0]
    assert float(first["FP32 1"]) == pytest.approx(float(first["golden 1"]) + 0.25, abs=1e-3)
    assert float(first["target 2"]) == np.float32(targets[0, 2])
    with open("out/verify.html") as file:
        page = file.read()
    assert "RMSE, golden" in page
    assert "R2, FP32" in page
    assert "Confusion" not in page
    assert "Answers of the machine and labels" in page


@pytest.mark.parametrize("outputs", [1, 6])
def test_anomalies_are_measured_by_auc(outputs):
    labels = np.arange(20) % 5 == 0
    data, found = made(outputs, labels, 'test = 1\ntask = "anomaly"')
    wanted = measure(Task.ANOMALY, found, data.test)
    lines = done("predict", "m", "--data", "own.toml", "--samples", "all").splitlines()
    assert lines[-1] == f"AUC {wanted['AUC']:.4g} of 20 samples"
    assert lines[5].endswith("(is an anomaly)")
    assert lines[6].startswith("6: score ")
    alone = nnp("predict", "m", "--data", "own.toml", "--first", 1, "--samples", 3, "-q")
    assert alone.stdout == "AUC not defined of 3 samples\n"
    assert "own.toml: all 3 samples are normal, so that AUC is not defined; take samples of both kinds" in alone.stderr
    if outputs == 1:
        return
    record = verified("--data", "own.toml")
    assert record["measures"] == dict.fromkeys(("FP32", "quantised", "golden"), wanted)
    assert [row["anomaly"] for row in rows()][:2] == ["1", "0"]
    assert {row["FP32 score"] == row["golden score"] == row["machine score"] for row in rows()} == {True}


def test_data_without_labels():
    made(3, None, 'test = 1\ntask = "none"')
    assert done("predict", "m", "--data", "own.toml", "-q") == "10 samples\n"


def test_other_samples_are_measured_without_float_networks(folder):
    made(4, np.arange(20) % 4, "test = 1\n[preprocessing]\nscale = 0.5")
    np.savez("new.npz", x=X[:5], y=np.arange(5) % 4)
    record = verified("--data", "new.npz")
    assert record["measures"].keys() == {"golden"}
    assert record["samples"] == 5
    assert "FP32 class" not in rows()[0]
    with open("out/verify.html") as file:
        assert "not known" in file.read()
    # The description that travels with the model scales them.
    (folder / "same.toml").write_text('data = "new.npz"\ntest = 1\n[preprocessing]\nscale = 0.5\n')
    (folder / "plain.toml").write_text('data = "new.npz"\ntest = 1\n')
    for name, equal in ("same.toml", True), ("plain.toml", False):
        done("predict", "m", "--data", name, "-o", "b.npy")
        done("predict", "m", "--data", "new.npz", "-o", "a.npy")
        assert np.array_equal(np.load("a.npy"), np.load("b.npy")) == equal
        done("run", "f", "--data", "new.npz", "-o", "c.npy")
        assert np.array_equal(np.load("a.npy"), np.load("c.npy"))


def test_every_form_gives_the_same_outputs(folder, monkeypatch):
    made(4, np.arange(20) % 4)
    with open("own.csv", "w") as file:
        file.write("a,b,c,d,e,f,label\n")
        file.writelines(",".join(map(repr, row)) + f",{index % 4}\n" for index, row in enumerate(X.tolist()))
    (folder / "table.toml").write_text('data = "own.csv"\ntest = 1\n')
    (folder / "own_source.py").write_text("import numpy as np\ndef made():\n    f = np.load('own.npz')\n"
                                          "    return {'x_test': f['x'], 'y_test': f['y']}\n")
    monkeypatch.syspath_prepend(folder)
    wanted = done("predict", "m", "--data", "own.toml")
    assert wanted.endswith(" of 10 right\n")
    for location in "own.npz", "own.csv", "table.toml", "own_source:made":
        assert done("predict", "m", "--data", location) == wanted


def test_a_folder_of_images(folder):
    pixels = RNG.integers(0, 256, (8, 2, 3)).astype(np.uint8)
    for index, image in enumerate(pixels):
        kind = folder / "set" / f"kind{index % 4}"
        kind.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(kind / f"{index}.png")
    (folder / "set.toml").write_text('data = "set"\ntest = 1\n')
    made(4, np.arange(20) % 4)
    assert done("predict", "m", "--data", "set.toml").count("\n") == 9
    assert nnp("predict", "m", "--data", "set").stderr.startswith(
        "nnp: set: 8 images of 2 x 3 pixels, grey\nnnp: set: the labels are texts, numbered in alphabetic order:")


def test_sequences_of_a_recurrent_network():
    steps, lengths = RNG.normal(size=(6, 5, 4)), np.array([5, 2, 1, 4, 5, 3])
    np.savez("own.npz", x_test=steps, y_test=np.arange(6) % 3, lengths_test=lengths)
    np.savez("equal.npz", x_test=steps, y_test=np.arange(6) % 3)
    model = networks.recurrent(np.random.default_rng(1), preset("tiny"), [4, 8], block=[True], outputs=3)
    save_model(replace(model, data="own", classes=("a", "b", "c")), "m")
    found = network.outputs(model, read_data("own.npz").test.inputs, lengths)
    done("predict", "m", "--data", "own.npz", "-o", "o.npy")
    assert np.array_equal(np.load("o.npy").view(np.uint16), found)
    done("predict", "m", "--data", "equal.npz", "-o", "o.npy")  # its first axis is time
    assert np.array_equal(np.load("o.npy").view(np.uint16)[0], found[0])
    np.savez("flat.npz", x_test=steps[:, 0], y_test=np.arange(6) % 3)
    assert "a recurrent network takes sequences, [time, numbers] each, and a sample is [4]" in refused(
        "predict", "m", "--data", "flat.npz")


def test_overflow_measures_by_task(folder):
    data, _ = made(3, RNG.normal(size=(20, 3)))
    model = networks.mlp(np.random.default_rng(1), preset("tiny"), [6, 3], block=False)
    save_model(replace(model, data="own", task=data.task), "m")
    wanted = described(measure(data.task, real(network.outputs(model, data.test.inputs)), data.test))
    words = " ".join(done("overflow", "m", "--data", "own.toml", "--accumulator", 32).split())
    assert f"{wanted}; with sums that wrap at 32 bits" in words
    assert wanted.startswith("RMSE ")


@pytest.mark.parametrize(("text", "arrays", "sentence"), [
    ("", {"x": X[:, :5], "y": np.arange(20) % 4}, "a sample is 5 numbers, but m takes 6 numbers; give"),
    ("", {"x": X[:, :1], "y": np.arange(20) % 4}, "a sample is 1 number, but m takes 6 numbers; give"),
    ("", {"x": X, "y": np.arange(20) % 5}, "has class 4, m has 4 outputs"),
    ("", {"x": X, "y": X}, "the data are for regression, but m was made for classification; write `task = "),
    ('classes = ["d", "c", "b", "a"]', {"x": X, "y": np.arange(20) % 4}, "its classes are d, c, b, a, those of m a,"),
    ("", {"x_train": X, "y_train": np.arange(20) % 4}, None),
    ("test = 0", {"x": X, "y": np.arange(20) % 4}, "it holds no test set; with `test = 1` in a TOML file"),
    ("", {"x": np.full((20, 6), np.nan), "y": np.arange(20) % 4}, "element [0]: nan is no finite number"),
])
@pytest.mark.parametrize("command", ["verify", "predict"])
def test_data_that_do_not_fit_are_refused_before_slow_work(command, text, arrays, sentence, folder, monkeypatch):
    def reached(*_):
        raise AssertionError("too late")

    made(4, np.arange(20) % 4, 'test = 1\nclasses = ["a", "b", "c", "d"]', name="m")
    np.savez("other.npz", **arrays)
    (folder / "other.toml").write_text(f'data = "other.npz"\n{text}\n')
    monkeypatch.setattr("concord.verification.batches.Builds.__init__", reached)
    if sentence is None:
        assert done("predict", "m", "--data", "other.toml").count("\n") == 5
        return
    assert sentence in refused(command, "m", "--data", "other.toml")
    assert not (folder / "build").exists()


def test_commands_that_train_say_what_was_chosen_by_default(capsys):
    np.savez("own.npz", x=X, y=np.arange(20) % 4)
    assert len(data_set("own.npz", Chain((6,)).dense("one", 4, 6).network("net"), None).test) == 4
    assert "nnp: own.npz, x: 4 of 20 samples, a share of 0.2 by seed 0, are the test set" in capsys.readouterr().err


def test_outputs_that_do_not_fit_the_task(folder):
    made(3, RNG.normal(size=(20, 3)), name="m")
    np.savez("own.npz", x=X, y=X[:, :2])
    assert "each sample has 2 targets, m has 3 outputs; name the columns of the targets" in refused(
        "predict", "m", "--data", "own.toml")
    (folder / "own.toml").write_text('data = "own.npz"\ntest = 1\ntask = "anomaly"\n')
    np.savez("own.npz", x=X, y=np.arange(20) % 2)
    assert "the data are for anomaly, but m was made for regression" in refused("predict", "m", "--data", "own.toml")
