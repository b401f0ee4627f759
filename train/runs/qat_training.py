"""Quantisation-aware training of a network behind its quantisers.

Source: S0; numerics.md of the specification, integer mode, item 7.
"""

from collections.abc import Callable

import torch
from concord.train.lib.fit import Progress, cross_entropy, fit, silent
from concord.train.overflow.predictor import Predictor
from concord.train.qat.network import QuantizedNetwork


def train_quantized(
    net: QuantizedNetwork,
    images: torch.Tensor,
    labels: torch.Tensor,
    *,
    lowered: bool,
    seed: int,
    epochs: int,
    rate: float,
    batch: int,
    progress: Progress = silent,
    predictor: Predictor | None = None,
    accuracy: Callable[[], float] | None = None,
):
    """Train one phase by SGD with momentum.

    Args:
        lowered:   Whether the forward pass is in the machine's arithmetic, rather than in real numbers.
        rate:      Learning rate at the beginning.
        predictor: Predictor that changes the ranges of layers after each epoch, so that sums fit; or None.
        accuracy:  Function that measures the accuracy on the test set, see `fit`.
    """
    following = {"after_epoch": predictor.run, "also": {"predictor": predictor}} if predictor else {}
    fit(phase="QAT, lowered" if lowered else "QAT", net=net, optimiser=torch.optim.SGD(net.groups(rate), momentum=0.9),
        loss=lambda index: cross_entropy(net(images[index], lowered), labels[index]), count=len(images), batch=batch,
        epochs=epochs, seed=seed, progress=progress, after_step=net.bound, accuracy=accuracy, **following)
