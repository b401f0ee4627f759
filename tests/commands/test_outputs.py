"""Files with several outputs, which the machine gives in one vector."""

import json
import re
from pathlib import Path

import concord
import numpy as np
import pytest

pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
from concord.campaigns.makers.onnx_graphs import OnnxGraph, written
from concord.datasets.samples import Samples
from concord.frontends.onnx.read import read
from concord.lib.several import check
from concord.net.ops.joins import Concatenation
from concord.tests.command_line import done, refused
from concord.workflows.results import values, write_outputs
from onnx import load, save
from onnx.helper import make_tensor_value_info

RNG = np.random.default_rng(0)


def heads(folder, kind: str, *, relu: bool = False):
    """The file of a network with two linear layers or convolutions at its end, and perhaps a relu behind the first."""
    graph = OnnxGraph(("n", 2, 4, 3))
    graph.add("Conv", graph.weight(6, 2, 3, 3), graph.weight(6), pads=[1, 1, 1, 1])
    graph.add("Relu")
    if kind == "Gemm":
        graph.add("Flatten")
    begin, ends = graph.at, []
    for outputs in (3, 5):
        graph.at = begin
        graph.add(kind, graph.weight(outputs, *((72,) if kind == "Gemm" else (6, 1, 1))), graph.weight(outputs),
                  **({"transB": 1} if kind == "Gemm" else {}))
        if relu and not ends:
            graph.add("Relu")
        ends.append(graph.at)
    path = written(folder, graph, "heads.onnx")
    model = load(path)
    del model.graph.output[:]
    model.graph.output.extend(
        make_tensor_value_info(name, 1, ("n", outputs, *([4, 3] if kind == "Conv" else [])))
        for name, outputs in zip(ends, (3, 5), strict=True))
    save(model, path)
    return path, ends


@pytest.mark.parametrize(("kind", "pixels"), [("Gemm", 1), ("Conv", 12)])
def test_two_outputs(tmp_path, monkeypatch, kind, pixels):
    monkeypatch.chdir(tmp_path)
    path, names = heads(tmp_path, kind)
    x = RNG.normal(size=(10, 2, 4, 3)).astype(np.float16).astype(np.float32)
    np.save("x.npy", x)
    network = read(path).network
    assert network.results == ((names[0], 3 * pixels), (names[1], 5 * pixels))
    assert not network.has(Concatenation)
    wanted = [part.reshape(10, -1) for part in onnxruntime.InferenceSession(path).run(names, {"x": x})]
    np.testing.assert_allclose(network.run(x).reshape(10, -1), np.concatenate(wanted, 1), atol=1e-5)
    done("quantize", path, "--calibration", "x.npy", "--preset", "vision", "-o", "m.safetensors")
    said = done("predict", "m.safetensors", "--inputs", "x.npy", "-o", "y.npz").splitlines()
    assert said[0].startswith(f"{names[0]}, 0: output ")
    assert said[1].startswith(f"{names[1]}, 0: output ")
    found = np.load("y.npz")
    for name, part in zip(names, wanted, strict=True):
        np.testing.assert_allclose(found[name], part, atol=0.1 * np.abs(part).max())
    done("compile", "m.safetensors", "--preset", "vision", "-o", "f.safetensors")
    said = done("run", "f.safetensors", "--inputs", "x.npy", "--samples", "all", "-o", "machine.npy").splitlines()
    assert said[1].startswith(f"{names[1]}, 0: output ")
    assert said[1].endswith(" and 28 more, which -o writes") if pixels > 1 else len(said[1].split(": ")[2].split()) == 5
    np.testing.assert_array_equal(np.load("machine.npy"), np.concatenate([found[name] for name in names], 1))


def test_endings_in_capital_letters(tmp_path):
    numbers, samples = RNG.normal(size=(4, 3)), Samples(inputs=np.zeros((4, 1), np.uint16))
    write_outputs(tmp_path / "y.CSV", numbers, (), samples, 0)
    np.testing.assert_array_equal(np.loadtxt(tmp_path / "y.CSV", delimiter=",", skiprows=1)[:, 1:], numbers)
    write_outputs(tmp_path / "y.NPZ", numbers, (), samples, 0)
    np.testing.assert_array_equal(np.load(tmp_path / "y.NPZ")["output"], numbers)


@pytest.mark.parametrize("names", [("file", "x"), ("allow_pickle", "x"), ("a/b", "x.npy")])
def test_outputs_of_any_name(tmp_path, names):
    numbers = RNG.normal(size=(4, 3))
    write_outputs(tmp_path / "y.npz", numbers, (), Samples(inputs=np.zeros((4, 1), np.uint16)), 0,
                  ((names[0], 1), (names[1], 2)))
    with np.load(tmp_path / "y.npz") as found:
        np.testing.assert_array_equal(np.hstack([found[name] for name in names]), numbers)


