"""An imported network with its data, in PyTorch, checked before slow work begins."""

from dataclasses import dataclass
from pathlib import Path

from concord.datasets.samples import DataSet, Samples
from concord.lib.input_axes import Order
from concord.net.graph import Graph
from concord.net.quantize import source as sources
from concord.train.imported.module import module_of
from concord.train.imported.part import Part
from concord.train.lib.fit import reproducible
from torch import nn


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

    network: Graph
    net: nn.Module
    data: DataSet
    calibration: Part
    test: Part | None
    outputs: int

    def part(self, samples: Samples) -> Part:
        """Samples in the form that the network takes."""
        return Part.of(samples, self.network.plane)


def source(network: Graph, data: DataSet | None, calibration: Path | None = None,
           order: Order | None = None) -> Source:
    """A network with its data.

    Args:
        network:     The network in float32.
        data:        Its data, or None where `calibration` is given.
        calibration: A .npy file of numbers [samples, ...], or None for samples of the data.
        order:       Order of the axes of a sample of this file; None for that of the network's file.

    Raises:
        Unsupported: an operation of the network cannot be quantised.
        ValueError: data are missing or do not fit the network.
    """
    reproducible(0)
    net = module_of(network).eval()
    found = sources.source(network, data, calibration, order)
    calibrating, test = (None if part is None else Part.of(part, network.plane)
                         for part in (found.calibration, found.test))
    return Source(network=network, net=net, data=found.data, calibration=calibrating, test=test, outputs=found.outputs)
