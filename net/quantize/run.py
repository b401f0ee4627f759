"""Post-training quantisation from a float network and its data to the model file."""

from pathlib import Path

from concord.datasets.samples import NO_DATA, DataSet
from concord.golden.mfu.softmax import real_softmax
from concord.lib.input_axes import Order
from concord.lib.progress import Show, silent
from concord.net.finish import finish
from concord.net.graph import Graph
from concord.net.layers.joins import with_softmax
from concord.net.model import Model
from concord.net.quantize.choices import Choices
from concord.net.quantize.equalizing import equalize
from concord.net.quantize.node_results import outputs
from concord.net.quantize.quantized import prepared, quantized
from concord.net.quantize.source import NetworkWithData, source


def opened(
    network: Graph, data: DataSet | None, choices: Choices, calibration: Path | None = None,
    order: Order | None = None,
) -> NetworkWithData:
    """A network with its data, which can be quantised as the choices say.

    Args:
        network:     The network.
        data:        Its data, or None where `calibration` is given.
        choices:     How it is to be quantised.
        calibration: A .npy file of numbers [samples, ...], or None for samples of the data.
        order:       Order of the axes of a sample of this file; None for that of the network's file.

    Raises:
        Unsupported: an operation of the network cannot be quantised.
        ValueError: data are missing or do not fit, or a method cannot do a width.
    """
    found = source(network, data, calibration, order)
    prepared(network, choices, found.steps, scales_apart=True)
    return found


def quantize(out: Path, found: NetworkWithData, choices: Choices, *, command: str, progress: Show = silent) -> Model:
    """Quantise a network without training, measure it if there is a test set, and write the model.

    Args:
        out:      The model file.
        found:    The network and its data.
        choices:  How it is quantised, and whether the machine computes a softmax at its end.
        command:  Command line that the model records.
        progress: Shows each layer, and how many samples golden has computed.

    Raises:
        ValueError: a number left the range of binary16.
    """
    network, data, choices = found.network, found.data, choices.by_itself(found.network.sequence)
    words = choices.words(network.sequence) + "; reconstructed layer by layer" * bool(choices.reconstruct)
    x, lengths = found.numbers(found.calibration), found.calibration.lengths
    if choices.equalize:
        equal = equalize(network, choices, x, lengths, found.steps, progress)
        network, words = equal.network, f"{words}; {equal.words}"
    made = quantized(prepared(network, choices, found.steps, scales_apart=True), x, lengths, progress)
    measured = found.test or found.calibration
    ends = {name: outputs(graph, found.numbers(measured), measured.lengths)
            for name, graph in (("fp32", found.network), ("quantized", made.graph))}
    layers = made.layers
    if network.softmax and found.outputs <= choices.softmax:
        layers = with_softmax(layers)
        ends = {name: real_softmax(values) for name, values in ends.items()}
    return finish(
        out, layers, measured, sources=made.sources, data=data.name if found.test else NO_DATA,
        preprocessing="numbers as the description of the data says, each rounded to binary16", **ends, seed=0,
        command=command, method=f"{network.name}: imported; {words}; "
        f"{len(found.calibration)} samples to calibrate; not trained", task=data.task, description=data.description,
        axes=network.input_axes, imported=network, progress=progress)
