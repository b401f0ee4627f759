"""Files of float networks: all of a damaged one is checked before anything runs."""

import json
import random
from dataclasses import replace

import numpy as np
import pytest
from concord.campaigns.fuzz.damage import value_changed
from concord.net import graph_file as file
from concord.net.arithmetic.windows import Window
from concord.net.cells.peephole import PEEPHOLE
from concord.net.graph import INPUT, Graph, Node
from concord.net.ops.grid import IntegerGrid, Quantize
from concord.net.ops.pointwise import Relu, Sigmoid
from concord.net.ops.pooling import MaxPooling
from concord.net.ops.recurrent import Direction, Recurrence
from concord.net.ops.reshape import Flatten
from concord.net.ops.scale import BatchNorm
from concord.net.ops.sequences import ToImage, ToSequence
from concord.net.ops.weighted import Convolution, Linear
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

KEY = file.KIND.key


def network() -> Graph:
    """Images, a sequence of both directions with peepholes, a linear layer at each time step, and an image again."""
    rng = np.random.default_rng(0)

    def numbers(*shape):
        return rng.normal(size=shape).astype(np.float32)

    nodes = (
        Node(name="conv", sources=(INPUT,), op=Convolution(
            weight=numbers(4, 2, 3, 3), bias=numbers(4), window=Window(size=(3, 3), padding=(1, 1, 1, 1)))),
        Node(name="norm", sources=("conv",), op=BatchNorm(
            weight=numbers(4), bias=numbers(4), mean=numbers(4), variance=np.abs(numbers(4)))),
        Node(name="relu", sources=("norm",), op=Relu(ceiling=6.0)),
        Node(name="pool", sources=("relu",), op=MaxPooling(window=Window(size=(2, 2), stride=(2, 2)))),
        Node(name="steps", sources=("pool",), op=ToSequence()),
        Node(name="both", sources=("steps",), op=Recurrence(cell=PEEPHOLE, directions=tuple(Direction(
            input_weights=numbers(4, 3, 8), recurrent_weights=numbers(4, 3, 3), bias=numbers(4, 3),
            vectors={name: numbers(3) for name in PEEPHOLE.vectors}) for _ in range(2)))),
        Node(name="each", sources=("both",), op=Linear(weight=numbers(5, 6), bias=numbers(5))),
        Node(name="integers", sources=("each",), op=Quantize(
            grid=IntegerGrid(scale=0.1, zero_point=3, bits=8, signed=True))),
        Node(name="image", sources=("integers",), op=ToImage(steps=2)),
        Node(name="flat", sources=("image",), op=Flatten()),
        Node(name="dense", sources=("flat",), op=Linear(weight=numbers(3, 10), bias=numbers(3))))
    return Graph(name="small", shape=(2, 4, 4), sequence=False, axes=(0, 1, 2), nodes=nodes)


def test_round_trip(tmp_path):
    path = tmp_path / "network.safetensors"
    file.save(network(), path)
    x = np.random.default_rng(1).normal(size=(5, 2, 4, 4))
    assert np.array_equal(file.load(path).run(x), network().run(x))


def test_values_that_are_not_numbers(tmp_path):
    path, made = tmp_path / "network.safetensors", network()
    made.nodes[0].op.weight[0, 0, 1, 1] = np.inf
    file.save(made, path)
    with pytest.raises(ValueError, match="node 'conv': weight: it holds infinite values .* .1 of 72."):
        file.load(path)


def test_variances_without_a_square_root(tmp_path):
    path, made = tmp_path / "network.safetensors", network()
    made.nodes[1].op.variance[2] = -1
    file.save(made, path)
    with pytest.raises(ValueError, match="node 'norm': variance: its smallest value with epsilon is -1, but"):
        file.load(path)


def test_large_values_give_no_warning():
    made = network()
    nodes = (*made.nodes, Node(name="s", op=Sigmoid(), sources=("dense",)))
    made.output.op.bias[:] = -1e6
    assert not replace(made, nodes=nodes).run(np.zeros((1, 2, 4, 4))).any()


def test_inputs_of_another_shape():
    with pytest.raises(ValueError, match=r"\[5, 4, 4, 2\].* takes \[samples, 2, 4, 4\]"):
        network().run(np.zeros((5, 4, 4, 2)))


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
        made.run(np.zeros((1, *[1] * made.sequence, *made.shape)))
        return
    assert said.startswith(str(path))
