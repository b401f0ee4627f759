"""Damaged ONNX files are refused with a sentence, whatever is damaged."""

import random
from contextlib import suppress

import numpy as np
import pytest
from onnx import ModelProto, numpy_helper

pytest.importorskip("onnxruntime")
from concord.frontends.onnx.compare import difference
from concord.frontends.onnx.read import read
from concord.tests.frontends.test_recurrent import HIDDEN, INPUTS, layer
from concord.tests.frontends.zoo_quantized import network
from concord.tests.fuzz.damage import bytes_changed
from concord.tests.onnx_files import Graph

NUMBERS = (-(2**31), -3, -1, 0, 1, 2, 3, 7, 1000, 2**31 - 1, 2**40)


def sequences() -> Graph:
    graph = Graph(("time", "batch", INPUTS))
    layer(graph, "LSTM", 2)
    graph.at = graph.nodes[-1].output[1]
    graph.add("Transpose", perm=[1, 0, 2])
    graph.add("Reshape", graph.constant(np.array([-1, 2 * HIDDEN])))
    return graph


def damaged(model: ModelProto, rng: random.Random) -> ModelProto:
    """The model with one thing changed."""
    made = ModelProto()
    made.CopyFrom(model)
    node = rng.choice(made.graph.node)
    match rng.randrange(9):
        case 0:
            node.input[rng.randrange(len(node.input))] = rng.choice([*node.output, "", "x", "nothing"])
        case 1 if node.attribute:
            attribute = rng.choice(node.attribute)
            for place in range(len(attribute.ints)):
                attribute.ints[place] = rng.choice(NUMBERS)
            attribute.i = rng.choice(NUMBERS)
        case 2 if node.attribute:
            del node.attribute[rng.randrange(len(node.attribute))]
        case 3:
            node.op_type = rng.choice([other.op_type for other in made.graph.node] + ["Add", "Concat", "Slice"])
        case 4:
            tensor = rng.choice(made.graph.initializer)
            tensor.dims[:] = [rng.choice(NUMBERS) for _ in tensor.dims]
        case 5:
            tensor = rng.choice(made.graph.initializer)
            values = numpy_helper.to_array(tensor)
            tensor.CopyFrom(numpy_helper.from_array(rng.choice([
                values.reshape(-1), values[None], np.isfinite(values).astype(np.int64), values[:1], values * np.nan
                if values.dtype.kind == "f" else -values]), tensor.name))
        case 6:
            for size in made.graph.input[0].type.tensor_type.shape.dim:
                size.dim_value = rng.choice([1, 2, 3, 4, 8, 1000, -5])
        case 7:
            del made.graph.node[rng.randrange(len(made.graph.node))]
        case _:
            made.graph.output[0].name = rng.choice([*node.output, "x", "nothing"])
    return made


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
    attempt(damaged(make().model(), rng).SerializeToString(), tmp_path / "damaged.onnx")


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
        damaged(model, random.Random(seed))
