"""Quantisation-aware training of a network with its quantisers.

Source: S0; numerics.md of the specification, integer mode, item 7.
"""

from collections.abc import Callable

import torch
from concord.net.graph import Graph
from concord.net.ops.attention import Attention
from concord.net.ops.recurrent import Recurrence
from concord.train.lib.fit import Progress, begin_log, fit, silent
from concord.train.network.quantized_network import QuantizedNetwork
from concord.train.overflow.predictor import Predictor


def by_adam(network: Graph) -> bool:
    """Whether a network, one with gates or attention, is trained by Adam, whose steps do not depend on the scale of
    gradients."""
    return network.has(Recurrence, Attention)


def train_quantized(
    net: QuantizedNetwork,
    loss: Callable[[torch.Tensor], torch.Tensor],
    count: int,
    *,
    lowered: bool,
    seed: int,
    epochs: int,
    rate: float,
    batch: int,
    progress: Progress = silent,
    predictor: Predictor | None = None,
    accuracy: Callable[[], float] | None = None,
    noise: torch.Generator | None = None,
    name: str = "",
):
    """Train one phase, by Adam or by SGD with momentum; see `by_adam`.

    Args:
        loss:      Function that returns the mean loss of the samples with these indices.
        count:     Number of samples.
        lowered:   Whether `loss` computes in the machine's arithmetic, rather than in real numbers.
        rate:      Learning rate at the beginning.
        predictor: Predictor that changes the ranges of layers after each epoch, and between, so that sums fit; or None.
        accuracy:  Function that measures the accuracy on the test set, see `fit`.
        noise:     Generator of the random numbers that `loss` draws.
        name:      Name of the phase, whose accuracy before training is logged; empty for "QAT", without that.
    """
    following = {"after_epoch": predictor.epoch, "also": {"predictor": predictor}} if predictor else {}

    def after_step():
        net.bound()
        if predictor:
            predictor.step()

    groups = net.groups(rate)
    optimiser = torch.optim.Adam(groups) if by_adam(net.plan.graph) else torch.optim.SGD(groups, momentum=0.9)
    if name and accuracy:
        begin_log(name, net, accuracy, groups[0]["lr"] if groups else 0.0, progress)
    fit(phase=name or ("QAT, lowered" if lowered else "QAT"), net=net, optimiser=optimiser, loss=loss, count=count,
        batch=batch, epochs=epochs, seed=seed, progress=progress, after_step=after_step, accuracy=accuracy,
        noise=noise, **following)
