"""Rows of old parameters become new ones, by exact gradients in the accumulators: all of a layer, or a core's share."""

from dataclasses import replace
from math import prod

from concord.compiler.training.emitter import NEW, OLD, Emitter, MovingView, Span
from concord.compiler.training.graph import Product
from concord.compiler.training.memory_map import Exponents, MemoryMap, biases, weights
from concord.compiler.training.regions import ImageRegion
from concord.compiler.training.shares import boxes, share
from concord.spec.trainer.config import LANES, PARAMETER_PLANES, SUM_PLANES
from concord.spec.trainer.instructions import MeasureKind, Space, TrainerOp
from concord.spec.trainer.views import TrainerView


class ParameterRows:
    """Emits loads, updates and stores of the parameters of a layer.

    Args:
        memory_map: Where everything lies.
        emitter:    Takes the instructions.
        layer:      The layer.
    """

    def __init__(self, memory_map: MemoryMap, emitter: Emitter, layer: Product):
        self.memory_map, self.emitter, self.layer = memory_map, emitter, layer
        self.records = memory_map.records[layer.name]

    def weights(self, blocks: Span, taps: Span, acc: int, chip: list[int], most: int, cores: int):
        """Update weights all at once, or some outputs of one tap at a time.

        Args:
            blocks, taps: Blocks of channels, and taps of the kernel.
            acc:   Row of the accumulators of the first gradient.
            chip:  Addresses of old and new rows on the chip.
            most:  Rows that fit there.
            cores: Number of cores that share the rows; 1 for all rows.
        """
        counts = blocks.count, taps.count, self.layer.outputs
        rows = share(prod(counts), self.memory_map.core if cores > 1 else 0, cores)
        if prod(counts) > most:
            most = min(most, self.layer.outputs)
        for first, sizes in boxes(rows, counts, most):
            region = ImageRegion(offset=0, samples=1, width=prod(sizes), planes=PARAMETER_PLANES, plane=prod(sizes))
            old, new = (replace(region, offset=address) for address in chip)
            self.emitter.copy(old.operand(), self._outside(OLD, blocks, taps, first, sizes))
            self._update(old, new, self.records.weights, acc + rows.start)
            self.emitter.copy(self._outside(NEW, blocks, taps, first, sizes), new.operand())
            acc += prod(sizes)
        if not rows.count:
            self._nothing(chip, self.records.weights, acc)

    def kept(self, blocks: Span, taps: Span, parts: list[tuple[Span, int]], chip: list[int]):
        """Update weights that stay on the chip until their exponents stand, and store them then.

        Args:
            blocks, taps: Blocks of channels, and taps of the kernel.
            parts: Blocks that an update takes, and the row of their first gradient.
            chip:  Addresses of old and new rows on the chip.
        """
        counts = blocks.count, taps.count, self.layer.outputs
        whole = ImageRegion(offset=0, samples=1, width=prod(counts), planes=PARAMETER_PLANES, plane=prod(counts))
        old, new = (replace(whole, offset=address) for address in chip)
        self.emitter.copy(old.operand(), self._outside(OLD, blocks, taps, (0, 0, 0), counts))
        with self.repeated(self.records.weights):
            for part, row in parts:
                rows = part.count * prod(counts[1:])
                self._update(*(replace(each.moved(row), width=rows) for each in (old, new)), self.records.weights, row)
        self.emitter.copy(self._outside(NEW, blocks, taps, (0, 0, 0), counts), new.operand())

    def repeated(self, numbers: Exponents):
        """What is emitted within is repeated until the exponents of parameters stand."""
        return self.emitter.repeated(e=numbers.momentum, kind=MeasureKind.UPDATE, ew=numbers.value, eg=numbers.gradient)

    def bias(self, chip: list[int]):
        """Update the share of the bias, until its exponents stand."""
        numbers, memory_map = self.records.biases, self.memory_map
        words = share(self.layer.blocks, memory_map.core, memory_map.cores)
        bases = (biases(self.records, base, PARAMETER_PLANES).moved(words.start) for base in (OLD, NEW))
        outer = [replace(region, width=words.count).operand() for region in bases]
        region = ImageRegion(offset=0, samples=1, width=words.count, planes=PARAMETER_PLANES, plane=words.count)
        inner = [replace(region, offset=address) for address in chip]
        if words.count:
            self.emitter.copy(inner[0].operand(), outer[0])
        with self.repeated(numbers):
            if words.count:
                self._update(*inner, numbers, LANES * words.start, bias=1)
            else:
                self._nothing(chip, numbers, 0)
        if words.count:
            self.emitter.copy(outer[1], inner[1].operand())

    def _outside(
        self, base: int, blocks: Span, taps: Span, first: tuple[int, int, int], counts: tuple[int, int, int]
    ) -> MovingView:
        """So many blocks of channels, taps and outputs in server memory, from the first of each on."""
        region = weights(self.records, self.layer, base, PARAMETER_PLANES)
        moved = first[0] * region.width + first[1] * region.pixels + first[2]
        region = region.moved(moved, blocks, region.width).moved(0, taps, region.pixels)
        return region.operand(n0=counts[0], s0=region.width, n1=counts[1], pitch1=region.pixels, n2=counts[2])

    def _update(self, old: ImageRegion, new: ImageRegion, numbers: Exponents, acc: int, bias: int = 0):
        self.emitter.emit(
            TrainerOp.UPDATE,
            {"old": old.operand(), "new": new.operand()},
            acc=acc,
            bias=bias,
            ew=numbers.value,
            ev=numbers.momentum,
            eg=numbers.gradient,
        )

    def _nothing(self, chip: list[int], numbers: Exponents, acc: int):
        """Update a row of zeros: a core without rows tells the unit of its momenta, too, and measures nothing."""
        old, new = (ImageRegion(offset=address, samples=1, planes=PARAMETER_PLANES, plane=1) for address in chip)
        self.emitter.copy(old.operand())
        self.emitter.copy(accumulators(acc, 1, 1))
        self._update(old, new, numbers, acc)


def accumulators(first: int, count: int, blocks: int = 2) -> MovingView:
    """Rows of the accumulators; with 2 blocks, with the plain lane."""
    return MovingView(
        TrainerView(space=Space.ACCUMULATORS, planes=SUM_PLANES, offset=first, n2=count, pitch2=1, blocks=blocks)
    )
