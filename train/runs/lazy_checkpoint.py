"""The model of a checkpoint of training by lazy update."""

from pathlib import Path

import numpy as np
from concord.datasets import dataset
from concord.datasets.samples import NO_DATA
from concord.net.model import Model, Provenance
from concord.train.bfp import tensor_checkpoint
from concord.train.bfp.options import formats_of
from concord.train.bfp.trained_blocks import layers_of


def checkpoint_model(path: Path, preset: str = "") -> Model:
    """The model with the mantissas that a checkpoint holds, on which nothing is measured.

    Args:
        path:   The checkpoint.
        preset: Machine that is to run the model; empty for the formats of `trainer` and `vision_bfp8`.

    Raises:
        ValueError: the file is damaged, lacks the shape of a sample, or holds what the machine's formats do not.
    """
    net, state = tensor_checkpoint.load(path)
    if not state.shape:
        raise ValueError(f"{path}: the checkpoint does not say what shape a sample has; `nnp train --arithmetic "
                         "bfp-lazy --checkpoint FOLDER` writes one that does")
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
