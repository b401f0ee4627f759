"""Model files of trained networks, whose accuracy is measured in golden arithmetic."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from concord.model import network
from concord.model.data import measures
from concord.model.data.samples import NO_DATA, Samples, Task
from concord.model.layers.layer import Layer
from concord.model.model import Model, Provenance
from concord.model.model_file import save_model
from concord.train.lib.observer import Progress, silent

#: Number of samples that golden computes between two reports of progress.
TOGETHER = 100


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
    quantised: torch.Tensor,
    lowered: torch.Tensor | None,
    seed: int,
    command: str,
    method: str,
    sources: Mapping[str, tuple[str, ...]] | None = None,
    task: Task = Task.CLASSIFICATION,
    description: str = "",
    progress: Progress = silent,
) -> Model:
    """Measure a network on its test set and write it.

    Args:
        out:      The model file.
        layers:   Lowered.
        test:     The test set. Where `data` is NO_DATA, it is a calibration set, on which nothing is measured.
        fp32:     Real[samples, classes], the FP32 network's outputs for the test set.
        quantised: The same of the quantised network in float arithmetic: after post-training quantisation, or in
            quantisation-aware training.
        lowered:  The same of the lowered network in PyTorch, where there is one.
        progress: Shows how many samples golden has computed.
        Others:   As in `Model` and `Provenance`.

    Raises:
        ValueError: the outputs do not fit the labels of the test set.
        RuntimeError: golden and PyTorch differ in a bit, which is a defect of this program.
    """
    tested = data != NO_DATA

    def measured(outputs) -> float | None:
        return measures.first(task, outputs, test) if tested else None

    def kept(outputs: torch.Tensor) -> np.ndarray:
        return measures.predictions(task, outputs.numpy()) if tested else np.zeros(0, np.uint8)

    def model(golden: float | None) -> Model:
        return Model(
            name=Path(out).stem,
            data=data,
            task=task,
            description=description,
            preprocessing=preprocessing,
            classes=test.classes,
            layers=layers,
            sources=sources or {},
            provenance=Provenance(
                command=command,
                method=method,
                seed=seed,
                fp32_accuracy=measured(fp32.numpy()),
                quantised_accuracy=measured(quantised.numpy()),
                golden_accuracy=golden,
            ),
            fp32_predictions=kept(fp32),
            quantised_predictions=kept(quantised),
        )

    outputs = _golden(model(0.0), test, progress)
    if lowered is not None:
        check_bits(outputs, lowered)
    finished = model(measured(outputs.view(np.float16).astype(np.float64)))
    save_model(finished, out)
    return finished


def _golden(model: Model, samples: Samples, progress: Progress) -> np.ndarray:
    """uint16[samples, outputs] of golden, some samples at once."""
    found = []
    for at in range(0, len(samples), TOGETHER):
        part = samples.part(slice(at, at + TOGETHER))
        found.append(network.outputs(model, part.inputs, part.lengths))
        progress("golden against PyTorch", at + len(part), len(samples), "")
    return np.concatenate(found)