def test_outputs_of_other_layers_stay_apart(tmp_path):
    path, _ = heads(tmp_path, "Gemm", relu=True)
    assert read(path).network.has(Concatenation)


def test_a_module_that_returns_two_tensors():
    torch = pytest.importorskip("torch", reason="PyTorch is in the dependency group `train`")
    from concord.workflows.torch_modules import exported

    class Heads(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = torch.nn.Linear(5, 3), torch.nn.Linear(5, 2)

        def forward(self, x):
            return self.first(x), self.last(x)

    network, original = exported(Heads(), torch.randn(2, 5))
    assert [size for _, size in network.results] == [3, 2]
    assert original.by == "PyTorch"
    x = RNG.normal(size=(4, 5))
    np.testing.assert_allclose(original.run(x, None)[0], network.run(x), atol=1e-6)


def test_accuracy_is_that_of_one_output(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path, names = heads(tmp_path, "Gemm")
    x = RNG.normal(size=(20, 2, 4, 3)).astype(np.float16).astype(np.float32)
    np.savez("own.npz", x_train=x, x_test=x, y_train=np.zeros(20, int), y_test=read(path, output=names[0]).network.run(
        x).argmax(1))
    np.savez("plain.npz", x_test=x, x_train=x)
    words = f"has several, '{names[0]}' (3), '{names[1]}' (5): import one of them by --output NAME"
    made = ("--preset", "vision", "-o", "m.safetensors")
    assert words in refused("quantize", path, "--data", "own.npz", *made)
    with pytest.raises(ValueError, match=re.escape(words)):
        concord.run(str(path), "own.npz")
    done("quantize", path, "--data", "plain.npz", *made)
    done("compile", "m.safetensors", "--preset", "vision", "-o", "f.safetensors")
    done("compile", "m.safetensors", "--preset", "vision", "--machines", "2", "-o", "f2.safetensors")
    assert done("run", "f2.safetensors", "--data", "plain.npz").splitlines()[1].startswith(f"{names[1]}, 0: ")
    for file in path, "m.safetensors", "f.safetensors":
        found = concord.run(str(file), "plain.npz")
        assert [part.shape for part in found.apart.values()] == [(20, 3), (20, 5)]
        assert list(found.apart) == names
        with pytest.raises(ValueError, match=re.escape(f"there are several outputs, '{names[0]}' (3)")):
            _ = found.classes
    with pytest.raises(ValueError, match=re.escape(words)):
        concord.run("f.safetensors", "own.npz")
    done("predict", "m.safetensors", "--data", "plain.npz", "--first", "4", "-o", "y.csv")
    rows = Path("y.csv").read_text().splitlines()
    assert rows[0].split(",") == ["sample", *(f"{name} {k}" for name, size in zip(names, (3, 5), strict=True)
                                              for k in range(size))]
    assert rows[1].startswith("4,")
    assert "accuracy FP32 100.00%" in done("quantize", path, "--data", "own.npz", "--output", names[0], *made)
    wanted = "it has no output 'nope', and computes no such tensor; its outputs are"
    assert wanted in refused("quantize", path, "--data", "own.npz", "--output", "nope", *made)
    assert "--output a chooses an output of an ONNX file" in refused(
        "quantize", "m.safetensors", "--data", "own.npz", "--output", "a", *made)


def test_a_report_names_the_outputs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path, names = heads(tmp_path, "Gemm")
    np.save("x.npy", RNG.normal(size=(6, 2, 4, 3)).astype(np.float32))
    words = ("verify", path, "--inputs", "x.npy", "--machine", "golden", "--preset", "vision", "--report", "r")
    assert f"'{names[0]}' (3), '{names[1]}' (5)" in " ".join(done(*words).split())
    assert json.loads(Path("r/verify.json").read_text())[0]["outputs"] == {names[0]: 3, names[1]: 5}
    assert f"{names[1]} 4" in Path("r/heads.csv").read_text()
    done(*words, "--output", names[1])
    assert json.loads(Path("r/verify.json").read_text())[0]["outputs"] == 5


def test_sizes_that_do_not_make_up_the_vector():
    with pytest.raises(ValueError, match=re.escape("'a' (3) do not make up the 5 elements")):
        check((("a", 3),), 5)


def test_a_line_gives_the_first_of_many_outputs():
    few, many = np.arange(32) / 4, np.arange(1000) / 4
    assert values(few) == " ".join(f"{value:.4g}" for value in few)
    assert values(many) == values(few) + " and 968 more, which -o writes"
