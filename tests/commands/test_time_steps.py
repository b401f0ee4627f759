"""Networks that give an output at each time step, with a class for each of them."""

import json

import numpy as np
import onnxruntime
import pytest
import torch
from concord.campaigns.makers.onnx_graphs import HIDDEN, INPUTS, OnnxGraph, equal, layer, written
from concord.datasets.measures import measure
from concord.datasets.read import data_of
from concord.datasets.samples import UNLABELLED, Samples, Task
from concord.net.model_file import load_model
from concord.tests.command_line import done, nnp, refused
from concord.train.lib.samples import SampleTensors, loss_of
from concord.workflows.torch_modules import exported
from torch import nn

RNG = np.random.default_rng(3)
STEPS, CLASSES = 6, 3


def tagger(folder, directions: int = 1, steps: int | str = STEPS, end: str = "Identity"):
    """The file of a network that classifies each time step, with time first or samples first."""
    graph = OnnxGraph((1 if steps == STEPS else "n", steps, INPUTS))
    graph.add("Transpose", perm=[1, 0, 2])
    layer(graph, "LSTM", directions)
    graph.at = graph.nodes[-1].output[0]
    graph.add("Transpose", perm=[2, 0, 1, 3])
    graph.add("Reshape", graph.constant(np.array([0, 0, directions * HIDDEN])))
    graph.add("MatMul", graph.weight(directions * HIDDEN, CLASSES))
    graph.add("Add", graph.weight(CLASSES))
    graph.add(end, **({"axis": -1} if end != "Identity" else {}))
    return written(folder, graph, "tagger.onnx")


def arrays(path) -> dict[str, np.ndarray]:
    """Sequences, and for each time step the class that onnxruntime gives, UNLABELLED at some."""
    x = RNG.normal(size=(40, STEPS, INPUTS)).astype(np.float16).astype(np.float32)
    run = onnxruntime.InferenceSession(path)
    y = np.stack([run.run(None, {"x": one[None]})[0].reshape(STEPS, CLASSES).argmax(1) for one in x])
    y[::3, 4:] = UNLABELLED
    return {"x_train": x[:24], "y_train": y[:24], "x_test": x[24:], "y_test": y[24:]}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("directions", [1, 2])
def test_each_time_step_is_classified(folder, directions):
    given = arrays(tagger(folder, directions))
    np.savez("own.npz", **given)
    equal(folder / "tagger.onnx")
    said = done("quantize", "tagger.onnx", "--data", "own.npz", "--preset", "vision", "-o", "m.safetensors")
    assert "accuracy 100.00%" in said  # onnxruntime's, in the order of the file
    model, count = load_model("m.safetensors"), (given["y_test"] != UNLABELLED).sum()
    assert model.fp32_predictions.shape == given["y_test"].shape
    assert model.provenance.fp32_accuracy == 1
    assert model.provenance.golden_accuracy > 0.8
    said = done("predict", "m.safetensors", "--data", "own.npz", "--samples", "all", "-o", "golden.npy")
    assert f"{model.provenance.golden_accuracy:.2%} of {count} time steps or pixels right" in said
    assert said.startswith("0: class")
    done("compile", "m.safetensors", "--preset", "vision", "-o", "f.safetensors")
    done("run", "f.safetensors", "--data", "own.npz", "--samples", "all", "-o", "machine.npy")
    golden, machine = (np.load(name) for name in ("golden.npy", "machine.npy"))
    assert golden.shape == (16, CLASSES, STEPS)
    np.testing.assert_array_equal(golden, machine)
    known = given["y_test"] != UNLABELLED
    assert (golden.argmax(axis=1) == given["y_test"])[known].mean() == model.provenance.golden_accuracy
    for framework in "numpy", "onnx", "torch":
        said = done("twin", "f.safetensors", "--to", framework, "--data", "own.npz", "-o", framework)
        assert "0 differing bits over 3 samples" in said
    np.save("x.npy", given["x_test"])
    said = refused("predict", "m.safetensors", "--inputs", "x.npy", "--keep-state")
    assert f"takes whole sequences of {STEPS} time steps and keeps no state" in said
    assert done("predict", "m.safetensors", "--inputs", "x.npy").count("class") == 10 * STEPS


