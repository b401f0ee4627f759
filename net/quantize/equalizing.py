"""Channels equalised before post-training quantisation, as far as the calibration set says that it helps."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from concord.lib.progress import Show, silent
from concord.net.graph import Graph
from concord.net.passes.clips import with_clips
from concord.net.passes.equalize import equalized, groups
from concord.net.passes.fold import fold_scales
from concord.net.passes.simplify import without_quantizers
from concord.net.quantize.apart import stays
from concord.net.quantize.choices import Choices
from concord.net.quantize.node_results import outputs, results
from concord.net.quantize.quantized import prepared, quantized
from concord.net.quantize.tensors import decibels

#: Shares of the difference between channels that weights may take; see `passes.equalize.equalized`.
SHARES = (0.0, 0.25, 0.5, 0.75)
#: Least gain, in decibels, for which channels are equalised.
LEAST = 0.2


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Equalized:
    """A network after the search for equal channels.

    Attributes:
        network: The network, which computes what it did before.
        words:   What was found.
    """

    network: Graph
    words: str


def equalize(
    network: Graph, choices: Choices, x: np.ndarray, lengths: np.ndarray | None = None, steps: int | None = None,
    progress: Show = silent,
) -> Equalized:
    """Equalise the channels of a network in the way that brings its quantised outputs nearest to the float ones.

    Args:
        network:  The float network.
        choices:  How it is quantised.
        x:        float32[samples, *shape], or [samples, time, *shape], the calibration set.
        lengths:  int[samples], time steps of each sample; all time steps by default.
        steps:    Number of time steps of all inputs; None if it is not fixed, or if inputs are no sequences.
        progress: Shows each way that has been tried.
    """
    bare = with_clips(without_quantizers(network), integers=not choices.blocks)
    bare = fold_scales(bare, batch_norm=True, stays=stays)
    count = len(groups(bare))
    if not count:
        return Equalized(network=network, words="no channels that can be equalised")
    # Half of the samples find ranges, and the others say what these are worth: some channels are hardly ever used.
    (x_first, first), (x_other, other) = ((x[at::2], None if lengths is None else lengths[at::2])
                                                for at in (0, min(1, len(x) - 1)))
    wanted, half = outputs(network, x_other, other), _ranges(bare, x_first, first)

    def quality(candidate: Graph) -> float:
        made = quantized(prepared(candidate, choices, steps, scales_apart=True), x_first, first)
        return decibels(wanted, outputs(made.graph, x_other, other))

    before, best, chosen = quality(network), -np.inf, 0.0
    for done, share in enumerate(SHARES, 1):
        try:
            now = quality(equalized(bare, half, share))
        except ValueError:
            continue  # a number that binary16 does not hold
        progress("equalise", done, len(SHARES), f"share {share:g}: outputs {now:.1f} dB, before {before:.1f} dB")
        if now > best:
            best, chosen = now, share
    if not best > before + LEAST:
        return Equalized(network=network, words="channels not equalised, which gains nothing")
    return Equalized(network=equalized(bare, _ranges(bare, x, lengths), chosen),
                     words=f"channels equalised, which gains {best - before:.1f} dB")


def _ranges(graph: Graph, x: np.ndarray, lengths: np.ndarray | None) -> Mapping[str, np.ndarray]:
    """The largest magnitude of each channel of the result of each node."""
    found = {}
    for node, _, made in results(graph, x, lengths):
        largest = np.abs(made).max(0)
        found[node.name] = largest.reshape(len(largest), -1).max(1)
    return found
