"""Networks that give an image, with a class for each pixel."""

from functools import partial

import numpy as np
import pytest

onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("torch")
from concord.campaigns.zoo.from_torch import export, unet
from concord.datasets.read import data_of
from concord.datasets.samples import UNLABELLED, Task
from concord.net.model_file import load_model
from concord.tests.command_line import done

RNG = np.random.default_rng(3)
CLASSES, SHAPE = 3, (2, 6, 4)


@pytest.mark.filterwarnings("default")
def test_each_pixel_is_classified(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    export("unet.onnx", partial(unet, transposed=True), SHAPE, dynamo=False)
    x = RNG.normal(size=(24, *SHAPE)).astype(np.float16).astype(np.float32)
    y = onnxruntime.InferenceSession("unet.onnx").run(None, {"x": x})[0].argmax(1)
    y[::3, 1] = UNLABELLED
    np.savez("own.npz", x_train=x[:16], y_train=y[:16], x_test=x[16:], y_test=y[16:])
    assert "accuracy 100.00%" in done(
        "quantize", "unet.onnx", "--data", "own.npz", "--preset", "vision", "-o", "m.safetensors")
    golden, known = load_model("m.safetensors").provenance.golden_accuracy, y[16:] != UNLABELLED
    said = done("predict", "m.safetensors", "--data", "own.npz", "--samples", "all", "-o", "golden.npy")
    assert f"{golden:.2%} of {known.sum()} time steps or pixels right" in said
    found = np.load("golden.npy").reshape(8, CLASSES, *SHAPE[1:]).argmax(axis=1)
    assert (found == y[16:])[known].mean() == golden > 0.8
    done("compile", "m.safetensors", "--preset", "vision", "-o", "f.safetensors")
    for framework in "numpy", "onnx", "torch":
        said = done("twin", "f.safetensors", "--to", framework, "--data", "own.npz", "-o", framework)
        assert "0 differing bits over 3 samples" in said
    done("train", "unet.onnx", "--data", "own.npz", "--preset", "vision", "--epochs", "1,1", "-o", "t.safetensors")
    assert load_model("t.safetensors").fp32_predictions.shape == (8, 24)


@pytest.mark.parametrize(("inputs", "labels", "task"), [
    ((8, *SHAPE), (8, 6, 4), Task.CLASSIFICATION), ((8, 6, 4, 2), (8, 6, 4), Task.CLASSIFICATION),
    ((8, 6, 4), (8, 6, 4), Task.REGRESSION), ((8, *SHAPE), (8, 4, 6), Task.REGRESSION)])
def test_labels_of_pixels(inputs, labels, task):
    """Integers of the size of an image without channels are numbers, such as the image itself."""
    data = data_of({"x": np.zeros(inputs), "y": np.zeros(labels, int)})
    assert data.task is task
    assert data.test.labels.shape == (len(data.test), 24)
