"""An imported network with its data, checked before slow work begins."""

from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np
from concord.model.data.samples import NO_DATA, DataSet, Samples, Task
from concord.model.floating.network import FloatNetwork
from concord.model.npy_file import read_numbers
from concord.train.imported.fitting import fits, fitted, words
from concord.train.imported.graph_module import plane_shape
from concord.train.imported.module import module_of
from concord.train.imported.objectives import check_labels, with_classes
from concord.train.imported.part import Part
from concord.train.lib.fit import reproducible
from torch import nn

#: Most samples of a calibration set that is taken from training samples.
CALIBRATION = 256


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Source:
    """An imported network with its data.

    Attributes:
        network:     The network in float32.
        net:         The network in PyTorch, in evaluation mode.
        data:        Samples as sequences or vectors, as the network takes them.
        calibration: Calibration set.
        test:        Test set, or None.
        outputs:     Number of outputs of the network.
    """

    network: FloatNetwork
    net: nn.Module
    data: DataSet
    calibration: Part
    test: Part | None
    outputs: int

    def part(self, samples: Samples) -> Part:
        """Samples in the form that the network takes."""
        return Part.of(samples, plane_shape(self.network))


def source(network: FloatNetwork, data: DataSet | None, calibration: Path | None = None) -> Source:
    """A network with its data.

    Args:
        network:     The network in float32.
        data:        Its data, or None where `calibration` is given.
        calibration: A .npy file of numbers [samples, ...], or None for samples of the data.

    Raises:
        Unsupported: an operation of the network cannot be quantised.
        ValueError: data are missing or do not fit the network.
    """
    reproducible(0)
    net = module_of(network).eval()
    if data is None and calibration is None:
        raise ValueError(f"{network.name}: give data to calibrate with, by --data, or by --calibration FILE.npy")
    chosen = None if calibration is None else _of_file(calibration, network)
    if data is None:
        data = DataSet(name=NO_DATA, task=Task.NONE, shape=network.shape, train=None, test=None, calibration=chosen,
                       description="")
    data = fitted(data, network)
    chosen = chosen or calibrating(data)
    shape = plane_shape(network)
    first = Part.of(chosen.first(1), shape)
    outputs = first.outputs(net).shape[1]
    check_labels(data, outputs)
    chosen, test = (None if part is None else Part.of(with_classes(part, data.task, outputs), shape)
                    for part in (chosen, data.test))
    return Source(network=network, net=net, data=data, calibration=chosen, test=test, outputs=outputs)


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


def _of_file(path: Path, network: FloatNetwork) -> Samples:
    """The calibration set of a .npy file, rounded to binary16 as a machine reads it.

    Raises:
        ValueError: there is no such file, or its numbers do not fit the network.
    """
    array = read_numbers(path)
    before = 2 if network.sequence else 1
    if array.ndim <= before or prod(array.shape[before:]) != prod(network.shape):
        axes = "samples, time steps" if network.sequence else "samples"
        raise ValueError(f"{path}: {network.name} takes numbers [{axes}, {', '.join(map(str, network.shape))}], not "
                         f"{array.dtype}{list(array.shape)}")
    if not fits(array.shape[before:], network.shape):
        raise ValueError(f"{path}: {network.name} takes {words(network.shape)}, channels first, not "
                         f"{words(array.shape[before:])}; transpose the array")
    with np.errstate(over="ignore"):
        halves = array.astype(np.float16)
    if not np.isfinite(halves).all():
        raise ValueError(f"{path}: some numbers are too large for binary16, or are none; scale them")
    return Samples(inputs=np.ascontiguousarray(halves.reshape(*array.shape[:before], -1)).view(np.uint16),
                   lengths=None, labels=None, classes=())
