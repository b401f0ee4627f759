"""Finishes quantised networks: they are measured in golden arithmetic and written as model files."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from concord.datasets import measures
from concord.datasets.samples import NO_DATA, Samples, Task
from concord.lib.input_axes import InputAxes
from concord.lib.progress import Show, silent
from concord.net import network, ranges
from concord.net.float_network import separated
from concord.net.graph import Graph
from concord.net.layers.layer import Layer
from concord.net.model import Model, Provenance
from concord.net.model_file import save_model

#: Number of samples that golden computes between two reports of progress.
TOGETHER = 100
#: Number of samples whose ranges the layers record.
RECORDED = 100


def check_bits(outputs: np.ndarray, lowered: np.ndarray):
    """Compare golden outputs with the outputs of the lowered network in PyTorch, uint16[samples, outputs] each.

    Raises:
        RuntimeError: they differ in a bit, which is a defect of this program.
    """
    if different := int((outputs != lowered).sum()):
        raise RuntimeError(f"golden and PyTorch differ in {different} of {outputs.size} outputs; report this defect")


def finish(
    out: Path,
    layers: tuple[Layer, ...],
    test: Samples,
    *,
    data: str,
    preprocessing: str,
    fp32: np.ndarray,
    quantized: np.ndarray,
    lowered: np.ndarray | None = None,
    seed: int,
    command: str,
    method: str,
    sources: Mapping[str, tuple[str, ...]] | None = None,
    task: Task = Task.CLASSIFICATION,
    description: str = "",
    axes: InputAxes | None = None,
    imported: Graph | None = None,
    progress: Show = silent,
) -> Model:
    """Measure a network on its test set and write it.

    Args:
        out:      The model file.
        layers:   Layers of the model.
        test:     The test set. Where `data` is NO_DATA, it is a calibration set, on which nothing is measured.
        fp32:     Real[samples, outputs], the FP32 network's outputs for the test set.
        quantized: The same of the quantised network in float arithmetic: after post-training quantisation, or in
            quantisation-aware training.
        lowered:  uint16[samples, outputs], the same of the network in PyTorch in the machine's arithmetic, or None.
        imported: The float network of a file, whose names of outputs and table of vectors the model keeps.
        progress: Shows how many samples golden has computed.
        Others:   As in `Model` and `Provenance`.

    Raises:
        ValueError: the outputs do not fit the labels of the test set.
        RuntimeError: golden and PyTorch differ in a bit, which is a defect of this program.
    """
    tested = data != NO_DATA

    def measured(outputs) -> float | None:
        return measures.first(task, outputs, test) if tested else None

    def kept(outputs: np.ndarray) -> np.ndarray:
        return measures.predictions(task, outputs, test.steps) if tested else np.zeros(0, np.uint8)

    def model(golden: float | None) -> Model:
        return Model(
            name=Path(out).stem,
            data=data,
            task=task,
            description=description,
            axes=axes,
            preprocessing=preprocessing,
            classes=test.classes,
            layers=layers,
            sources=sources or {},
            provenance=Provenance(
                command=command,
                method=method,
                seed=seed,
                fp32_accuracy=measured(fp32),
                quantized_accuracy=measured(quantized),
                golden_accuracy=golden,
            ),
            fp32_predictions=kept(fp32),
            quantized_predictions=kept(quantized),
        )

    outputs = _golden(model(0.0), test, "golden" if lowered is None else "golden against PyTorch", progress)
    if lowered is not None:
        check_bits(outputs, lowered)
    finished = separated(model(measured(outputs.view(np.float16).astype(np.float64))), imported)
    some = test.part(slice(0, RECORDED))
    finished = ranges.with_ranges(finished, ranges.measured(finished, some.inputs, some.lengths))
    save_model(finished, out)
    return finished


def _golden(model: Model, samples: Samples, phase: str, progress: Show) -> np.ndarray:
    """uint16[samples, outputs] of golden, some samples at once."""
    found = []
    for at in range(0, len(samples), TOGETHER):
        part = samples.part(slice(at, at + TOGETHER))
        found.append(network.outputs(model, part.inputs, part.lengths))
        progress(phase, at + len(part), len(samples), "")
    return np.concatenate(found)
