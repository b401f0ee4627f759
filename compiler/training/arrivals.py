"""Tiles of gradients on the chip, and the way back through windows."""

from dataclasses import replace

from concord.compiler.training.emitter import Emitter, Span
from concord.compiler.training.graph import PoolWindows, Product
from concord.compiler.training.memory_map import MemoryMap
from concord.compiler.training.regions import ChipRoom, ImageRegion, cut
from concord.golden.lazy.tensor_layers import reciprocal
from concord.spec.trainer.instructions import TrainerOp


def pool(
    emitter: Emitter, windows: PoolWindows, y: ImageRegion, x: ImageRegion, chosen: ImageRegion | None, **exponents: int
):
    """Emit a `pool`."""
    mantissa, lsb = reciprocal(windows.size**2) if windows.mean else (0, 0)
    seen = x.operand(n1=y.height, n2=y.width, step1=windows.stride, step2=windows.stride)
    emitter.emit(
        TrainerOp.POOL,
        {"y": y.operand(), "x": seen, "chosen": chosen and chosen.operand()},
        size=windows.size,
        mean=int(windows.mean),
        relu=int(windows.relu),
        reciprocal=mantissa,
        shift=-lsb,
        **exponents,
    )


def pool_back(
    emitter: Emitter,
    windows: PoolWindows,
    y: ImageRegion,
    x: ImageRegion,
    chosen: ImageRegion | None,
    mask: ImageRegion | None,
    **exponents: int,
):
    """Emit a `pool_back`."""
    mantissa, lsb = reciprocal(windows.size**2) if windows.mean else (0, 0)
    operands = {
        "y": y.operand(),
        "x": x.operand(),
        "chosen": chosen.operand() if chosen and not windows.mean else None,
        "mask": mask.operand() if mask else None,
    }
    emitter.emit(
        TrainerOp.POOL_BACK,
        operands,
        size=windows.size,
        stride=windows.stride,
        mean=int(windows.mean),
        reciprocal=mantissa,
        shift=-lsb,
        **exponents,
    )


class Arrivals:
    """Brings the gradient of the sums of a layer to the chip, through the pooling behind them if there is one.

    Args:
        memory_map: Where everything lies.
        layer:      The layer.
        chip:       Where there is room.
        samples:    Most samples at a time.
        rows:       Most rows at a time; 0 for whole images.
    """

    def __init__(self, memory_map: MemoryMap, layer: Product, chip: ChipRoom, samples: int, rows: int = 0):
        self.memory_map, self.layer, y = memory_map, layer, layer.y
        self.sums = chip.images(samples, rows or layer.height, layer.width, layer.blocks, 2)
        if layer.pool:
            rows = -(-rows // layer.pool.stride) or y.height
            self.pooled = chip.images(samples, rows, y.width, y.blocks, 2)
            self.chosen = chip.images(samples, rows, y.width, y.blocks)

    def load(self, emitter: Emitter, samples: Span, rows: range | None = None) -> ImageRegion:
        """Emit loads, and the way back through the pooling: the gradient on the chip.

        Args:
            emitter: Takes the instructions.
            samples: Which samples.
            rows:    Which rows, whole windows of the pooling; all of them if None.
        """
        blocks, layer, memory_map = Span(0, self.layer.blocks), self.layer, self.memory_map
        sums = cut(self.sums, blocks, samples)
        source, seen = memory_map.gradients[layer.y].sampled(samples), None
        if rows is not None:
            sums = replace(sums, height=len(rows))
            seen = layer.pooled(rows)
            source = source.rowed(seen.start, len(seen))
        if not layer.pool:
            emitter.copy(sums.operand(), source.operand())
            return sums
        if seen is not None and not seen:  # rows behind the last window
            emitter.copy(sums.operand())
            return sums
        pooled, chosen = (cut(each, blocks, samples) for each in (self.pooled, self.chosen))
        which = memory_map.chosen[layer].sampled(samples)
        if seen is not None:
            pooled, chosen = (replace(each, height=len(seen)) for each in (pooled, chosen))
            which = which.rowed(seen.start, len(seen))
        emitter.copy(pooled.operand(), source.operand())
        emitter.copy(chosen.operand(), which.operand())
        scale = memory_map.gradient_scales[layer.y]
        pool_back(emitter, layer.pool, sums, pooled, chosen, None, ex=scale, ey=scale)
        return sums
