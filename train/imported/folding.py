"""Imported networks as PyTorch takes them: real numbers, whose scales and offsets are folded into layers."""

from concord.net.graph import Graph
from concord.net.passes.fold import fold_scales
from concord.net.passes.lines import hard_sigmoids_as_lines
from concord.net.passes.quantizers import without_quantizers
from concord.net.quantize.plan import Unsupported


def folded(network: Graph) -> Graph:
    """The same network without operators that no module has: constant scales, hard sigmoids, quantisers.

    Batch normalisation that is left follows a layer that nobody else reads.

    Raises:
        Unsupported: a scale has no layer beside it.
    """
    try:
        return fold_scales(hard_sigmoids_as_lines(without_quantizers(network)))
    except ValueError as error:
        raise Unsupported(str(error)) from error
