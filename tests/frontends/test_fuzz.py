"""Damaged ONNX files are refused with a sentence, whatever is damaged."""

import random
from contextlib import suppress

import numpy as np
import pytest
from onnx import numpy_helper

pytest.importorskip("onnxruntime")
from concord.campaigns.fuzz.damage import bytes_changed, graph_changed
from concord.campaigns.makers.onnx_graphs import network, sequences
from concord.frontends.onnx.compare import difference
from concord.frontends.onnx.read import read


def attempt(content: bytes, path):
    """Import what a file holds: it is right, or refused with a sentence that names the file."""
    path.write_bytes(content)
    try:
        imported = read(path)
    except ValueError as error:
        said = str(error)
    else:
        with suppress(ValueError):  # onnxruntime refuses it
            assert difference(imported) < 1e-4
        return
    assert said.startswith(str(path))


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("make", [lambda: network("image"), lambda: network("dense"), sequences])
def test_damaged_graphs(make, seed, tmp_path):
    rng = random.Random(seed)
    attempt(graph_changed(make().model(), rng).SerializeToString(), tmp_path / "damaged.onnx")


@pytest.mark.parametrize("seed", range(12))
def test_damaged_bytes(seed, tmp_path):
    rng = random.Random(seed)
    attempt(bytes_changed(network("image").model().SerializeToString(), rng), tmp_path / "damaged.onnx")


def test_weights_that_are_nan_can_be_damaged():
    model = network("dense").model()
    for tensor in model.graph.initializer:
        values = numpy_helper.to_array(tensor)
        if values.dtype.kind == "f":
            tensor.CopyFrom(numpy_helper.from_array(values * np.nan, tensor.name))
    for seed in range(300):
        graph_changed(model, random.Random(seed))
