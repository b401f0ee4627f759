"""The model of a checkpoint of training by lazy update, and its network in float32."""

from pathlib import Path

import numpy as np
from concord.datasets import dataset
from concord.datasets.samples import NO_DATA
from concord.net.graph import Graph
from concord.net.model import Model, Provenance
from concord.train.bfp import tensor_checkpoint
from concord.train.bfp.float_graph import drawn
from concord.train.bfp.options import formats_of
from concord.train.bfp.tensor_checkpoint import Checkpoint
from concord.train.bfp.tensor_network import TensorNetwork
from concord.train.bfp.trained_blocks import layers_of


def checkpoint_model(path: Path, preset: str = "") -> Model:
    """The model with the mantissas that a checkpoint holds, on which nothing is measured.

    Args:
        path:   The checkpoint.
        preset: Machine that is to run the model; empty for the formats of `trainer` and `vision_bfp8`.

    Raises:
        ValueError: the file is damaged, lacks the shape of a sample, or holds what the machine's formats do not.
    """
    net, state = _opened(path)
    layers, sources = layers_of(net, state, formats_of(preset))
    shipped, none = state.data in dataset.SHIPPED, np.zeros(0, np.uint8)
    return Model(
        name=path.stem, data=state.data if shipped else NO_DATA, preprocessing="as in training", layers=layers,
        sources=sources, classes=dataset.load(state.data).classes if shipped else (),
        fp32_predictions=none, quantized_predictions=none,
        provenance=Provenance(
            command="nnp train --arithmetic bfp-lazy --checkpoint", seed=state.seed, fp32_accuracy=None,
            quantized_accuracy=None, golden_accuracy=None,
            method=f"checkpoint of training by lazy update, rule {state.rule}, after {len(state.losses)} epochs"))


def checkpoint_network(path: Path) -> Graph:
    """The network in float32 of a checkpoint, for machines that do not take its mantissas as they are.

    Raises:
        ValueError: the file is damaged, or lacks the shape of a sample.
    """
    net, state = _opened(path)
    values = {name: kept.golden().values for name, kept in net.parameters.items()}
    return drawn(state.layers, state.shape, values, state.names, path.stem)


def _opened(path: Path) -> tuple[TensorNetwork, Checkpoint]:
    """A checkpoint that says what shape a sample has."""
    net, state = tensor_checkpoint.load(path)
    if not state.shape:
        raise ValueError(f"{path}: the checkpoint does not say what shape a sample has; `nnp train --arithmetic "
                         "bfp-lazy --checkpoint FOLDER` writes one that does")
    return net, state
