"""Quantities of a network under training that are initialised one after the other.

Source: paragraph [0144] of the first document; S0.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from concord.net.quantize.quantized import calibrate
from concord.net.quantize.staged import LayerSoFar, StagedIntegers, with_weights
from concord.net.quantize.stages import OF_INPUTS, Quantity, TrainingStage
from concord.train.lib.observer import Progress, silent
from concord.train.network.quantized_network import QuantizedNetwork
from concord.train.qat.layer import QuantizedAverage, QuantizedLayer


@torch.no_grad()
def so_far(net: QuantizedNetwork) -> dict[str, LayerSoFar]:
    """What training has made of each layer of a network of layers without gates."""
    found = {}
    for name, layer in net.layers.items():
        rows, (integers, gain) = net.arithmetic.rows[name], layer.weights() if layer.weights else (layer.weight, None)
        codes = integers.flatten(1).numpy()
        inputs = layer.inputs and replace(rows.inputs, step=float(layer.inputs.step), offset=float(layer.inputs.offset))
        found[name] = LayerSoFar(
            weight=codes if gain is None else (gain.numpy()[:, None] * codes).astype(np.float32),
            constant=layer.constant.double().numpy(),
            integers=None if gain is None else (codes.astype(np.int32), gain.numpy()), inputs=inputs)
    return found


def initialise(net: QuantizedNetwork, stage: TrainingStage, before: frozenset[Quantity], x: torch.Tensor,
               progress: Progress = silent):
    """Initialise the quantities of a stage, by post-training quantisation of the network as training has left it.

    Args:
        net:    The network, which is changed.
        stage:  The stage.
        before: Quantities that earlier stages have initialised.
        x:      float32[samples, ...], the calibration set.
    """
    found, new = so_far(net), frozenset(stage.quantities)
    plan = with_weights(net.plan, found)
    arithmetic = StagedIntegers(plan, net.arithmetic.choices, before, new, found)
    calibrate(arithmetic, x.reshape(len(x), *plan.graph.shape).numpy(), progress=progress)
    made, known = QuantizedNetwork(arithmetic), before | new
    for name, layer in made.layers.items():
        if Quantity.WEIGHTS in before and not isinstance(layer, QuantizedAverage):
            layer.weights = net.layers[name].weights
        _train_only(layer, known)
    made.train(net.training)
    net.become(made)


def _train_only(layer: QuantizedLayer, known: frozenset[Quantity]):
    """Keep from training what is not initialised of the codes of inputs."""
    if layer.inputs and not known >= OF_INPUTS:
        one = layer.inputs.saturation if Quantity.OFFSETS in known else layer.inputs.offset
        one.requires_grad_(False)


def in_stages(net: QuantizedNetwork, x: torch.Tensor, epochs: int, train: Callable[[str, int], None],
              progress: Progress = silent) -> int:
    """Train a network with quantisers, in the stages of its recipe where it has some; return the number of epochs.

    Args:
        net:    The network, with everything initialised where there are no stages, and else with nothing.
        x:      float32[samples, ...], the calibration set.
        epochs: Epochs of training without stages.
        train:  Trains a phase of a name for some epochs; the name is empty without stages.
    """
    stages, known = getattr(net.recipe, "stages", ()), frozenset()
    for stage in stages:
        initialise(net, stage, known, x, progress)
        known |= set(stage.quantities)
        train(f"stage {stage}", stage.epochs)
    if not stages:
        train("", epochs)
    return sum(stage.epochs for stage in stages) if stages else epochs
