"""Model files of trained networks, whose accuracy is measured in golden arithmetic."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from concord.model import network
from concord.model.data.samples import Samples
from concord.model.layers.layer import Layer
from concord.model.model import Model, Provenance
from concord.model.model_file import save_model
from concord.train.lib.fit import share


def floats(bits: np.ndarray) -> torch.Tensor:
    """Bit patterns of binary16 numbers as float32 numbers."""
    return torch.from_numpy(bits.view(np.float16).astype(np.float32))


def patterns(values: torch.Tensor) -> np.ndarray:
    """Bit patterns of float32 numbers that are binary16 numbers already."""
    return values.numpy().astype(np.float16).view(np.uint16)


def check_bits(outputs: np.ndarray, lowered: torch.Tensor):
    """Compare golden outputs with the outputs of the lowered network in PyTorch.

    Raises:
        RuntimeError: they differ in a bit, which is a defect of this program.
    """
    if different := int((outputs != patterns(lowered)).sum()):
        raise RuntimeError(f"golden and PyTorch differ in {different} of {outputs.size} outputs; report this defect")


def finish(
    out: Path,
    layers: tuple[Layer, ...],
    test: Samples,
    *,
    data: str,
    preprocessing: str,
    fp32: torch.Tensor,
    qat: torch.Tensor,
    lowered: torch.Tensor | None,
    seed: int,
    command: str,
    method: str,
    sources: Mapping[str, tuple[str, ...]] | None = None,
) -> Model:
    """Measure a network on its test set and write it.

    Args:
        out:     The model file.
        layers:  Lowered.
        fp32:    Real[samples, classes], the FP32 network's outputs for the test set.
        qat:     The same of the network under quantisation-aware training.
        lowered: The same of the lowered network in PyTorch, where there is one.
        Others:  As in `Model` and `Provenance`.

    Raises:
        RuntimeError: golden and PyTorch differ in a bit, which is a defect of this program.
    """

    def model(accuracy: float) -> Model:
        return Model(
            name=Path(out).stem,
            data=data,
            preprocessing=preprocessing,
            classes=test.classes,
            layers=layers,
            sources=sources or {},
            provenance=Provenance(
                command=command,
                method=method,
                seed=seed,
                fp32_accuracy=share(fp32.argmax(1), test.labels),
                qat_accuracy=share(qat.argmax(1), test.labels),
                golden_accuracy=accuracy,
            ),
            fp32_predictions=fp32.argmax(1).numpy().astype(np.uint8),
            qat_predictions=qat.argmax(1).numpy().astype(np.uint8),
        )

    outputs = network.outputs(model(0.0), test.inputs, test.lengths)
    if lowered is not None:
        check_bits(outputs, lowered)
    finished = model(share(network.classes(outputs), test.labels))
    save_model(finished, out)
    return finished
