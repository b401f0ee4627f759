"""Patches of a network's input, which a first convolution over few channels takes: a word holds a whole window."""

from concord.compiler.training.emitter import Emitter, Span
from concord.compiler.training.graph import Product
from concord.compiler.training.memory_map import MemoryMap
from concord.compiler.training.regions import ChipRoom, ImageRegion, cut


def lines(found: ChipRoom, memory_map: MemoryMap, samples: int) -> ImageRegion:
    """Room on the chip for the rows of pixels of samples."""
    return found.images(samples, memory_map.raster.height, memory_map.raster.width, 1)


def make(
    emitter: Emitter, memory_map: MemoryMap, layer: Product, room: ImageRegion, x: ImageRegion, samples: Span, low: int
):
    """Load rows of pixels, and make patches of them.

    Args:
        emitter:    Takes the instructions.
        memory_map: Where everything lies.
        layer:      The layer that takes the patches.
        room:       Where the rows of pixels go, as `lines` gives it.
        x:          Where the patches go: a strip of rows of each sample.
        samples:    The samples.
        low:        First row of the strip.
    """
    patch, source = layer.patch, layer.source
    seen = cut(room, Span(0, 1), samples)
    emitter.copy(seen.operand(), memory_map.raster.sampled(samples).operand())
    windows = seen.operand(
        n1=x.height,
        step1=patch.stride,
        origin1=patch.stride * low - patch.padding,
        limit1=source.height,
        n2=x.width,
        step2=patch.stride,
        origin2=-patch.padding,
        limit2=source.width,
    )
    emitter.copy(x.operand(), windows, patches=1, size=patch.size, channels=patch.inputs)
