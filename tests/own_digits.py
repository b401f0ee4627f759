"""A small data set and networks as a user brings them, for tests of the way from a network to the machine."""

from pathlib import Path

import numpy as np
from concord.net.cells.cell import Cell
from concord.net.graph import Graph
from concord.net.graph_file import save
from concord.net.ops.pointwise import Relu
from concord.net.ops.reshape import Flatten
from concord.tests.float_networks import Chain


def arrays(shape: tuple[int, ...] = (64,), seed: int = 0) -> dict[str, np.ndarray]:
    """Images like digits: ten patterns with noise, 60 to train with and 20 to test with."""
    rng = np.random.default_rng(seed)
    patterns, labels = rng.uniform(0, 1, (10, 64)), np.arange(80) % 10
    x = np.float32(np.clip(patterns[labels] + rng.normal(0, 0.1, (80, 64)), 0, 1)).reshape(80, *shape)
    return {"x_train": x[:60], "y_train": labels[:60], "x_test": x[60:], "y_test": labels[60:]}


def perceptron(hidden: int = 16) -> Graph:
    """A perceptron that the machine `tiny` holds."""
    return Chain((64,)).dense("one", hidden, 64).add(Relu(), "r").dense("two", 10, hidden).network("net")


def convolutional() -> Graph:
    """A network that sees the numbers as an image."""
    chain = Chain((1, 8, 8)).conv("conv", 4, 1).add(Relu(), "r").add(Flatten(), "flat")
    return chain.dense("two", 10, 4 * 36).network("net")


def recurrent(cell: Cell) -> Graph:
    """A network that reads the numbers row by row."""
    return Chain((8,), sequence=True).recurrent(cell, "cells", 6, 8).last().dense("two", 10, 6).network("net")


def written(folder: Path, network: Graph | None = None) -> tuple[str, str]:
    """Files of a network, as `nnp import` writes it, and of its data, whose labels are the network's answers.

    Args:
        folder:  Folder of the files.
        network: The network; the perceptron by default.
    """
    network = network or perceptron()
    data = arrays((8, 8) if network.sequence else network.shape)
    for part in "train", "test":
        data[f"y_{part}"] = network.run(np.float16(data[f"x_{part}"])).argmax(axis=1)
    save(network, folder / "net.safetensors")
    np.savez(folder / "digits.npz", **data)
    return str(folder / "net.safetensors"), str(folder / "digits.npz")
