"""Post-training quantisation of a network of PyTorch, without training.

Source: S0.a, S0.b; numerics.md of the specification, integer mode.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from concord.datasets.arrays import read_numbers
from concord.datasets.samples import NO_DATA
from concord.frontends.torch.read import graph_of
from concord.lib.progress import Show, silent
from concord.net.finish import finish
from concord.net.graph import Graph
from concord.net.model import Model, Provenance
from concord.net.model_file import save_model
from concord.net.quantize.choices import Choices
from concord.net.quantize.integers import Integers
from concord.net.quantize.node_results import outputs
from concord.net.quantize.quantized import Quantized, prepared, quantized
from concord.net.quantize.recipe import Recipe
from concord.train.lib import networks
from concord.train.lib.data import PIXELS
from concord.train.lib.export import floats
from concord.train.lib.fit import reproducible
from concord.train.lib.networks import CLASSES, SHAPE, build
from concord.train.network.quantized_network import check
from concord.train.runs.image import CALIBRATION, Images


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Trained:
    """A network in FP32, and samples of its inputs.

    Attributes:
        graph:  The network.
        inputs: float32[samples, ...], the calibration set.
        images: Those that it was trained on and is tested with, if they are the built-in ones.
    """

    graph: Graph
    inputs: np.ndarray
    images: Images | None


def samples(path: Path) -> np.ndarray:
    """float32[samples, ...]: the calibration set of a .npy file, rounded to binary16 as a machine reads it.

    Raises:
        ValueError: there is no such file, or it holds no such numbers.
    """
    array = read_numbers(path)
    if array.ndim < 2:
        raise ValueError(f"{path}: numbers[samples, ...] are needed, not {array.dtype}{list(array.shape)}")
    with np.errstate(over="ignore"):
        halves = array.astype(np.float16)
    if not np.isfinite(halves).all():
        raise ValueError(f"{path}: some numbers are too large for binary16, or are none; scale them")
    return halves.astype(np.float32)


def trained(
    network: str, parameters: Path, recipe: Recipe, calibration: Path | None = None, folder: Path | None = None
) -> Trained:
    """A network with its FP32 parameters, and its calibration set.

    Args:
        network:     Name of the network for `train.lib.networks.build`.
        parameters:  File of parameters, see `train.lib.networks`.
        recipe:      How the network is to be quantised.
        calibration: File of the calibration set, see `samples`, or None for training images.
        folder:      Folder of training and test images, which are also tested with beside a calibration set of its own;
            Fashion-MNIST by default, without a calibration set.

    Raises:
        Unsupported: an operation of the network cannot be quantised.
        ValueError: the network, a file or the data are missing or do not fit, or a method cannot do a width.
    """
    reproducible(0)
    net, inputs = build(network).eval(), samples(calibration) if calibration else None
    with_images = inputs is None or folder is not None
    shape = SHAPE if inputs is None else inputs.shape[1:]
    if with_images and shape != SHAPE:
        raise ValueError(f"{calibration}: samples of {list(shape)} do not go with the images {list(SHAPE)} of "
                         f"{folder}: leave --data out, or give a calibration set of such images")
    check(net, shape, recipe, CLASSES if with_images else None)
    networks.load(net, parameters)
    images = Images.load(CALIBRATION, folder) if with_images else None
    inputs = images.x.numpy() if inputs is None else inputs
    return Trained(graph=graph_of(net, shape, network), inputs=inputs, images=images)


def quantize(source: Trained, recipe: Recipe, progress: Show = silent) -> tuple[Quantized, Integers]:
    """The quantised network, and the integers of its layers with what they lose."""
    arithmetic = prepared(source.graph, Choices(recipe=recipe))
    return quantized(arithmetic, source.inputs, progress=progress), arithmetic


def write(out: Path, source: Trained, made: Quantized, recipe: Recipe, command: str) -> Model:
    """Write a quantised network, and measure its accuracy if there are test images.

    Raises:
        ValueError: a number left the range of binary16.
    """
    count, images = len(source.inputs), source.images
    method = f"{source.graph.name}: FP32 parameters from a file; {recipe}; {count} samples to calibrate; not trained"
    if images:
        x = floats(images.sets.test.inputs).view(-1, *SHAPE).numpy()
        return finish(
            out, made.layers, images.sets.test, sources=made.sources, data=images.sets.name,
            preprocessing=PIXELS.format(source.inputs[0].size), fp32=outputs(source.graph, x),
            quantized=outputs(made.graph, x), seed=0, command=command, method=method)
    none = np.zeros(0, np.uint8)
    model = Model(
        name=Path(out).stem, data=NO_DATA, preprocessing="numbers as in the calibration set, each rounded to binary16",
        classes=(), layers=made.layers, sources=made.sources, fp32_predictions=none, quantized_predictions=none,
        provenance=Provenance(command=command, method=method, seed=0, fp32_accuracy=None, quantized_accuracy=None,
                              golden_accuracy=None))
    save_model(model, out)
    return model


def of_module(name: str, net: torch.nn.Module, inputs: torch.Tensor) -> Trained:
    """A network of PyTorch with a calibration set of its own."""
    return Trained(graph=graph_of(net, tuple(inputs.shape[1:]), name), inputs=inputs.numpy(), images=None)
