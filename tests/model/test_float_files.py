"""Files of float networks: all of a damaged one is checked before anything runs."""

import json
import random
from dataclasses import replace

import numpy as np
import pytest
from concord.model.floating import file
from concord.model.floating.network import INPUT, FloatNetwork, Node, Op
from concord.model.floating.run import run
from concord.tests.fuzz.damage import value_changed
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

KEY = file.KIND.key


def network() -> FloatNetwork:
    """A convolution, pooling, batch normalisation and a dense layer."""
    rng = np.random.default_rng(0)

    def numbers(*shape):
        return rng.normal(size=shape).astype(np.float32)

    window = {"stride": (1, 1), "dilation": (1, 1), "padding": (1, 1, 1, 1)}
    nodes = (
        Node(name="conv", op=Op.CONV, sources=(INPUT,), attributes={**window, "groups": 1},
             tensors={"weight": numbers(4, 2, 3, 3), "bias": numbers(4)}),
        Node(name="norm", op=Op.BATCH_NORM, sources=("conv",), attributes={"epsilon": 1e-5}, tensors={
            "weight": numbers(4), "bias": numbers(4), "mean": numbers(4), "variance": np.abs(numbers(4))}),
        Node(name="relu", op=Op.RELU, sources=("norm",), attributes={"ceiling": 6.0}),
        Node(name="pool", op=Op.MAX_POOL, sources=("relu",), attributes={
            "size": (2, 2), "stride": (2, 2), "dilation": (1, 1), "padding": (0, 0, 0, 0)}),
        Node(name="flat", op=Op.FLATTEN, sources=("pool",)),
        Node(name="dense", op=Op.DENSE, sources=("flat",), tensors={"weight": numbers(3, 16), "bias": numbers(3)}))
    return FloatNetwork(name="small", shape=(2, 4, 4), sequence=False, axes=(0, 1, 2), nodes=nodes)


def test_round_trip(tmp_path):
    path = tmp_path / "network.safetensors"
    file.save(network(), path)
    x = np.random.default_rng(1).normal(size=(5, 2, 4, 4))
    assert np.array_equal(run(file.load(path), x), run(network(), x))


def test_values_that_are_not_numbers(tmp_path):
    path, made = tmp_path / "network.safetensors", network()
    made.nodes[0].tensors["weight"][0, 0, 1, 1] = np.inf
    file.save(made, path)
    with pytest.raises(ValueError, match="'conv', weight: it holds infinite values .* .1 of 72."):
        file.load(path)


def test_variances_without_a_square_root(tmp_path):
    path, made = tmp_path / "network.safetensors", network()
    made.nodes[1].tensors["variance"][2] = -1
    file.save(made, path)
    with pytest.raises(ValueError, match="'norm', variance: its smallest value with epsilon is -1, but"):
        file.load(path)


def test_large_values_give_no_warning():
    made = network()
    nodes = (*made.nodes, Node(name="s", op=Op.SIGMOID, sources=("dense",)))
    made.nodes[-1].tensors["bias"][:] = -1e6
    assert not run(replace(made, nodes=nodes), np.zeros((1, 2, 4, 4))).any()


def test_inputs_of_another_shape():
    with pytest.raises(ValueError, match=r"\[5, 4, 4, 2\].* takes \[samples, 2, 4, 4\]"):
        run(network(), np.zeros((5, 4, 4, 2)))


@pytest.mark.parametrize("seed", range(60))
def test_damaged_headers(seed, tmp_path):
    """A file is refused with a sentence, or it is a network that runs."""
    path, rng = tmp_path / "network.safetensors", random.Random(seed)
    file.save(network(), path)
    with safe_open(path, framework="numpy") as opened:
        header = json.loads(opened.metadata()[KEY])
    arrays = load_file(path)
    save_file(arrays, path, {KEY: json.dumps(value_changed(header, rng))})
    try:
        made = file.load(path)
    except ValueError as error:
        said = str(error)
    else:
        run(made, np.zeros((1, *[1] * made.sequence, *made.shape)))
        return
    assert said.startswith(str(path))
