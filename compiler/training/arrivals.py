"""Tiles of gradients on the chip, and the way back through windows."""

from concord.compiler.training.emitter import Emitter, Span
from concord.compiler.training.forward import cut
from concord.compiler.training.graph import PoolWindows, Product
from concord.compiler.training.memory_map import MemoryMap
from concord.compiler.training.regions import ChipRoom, ImageRegion
from concord.golden.lazy.tensor_layers import reciprocal
from concord.spec.trainer.instructions import TrainerOp


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
        places: Where everything lies.
        layer:  The layer.
        chip:   Where there is room.
        samples: Most samples at a time.
    """

    def __init__(self, places: MemoryMap, layer: Product, chip: ChipRoom, samples: int):
        self.places, self.layer, y = places, layer, layer.y
        self.sums = chip.images(samples, layer.height, layer.width, layer.blocks, 2)
        if layer.pool:
            self.pooled = chip.images(samples, y.height, y.width, y.blocks, 2)
            self.chosen = chip.images(samples, y.height, y.width, y.blocks)

    def load(self, emitter: Emitter, samples: Span) -> ImageRegion:
        """Emit loads, and the way back through the pooling: the gradient on the chip."""
        blocks, layer, places = Span(0, self.layer.blocks), self.layer, self.places
        sums = cut(self.sums, blocks, samples)
        source = places.gradients[layer.y].sampled(samples)
        if not layer.pool:
            emitter.copy(sums.operand(), source.operand())
            return sums
        pooled, chosen = (cut(each, blocks, samples) for each in (self.pooled, self.chosen))
        emitter.copy(pooled.operand(), source.operand())
        emitter.copy(chosen.operand(), places.chosen[layer].sampled(samples).operand())
        scale = places.gradient_scales[layer.y]
        pool_back(emitter, layer.pool, sums, pooled, chosen, None, ex=scale, ey=scale)
        return sums