def test_training_and_reports(folder):
    given = arrays(tagger(folder))
    np.savez("own.npz", **given)
    done("train", "tagger.onnx", "--data", "own.npz", "--preset", "vision", "--epochs", "1,1", "-o", "m.safetensors")
    said = done("verify", "m.safetensors", "--data", "own.npz", "--machine", "golden", "--report", "out")
    assert f"{load_model('m.safetensors').provenance.golden_accuracy:.2%}" in said
    label, *answers = (folder / "out/m.csv").read_text().splitlines()[1].split(",")[1:5]
    assert label == " ".join(map(str, given["y_test"][0]))
    assert all(len(answer.split()) == STEPS for answer in answers)


def test_time_steps_without_a_class_are_neither_trained_nor_measured():
    labels = np.array([[0, 1], [2, UNLABELLED]], np.int32)
    samples = Samples(inputs=np.zeros((2, 2, 1), np.uint16), labels=labels)
    outputs = np.zeros((2, 3, 2))
    outputs[0, 0, 0] = outputs[0, 1, 1] = outputs[1, 1, 0] = outputs[1, 2, 1] = 1
    assert measure(Task.CLASSIFICATION, outputs.reshape(2, -1), samples) == {"accuracy": 2 / 3}
    loss, index = loss_of(Task.CLASSIFICATION, SampleTensors.of(samples)), torch.arange(2)
    made = torch.tensor(outputs.reshape(2, -1))
    before = loss(made, index)
    made[1, 1::2] += 5  # the second time step of the second sample
    assert loss(made, index) == before
    made[1, 0] += 5
    assert loss(made, index) > before


def test_an_open_number_of_time_steps_needs_a_size(folder):
    path = tagger(folder, steps="t")
    given = arrays(path)
    np.savez("own.npz", **given)
    lengths = {f"lengths_{part}": np.arange(len(given[f"x_{part}"])) % STEPS + 1 for part in ("train", "test")}
    np.savez("lengths.npz", **given, **lengths)
    said = refused("quantize", path, "--data", "lengths.npz", "--preset", "vision", "-o", "m.safetensors")
    assert "the file leaves their number open; export the network with a fixed number of time steps" in said
    said = refused("import", path, "-o", "m.safetensors")
    assert "the file leaves their number open; export the network with a fixed number of time steps" in said
    done("import", path, "--shape", f"{STEPS},{INPUTS}", "-o", "closed.safetensors")
    done("quantize", "closed.safetensors", "--data", "own.npz", "--preset", "vision", "-o", "m.safetensors")
    assert load_model("m.safetensors").provenance.fp32_accuracy == 1


def test_samples_decide_an_open_number_of_time_steps(folder):
    path = tagger(folder, steps="t")
    given = arrays(path)
    np.savez("own.npz", **given)
    np.save("x.npy", given["x_train"])
    for words in (
            ("quantize", path, "--data", "own.npz", "--preset", "vision", "-o", "m.safetensors"),
            ("quantize", path, "--calibration", "x.npy", "--preset", "vision", "-o", "x.safetensors"),
            ("verify", path, "--data", "own.npz", "--machine", "golden", "--report", "out"),
            ("train", path, "--data", "own.npz", "--preset", "vision", "--epochs", "0,1", "-o", "t.safetensors")):
        said = " ".join(nnp(*words).output.split())
        assert f"leaves the number of time steps open; samples are [{STEPS}, {INPUTS}], as the data have them" in said
    assert load_model("m.safetensors").provenance.fp32_accuracy == 1
    assert load_model("x.safetensors").layers
    assert load_model("t.safetensors").provenance.golden_accuracy > 0.8


