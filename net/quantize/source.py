"""A float network with the data that it is calibrated and measured with, checked before slow work begins."""

from dataclasses import dataclass, replace
from math import prod
from pathlib import Path

import numpy as np
from concord.datasets.arrays import read_numbers
from concord.datasets.fitting import arranged, fitted
from concord.datasets.samples import NO_DATA, DataSet, Samples, Task
from concord.lib.input_axes import Order
from concord.net.graph import Graph
from concord.net.quantize.plan import plan

#: Most samples of a calibration set that is taken from training samples.
CALIBRATION = 256


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class NetworkWithData:
    """A float network with its data.

    Attributes:
        network:     The network.
        data:        Samples as sequences or vectors, as the network takes them.
        calibration: Calibration set.
        test:        Test set, or None.
        outputs:     Number of outputs of the network.
    """

    network: Graph
    data: DataSet
    calibration: Samples
    test: Samples | None
    outputs: int

    @property
    def steps(self) -> int | None:
        """Number of time steps that all samples to calibrate with have; None if it differs, or without sequences."""
        if not self.network.sequence:
            return None
        x, lengths = self.calibration.inputs, self.calibration.lengths
        return x.shape[1] if lengths is None or (np.asarray(lengths) == x.shape[1]).all() else None

    def numbers(self, samples: Samples) -> np.ndarray:
        """float32[samples, *shape], or [samples, time, *shape]: the inputs of samples as the network takes them."""
        return numbers_of(samples, self.network)


def numbers_of(samples: Samples, network: Graph) -> np.ndarray:
    """float32[samples, *shape], or [samples, time, *shape]: the inputs of samples as a network takes them."""
    axes = 1 + network.sequence
    x = samples.inputs.view(np.float16).astype(np.float32)
    return x.reshape(*x.shape[:axes], *network.shape)


def source(
    network: Graph, data: DataSet | None, calibration: Path | None = None, order: Order | None = None
) -> NetworkWithData:
    """A network with its data.

    Args:
        network:     The network.
        data:        Its data, or None where `calibration` is given.
        calibration: A .npy file of numbers [samples, ...], or None for samples of the data.
        order:       Order of the axes of a sample of this file; None for that of the network's file.

    Raises:
        Unsupported: an operation of the network cannot be quantised.
        ValueError: data are missing or do not fit the network.
    """
    if data is None and calibration is None:
        raise ValueError(f"{network.name}: give data to calibrate with, by --data, or by --calibration FILE.npy")
    chosen = None if calibration is None else _of_file(calibration, network, order or Order.FILE)
    if data is None:
        data = DataSet(name=NO_DATA, task=Task.NONE, shape=network.shape, train=None, test=None, calibration=chosen,
                       description="", order=Order.MACHINE)
    data = fitted(data, network.interface)
    chosen = chosen or calibrating(data)
    outputs = prod(network.shapes[network.output.name])
    check_labels(data, outputs)
    chosen, test = (part and with_classes(part, data.task, outputs) for part in (chosen, data.test))
    found = NetworkWithData(network=network, data=data, calibration=chosen, test=test, outputs=outputs)
    plan(network, found.steps)
    return found


def calibrating(data: DataSet) -> Samples:
    """The calibration set: the one of the data, or training samples at random, always the same.

    Raises:
        ValueError: there are neither.
    """
    if data.calibration is not None:
        return data.calibration
    if data.train is None:
        raise ValueError(f"{data.name}: there are no samples to calibrate with beside the test set; name some in the "
                         "data's TOML file, or give --calibration FILE.npy")
    if len(data.train) <= CALIBRATION:
        return data.train
    return data.train.part(np.sort(np.random.default_rng(0).permutation(len(data.train))[:CALIBRATION]))


def check_labels(data: DataSet, outputs: int):
    """Refuse labels that do not fit the outputs of a network.

    Raises:
        ValueError: a class has no output, or a sample has another number of targets.
    """
    for name, part in data.parts().items():
        labels = None if part is None else part.labels
        if labels is None or not len(labels):
            continue
        where = f"{data.name}, {name} samples"
        classes, left = divmod(outputs, part.steps)
        if data.task is Task.CLASSIFICATION and left:
            raise ValueError(f"{where}: a sample has a class for each of {part.steps} time steps, but the network has "
                             f"{outputs} outputs, which are not as many for each; give one class for each sample")
        if data.task is Task.CLASSIFICATION and labels.max() >= classes:
            row = int(np.argmax(labels)) // part.steps
            raise ValueError(f"{where}: sample {row} has class {labels.max()}, but the network has the outputs "
                             f"0..{classes - 1}; check the labels" + ' or choose `task = "anomaly"`' * (classes == 1))
        if data.task is Task.REGRESSION and labels.shape[1] != outputs:
            whole = labels.shape[1] == 1 and bool((labels >= 0).all() and (labels == np.rint(labels)).all())
            classes = '; labels that are classes are saved as integers, or called `task = "classification"`' * whole
            raise ValueError(f"{where}: {labels.shape[1]} target{'s' * (labels.shape[1] != 1)} for each sample, but "
                             f"the network has {outputs} outputs; name as many columns of labels{classes}")
        if data.task is Task.ANOMALY and outputs not in (1, part.inputs.shape[-1]):
            raise ValueError(f"{where}: an anomaly is scored by one output, or by as many as the "
                             f"{part.inputs.shape[-1]} inputs, which they restore; the network has {outputs}")


def with_classes(samples: Samples, task: Task, outputs: int) -> Samples:
    """Samples with a name for each class of a classifier: for each output, of one time step if each has a class."""
    count = outputs // samples.steps
    if task is not Task.CLASSIFICATION or len(samples.classes) >= count:
        return samples
    more = (f"class {index}" for index in range(len(samples.classes), count))
    return replace(samples, classes=(*samples.classes, *more))


def _of_file(path: Path, network: Graph, order: Order) -> Samples:
    """The calibration set of a .npy file, rounded to binary16 as a machine reads it.

    Raises:
        ValueError: there is no such file, or its numbers do not fit the network.
    """
    array, _ = arranged(read_numbers(path), network.interface, str(path), order)
    with np.errstate(over="ignore"):
        halves = array.astype(np.float16)
    if not np.isfinite(halves).all():
        raise ValueError(f"{path}: some numbers are too large for binary16, or are none; scale them")
    return Samples(inputs=np.ascontiguousarray(halves).view(np.uint16))
