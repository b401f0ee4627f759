"""Files with several outputs, which the machine gives in one vector."""

import numpy as np
import pytest

pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
from concord.campaigns.makers.onnx_graphs import OnnxGraph, written
from concord.frontends.onnx.read import read
from concord.net.ops.reshape import Concatenation
from concord.tests.command_line import done, refused
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
    done("run", "f.safetensors", "--inputs", "x.npy", "--samples", "all", "-o", "machine.npy")
    np.testing.assert_array_equal(np.load("machine.npy"), np.concatenate([found[name] for name in names], 1))


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


def test_labels_of_one_output_are_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path, names = heads(tmp_path, "Gemm")
    np.savez("own.npz", x=RNG.normal(size=(20, 2, 4, 3)), y=np.arange(20) % 3)
    said = refused("quantize", path, "--data", "own.npz", "--preset", "vision", "-o", "m.safetensors")
    assert f"has several, '{names[0]}' (3), '{names[1]}' (5): import one of them by --output" in said
