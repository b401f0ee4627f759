"""Quality of a network: the measures of its task, and the error that quantisation causes in each layer."""

import numpy as np
from concord.datasets.measures import measure, measure_predictions
from concord.datasets.samples import Samples
from concord.net import network
from concord.net.float_network import float_network
from concord.net.layer_errors import errors
from concord.net.model import Model
from concord.verification.inputs import Inputs
from concord.workflows.results import real


def measured(
    model: Model | None, given: Inputs, golden: np.ndarray, other: np.ndarray | None
) -> dict[str, dict[str, float]]:
    """Measures by the name of the network: FP32 and quantised, if the model keeps their predictions, golden and RTL.

    The result is empty if there are no labels.

    Args:
        model:  The model; None where there is only firmware.
        given:  The samples that were run.
        golden: Outputs of golden, uint16[samples, outputs].
        other:  Those of another machine, or None.
    """
    if given.samples.labels is None:
        return {}
    found = {name: measure_predictions(given.task, kept[given.chosen], given.samples)
             for name, kept in (model.predictions if model and given.own else {}).items()}
    found["golden"] = measure(given.task, real(golden), given.samples)
    if other is not None:
        found["RTL"] = measure(given.task, real(other), given.samples)
    return {name: measures for name, measures in found.items() if measures}


def layer_errors(model: Model, samples: Samples) -> dict[str, float]:
    """RMS error of each layer relative to the FP32 network, over the samples that are finite.

    The result is empty if the model file has no FP32 network, or no sample is finite.
    """
    finite = np.isfinite(samples.inputs.view(np.float16)).reshape(len(samples), -1).all(axis=1)
    if not finite.any() or float_network(model) is None:
        return {}
    samples = samples.part(finite)
    traces = network.forward(model, samples.inputs, samples.lengths)
    found = errors(model, traces, samples.inputs, samples.lengths)
    return {layer.name: error for layer, error in zip(model.layers, found, strict=True)}
