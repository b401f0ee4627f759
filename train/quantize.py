"""Post-training quantisation of a trained network, without training.

Source: S0.a, S0.b; numerics.md of the specification, integer mode.
"""

from pathlib import Path

import numpy as np
import torch
from torch import nn

from golden import dataset, network
from golden.model import Model, Provenance
from golden.model_file import save_model
from train.compare import MEASURED, Images
from train.export import check_bits, finish, patterns
from train.methods import Recipe
from train.qat.network import QuantisedNetwork


def samples(path: Path) -> torch.Tensor:
    """float32[samples, ...]: the calibration set of a .npy file, rounded to binary16 as a machine reads it.

    Raises:
        ValueError: there is no such file, or it holds no such numbers.
    """
    if not path.is_file():
        raise ValueError(f"{path}: there is no such file")
    try:
        array = np.load(path, allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise ValueError(f"{path}: not a whole .npy file of numbers ({error})") from error
    if array.ndim < 2 or array.dtype.kind not in "fiu" or not array.size:
        raise ValueError(f"{path}: numbers[samples, ...] are needed, not {array.dtype}{list(array.shape)}")
    with np.errstate(over="ignore"):
        halves = array.astype(np.float16)
    if not np.isfinite(halves).all():
        raise ValueError(f"{path}: some numbers are too large for binary16, or are none; scale them")
    return torch.from_numpy(halves.astype(np.float32))


def write(
    out: Path, net: nn.Module, quantised: QuantisedNetwork, *, images: Images | None, inputs: torch.Tensor,
    name: str, recipe: Recipe, command: str,
) -> Model:
    """Write a quantised network, and measure it where there are test images.

    Args:
        net:    In FP32.
        images: With the test set, or None.
        inputs: The calibration set.
        name:   Of the network, for people.
        recipe: How it was quantised.

    Raises:
        ValueError: a layer keeps FP32 numbers, or a number left the range of binary16.
        RuntimeError: golden and PyTorch differ in a bit, which is a defect of this program.
    """
    layers, sources = quantised.lower()
    method = f"{name}: FP32 parameters from a file; {recipe}; {len(inputs)} samples to calibrate; not trained"
    if images:
        return finish(
            out, layers, dataset.load("fashion-mnist"), sources=sources, data="fashion-mnist",
            preprocessing="784 pixels, row by row, each binary16(pixel / 255)", fp32=images.outputs(net),
            qat=images.outputs(quantised), lowered=images.outputs(quantised, True), seed=0, command=command,
            method=method)
    none = np.zeros(0, np.uint8)
    model = Model(
        name=Path(out).stem, data="none", preprocessing="numbers as in the calibration set, each rounded to binary16",
        classes=(), layers=layers, sources=sources, fp32_predictions=none, qat_predictions=none,
        provenance=Provenance(command=command, method=method, seed=0, fp32_accuracy=None, qat_accuracy=None,
                              golden_accuracy=None))
    with torch.no_grad():
        lowered = torch.cat([quantised(part, True) for part in inputs.split(MEASURED)])
    check_bits(network.outputs(model, patterns(inputs.flatten(1))), lowered)
    save_model(model, out)
    return model
