"""Data lie in the order of a network's file, or in the machine's where this is asked for."""

from dataclasses import replace
from pathlib import Path

import concord
import numpy as np
import onnxruntime
import pytest
from concord.campaigns.makers.onnx_graphs import OnnxGraph, written
from concord.net.model_file import load_model, save_model
from concord.tests.command_line import done, nnp, refused

RNG = np.random.default_rng(3)
#: For each network, the shape of a sample in its file, and the transposition that gives the machine's order.
SHAPES = {"square": ((8, 8), (1, 0)), "steps": ((9, 8), (1, 0)), "last": ((8, 8, 3), (2, 0, 1)),
          "cube": ((4, 4, 4), (2, 0, 1))}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def made(kind: str) -> tuple[np.ndarray, np.ndarray]:
    """A network that transposes its input before a convolution, its samples, and what onnxruntime gives for them."""
    shape, axes = SHAPES[kind]
    graph, channels, size = OnnxGraph(("n", *shape)), shape[axes[0]], (3,) * (len(shape) - 1)
    graph.add("Transpose", perm=(0, *(axis + 1 for axis in axes)))
    graph.add("Conv", graph.weight(6, channels, *size), pads=[1] * 2 * len(size))
    graph.add("Relu")
    graph.add("Flatten")
    graph.add("Gemm", graph.weight(5, 6 * int(np.prod(shape)) // channels), transB=1)
    path = written(Path.cwd(), graph, f"{kind}.onnx")
    x = RNG.normal(size=(60, *shape)).astype(np.float16).astype(np.float32)
    outputs = onnxruntime.InferenceSession(str(path)).run(None, {"x": x})[0]
    labels = outputs.argmax(axis=1)
    np.savez(f"{kind}.npz", x_train=x[:40], y_train=labels[:40], x_test=x[40:], y_test=labels[40:])
    turned = np.ascontiguousarray(x.transpose(0, *(axis + 1 for axis in axes)))
    np.savez("turned.npz", x_train=turned[:40], y_train=labels[:40], x_test=turned[40:], y_test=labels[40:])
    return x, outputs


@pytest.mark.parametrize("kind", SHAPES)
def test_samples_are_taken_in_the_order_of_the_file(kind):
    x, outputs = made(kind)
    shape, axes = SHAPES[kind]
    square = len(set(shape)) == 1
    done("quantize", f"{kind}.onnx", "--for", "vision", "--data", f"{kind}.npz", "-o", "m.safetensors")
    model = load_model("m.safetensors")
    assert model.provenance.fp32_accuracy == 1.0
    assert model.provenance.golden_accuracy > 0.8
    assert model.axes.file == shape
    assert model.axes.axes == axes
    # The model and its firmware know the order, too.
    said = nnp("predict", "m.safetensors", "--data", f"{kind}.npz", "--samples", "all", "-o", "a.npy")
    assert f"{model.provenance.golden_accuracy:.2%} of 20 right" in said.stdout
    assert ("the order of the network's file; `--order machine` takes it" in said.stderr) == square
    np.save("x.npy", x[40:])
    done("predict", "m.safetensors", "--inputs", "x.npy", "--samples", "all", "-o", "b.npy")
    done("compile", "m.safetensors", "--preset", "vision", "-o", "f")
    done("run", "f", "--data", f"{kind}.npz", "--samples", "all", "-o", "c.npy")
    done("run", "f", "--inputs", "x.npy", "--samples", "all", "-o", "d.npy")
    wanted = np.load("a.npy")
    assert all(np.array_equal(np.load(f"{name}.npy"), wanted) for name in "bcd")
    # And so do the functions in Python.
    network = concord.load(f"{kind}.onnx")
    assert np.allclose(concord.run(network, x).numbers, outputs, rtol=1e-4, atol=1e-4)
    assert concord.run(network, f"{kind}.npz").measures == {"accuracy": 1.0}
    assert np.array_equal(concord.run("m.safetensors", x[40:]).numbers, wanted)
    assert np.array_equal(concord.run(concord.compile("m.safetensors"), f"{kind}.npz").numbers, wanted)
    # The order of the machine is taken where it is asked for, and only there.
    assert np.array_equal(concord.run("m.safetensors", "turned.npz", order="machine").numbers, wanted)
    done("predict", "m.safetensors", "--data", "turned.npz", "--order", "machine", "--samples", "all", "-o", "e.npy")
    assert np.array_equal(np.load("e.npy"), wanted)
    if square:
        assert "`--order file` takes it" in nnp(
            "predict", "m.safetensors", "--data", "turned.npz", "--order", "machine").stderr
        return
    for words in ("predict", "m.safetensors"), ("run", "f"), ("verify", f"{kind}.onnx", "--machine", "golden"):
        assert "where the array has the machine's order, give `--order machine`" in refused(
            *words, "--data", "turned.npz")


def test_verify_and_quantize_take_the_machine_order_where_it_is_asked_for():
    made("last")
    done("verify", "last.onnx", "--data", "turned.npz", "--order", "machine", "--machine", "golden", "--report", "out")
    model = load_model("out/last.safetensors")
    assert model.provenance.fp32_accuracy == 1.0
    assert "--order machine" in model.provenance.command
    # The description of the data travels with the model.
    assert done("predict", "out/last.safetensors", "--data", "turned.npz", "-q", "--samples", "all").startswith(
        f"{model.provenance.golden_accuracy:.2%} of 20")


def test_a_model_that_knows_no_order_says_which_one_is_taken():
    made("last")
    done("quantize", "last.onnx", "--for", "vision", "--data", "last.npz", "-o", "m.safetensors")
    save_model(replace(load_model("m.safetensors"), axes=None, description=""), Path("old.safetensors"))
    words = "m does not say in which order the file of its network has the axes of a sample"
    assert words in nnp("predict", "old.safetensors", "--data", "turned.npz").stderr
    assert words not in nnp("predict", "old.safetensors", "--data", "turned.npz", "--order", "machine").stderr


def test_samples_to_calibrate_with_lie_in_the_order_of_the_file(capsys):
    x, _ = made("cube")
    np.save("c.npy", x)
    said = nnp("quantize", "cube.onnx", "--for", "vision", "--calibration", "c.npy", "-o", "m.safetensors")
    assert "onnxruntime: outputs for 60 samples differ by at most" in " ".join(said.stdout.split())
    assert "c.npy: a sample, 4 x 4 x 4, is taken as rows x columns x channels, the order of the n" in said.stderr
    wanted = concord.run("m.safetensors", x).numbers
    assert np.array_equal(concord.run(concord.quantize("cube.onnx", calibration="c.npy", preset="vision"), x), wanted)
    assert "concord: c.npy: a sample, 4 x 4 x 4, is taken as" in capsys.readouterr().err
    np.save("c.npy", x.transpose(0, 3, 1, 2))
    words = "--calibration", "c.npy", "--order", "machine", "-o", "n.safetensors"
    done("quantize", "cube.onnx", "--for", "vision", *words)
    assert np.array_equal(concord.run("n.safetensors", x).numbers, wanted)


def test_the_layout_in_a_description_says_what_the_axes_are(folder):
    x, _ = made("last")
    for layout, data in ("hwc", "last.npz"), ("chw", "turned.npz"):
        (folder / "own.toml").write_text(f'data = "{data}"\n[preprocessing]\nlayout = "{layout}"\nscale = 1\n')
        done("quantize", "last.onnx", "--for", "vision", "--data", "own.toml", "-o", "m.safetensors")
        assert load_model("m.safetensors").provenance.fp32_accuracy == 1.0
    (folder / "own.toml").write_text('data = "turned.npz"\n[preprocessing]\norder = "machine"\n')
    done("quantize", "last.onnx", "--for", "vision", "--data", "own.toml", "-o", "m.safetensors")
    assert load_model("m.safetensors").provenance.fp32_accuracy == 1.0


def test_a_network_that_flattens_an_image_knows_its_axes():
    graph = OnnxGraph(("n", 4, 4, 3))
    graph.add("Flatten")
    graph.add("Gemm", graph.weight(5, 48), transB=1)
    written(Path.cwd(), graph, "flat.onnx")
    x = RNG.normal(size=(20, 4, 4, 3)).astype(np.float32)
    network = concord.load("flat.onnx")
    wanted = concord.run(network, x).numbers
    assert np.array_equal(concord.run(network, x.reshape(20, 48)).numbers, wanted)
    with pytest.raises(ValueError, match="a sample is 3 x 4 x 4, but flat takes 4 x 4 x 3"):
        concord.run(network, np.moveaxis(x, -1, 1))
    np.savez("chw.npz", x=np.moveaxis(x, -1, 1))
    with open("chw.toml", "w") as file:
        file.write('data = "chw.npz"\ntest = 1\n[preprocessing]\nlayout = "chw"\n')
    given = np.float16(x).astype(np.float64)
    assert np.allclose(concord.run(network, "chw.toml").numbers, concord.run(network, given).numbers)