def test_a_softmax_of_each_time_step_is_left_to_the_host(folder):
    np.savez("own.npz", **arrays(tagger(folder, end="LogSoftmax")))
    done("quantize", "tagger.onnx", "--data", "own.npz", "--preset", "vision", "-o", "m.safetensors")
    assert load_model("m.safetensors").provenance.fp32_accuracy == 1


class Tagger(nn.Module):
    """A network of PyTorch with a function at its end that the host computes."""

    def __init__(self):
        super().__init__()
        self.first, self.head = nn.GRU(INPUTS, HIDDEN, batch_first=True), nn.Linear(HIDDEN, CLASSES)

    def forward(self, x):
        return torch.log_softmax(self.head(self.first(x)[0]), -1) + self.training


def test_a_module_whose_end_the_host_computes_is_compared_before_it(monkeypatch):
    network, original = exported(Tagger(), torch.randn(2, STEPS, INPUTS))
    assert original.by == "onnxruntime"
    assert network.shapes[network.output.name] == (CLASSES, 1, STEPS)
    monkeypatch.setattr("concord.workflows.torch_modules._run", lambda module, tensor, like: [np.zeros((2, 6, 3))])
    with pytest.raises(ValueError, match="its export to ONNX gives other outputs in onnxruntime than the module"):
        exported(Tagger(), torch.randn(2, STEPS, INPUTS))


@pytest.mark.parametrize(("labels", "words"), [
    (np.full((8, STEPS), -2), "label -2 is not one of the classes 0..65535, or -1 for a time step or pixel without"),
    (np.full((8, STEPS), 0.5), None),
])
def test_labels_of_time_steps(labels, words):
    values = {"x": np.zeros((8, STEPS, INPUTS)), "y": labels}
    if words is None:
        assert data_of(values).task is Task.REGRESSION
        return
    with pytest.raises(ValueError, match=words):
        data_of(values)


def test_samples_without_any_class_have_no_accuracy(folder):
    given = arrays(tagger(folder))
    given["y_test"][:2] = UNLABELLED
    np.savez("own.npz", **given)
    done("quantize", "tagger.onnx", "--data", "own.npz", "--preset", "vision", "-o", "m.safetensors")
    said = nnp("predict", "m.safetensors", "--data", "own.npz", "--samples", 2, "--quiet")
    assert said.stdout == "accuracy not defined of 2 samples\n"
    assert "no time step or pixel of all 2 samples has a class" in said.stderr
    done("verify", "m.safetensors", "--data", "own.npz", "--samples", 2, "--machine", "golden", "--report", "out")
    text = (folder / "out" / "verify.json").read_text()
    (record,) = json.loads(text, parse_constant=pytest.fail)  # NaN is no JSON
    assert record["accuracy"]["golden"] is None


def test_texts_and_classes_of_the_network(folder):
    given = arrays(tagger(folder))
    given["y_test"][0] = given["y_train"][0] = [0, 1, 2, 0, 1, 2]
    texts = {name: np.array(["b", "a", "c"])[np.maximum(value, 0)] if name[0] == "y" else value
             for name, value in given.items()}
    data = data_of(texts)
    assert data.classes == ("a", "b", "c")
    np.testing.assert_array_equal(data.test.labels, np.array([1, 0, 2])[np.maximum(given["y_test"], 0)])
    np.savez("own.npz", **given | {"y_test": given["y_test"] + (given["y_test"] == 2) * 5})
    assert "has class 7, but the network has 3 outputs" in refused(
        "quantize", "tagger.onnx", "--data", "own.npz", "--preset", "vision", "-o", "m.safetensors")
    np.savez("own.npz", **given)
    done("quantize", "tagger.onnx", "--data", "own.npz", "--preset", "vision", "-o", "m.safetensors")
    np.savez("wrong.npz", x=given["x_test"], y=given["y_test"] + 3 * (given["y_test"] == 2))
    assert "has class 5, m has 3 outputs" in refused("predict", "m.safetensors", "--data", "wrong.npz")
