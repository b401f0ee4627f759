"""Post-training quantisation of a trained network, without training.

Source: S0.a, S0.b; numerics.md of the specification, integer mode.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from concord.datasets.arrays import read_numbers
from concord.datasets.samples import NO_DATA
from concord.net import network
from concord.net.finish import check_bits
from concord.net.model import Model, Provenance
from concord.net.model_file import save_model
from concord.net.quantize.recipe import Recipe
from concord.train.lib import fp32_file
from concord.train.lib.data import PIXELS
from concord.train.lib.export import finish, patterns
from concord.train.lib.factory import build
from concord.train.lib.fit import reproducible
from concord.train.lib.networks import CLASSES, SHAPE
from concord.train.qat.check import check
from concord.train.qat.network import QuantizedNetwork
from concord.train.runs.image_training import CALIBRATION, MEASURED, Images
from torch import nn


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Trained:
    """A network in FP32, and samples of its inputs.

    Attributes:
        name:   Name of the network.
        net:    Network in evaluation mode.
        inputs: float32[samples, ...], the calibration set.
        images: Those that it was trained on and is tested with, if they are the built-in ones.
    """

    name: str
    net: nn.Module
    inputs: torch.Tensor
    images: Images | None


def samples(path: Path) -> torch.Tensor:
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
    return torch.from_numpy(halves.astype(np.float32))


def trained(
    network: str, parameters: Path, recipe: Recipe, calibration: Path | None = None, folder: Path | None = None
) -> Trained:
    """A network with its FP32 parameters, and its calibration set.

    Args:
        network:     Name of the network for `factory.build`.
        parameters:  File of parameters, see `fp32_file`.
        recipe:      How the network is to be quantised.
        calibration: File of the calibration set, see `samples`, or None for training images.
        folder:      Folder of training and test images; Fashion-MNIST by default.

    Raises:
        Unsupported: an operation of the network cannot be quantised.
        ValueError: the network, a file or the data are missing or do not fit, or a method cannot do a width.
    """
    reproducible(0)
    net, inputs = build(network).eval(), samples(calibration) if calibration else None
    if inputs is None:
        check(net, recipe, SHAPE, CLASSES)
    else:
        check(net, recipe, inputs.shape[1:])
    fp32_file.load(net, parameters)
    images = Images.load(CALIBRATION, folder) if inputs is None else None
    return Trained(name=network, net=net, inputs=images.x if images else inputs, images=images)


def write(out: Path, source: Trained, quantized: QuantizedNetwork, recipe: Recipe, command: str) -> Model:
    """Write a quantised network, and measure its accuracy if there are test images.

    Raises:
        ValueError: a number left the range of binary16.
        RuntimeError: golden and PyTorch differ in a bit, which is a defect of this program.
    """
    inputs, images = source.inputs, source.images
    layers, sources = quantized.lower()
    method = f"{source.name}: FP32 parameters from a file; {recipe}; {len(inputs)} samples to calibrate; not trained"
    if images:
        return finish(
            out, layers, images.sets.test, sources=sources, data=images.sets.name,
            preprocessing=PIXELS.format(inputs[0].numel()), fp32=images.outputs(source.net),
            quantized=images.outputs(quantized), lowered=images.outputs(quantized, True), seed=0, command=command,
            method=method)
    none = np.zeros(0, np.uint8)
    model = Model(
        name=Path(out).stem, data=NO_DATA, preprocessing="numbers as in the calibration set, each rounded to binary16",
        classes=(), layers=layers, sources=sources, fp32_predictions=none, quantized_predictions=none,
        provenance=Provenance(command=command, method=method, seed=0, fp32_accuracy=None, quantized_accuracy=None,
                              golden_accuracy=None))
    with torch.no_grad():
        lowered = torch.cat([quantized(part, True) for part in inputs.split(MEASURED)])
    check_bits(network.outputs(model, patterns(inputs.flatten(1))), patterns(lowered))
    save_model(model, out)
    return model
