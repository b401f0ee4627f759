"""The products of a dense layer whose weights of 16 outputs do not fit the chip: its inputs go in parts, forward."""

from dataclasses import replace

from concord.compiler.training.emitter import OLD, Emitter, Span
from concord.compiler.training.graph import Product
from concord.compiler.training.memory_map import MemoryMap, biases, weights
from concord.compiler.training.regions import ChipRoom, ImageRegion, cut
from concord.compiler.training.tiles import MOST_PRODUCTS, MOST_TAPS, TileSizes, block_cycles, choose
from concord.spec.trainer.config import LANES, TrainerConfig
from concord.spec.trainer.instructions import TrainerOp


class LongProducts:
    """Emits the products of a dense layer: sums stay in the accumulators while parts of the inputs pass.

    Inputs go by pixels of all channels, or by blocks of channels where there is one pixel.

    Args:
        memory_map: Where everything lies.
        config:     The core.
        emitter:    Takes the instructions.
        layer:      The layer.
    """

    def __init__(self, memory_map: MemoryMap, config: TrainerConfig, emitter: Emitter, layer: Product):
        self.layer, self.memory_map, self.emitter = layer, memory_map, emitter
        self.by_pixels, self.records = layer.x.pixels > 1, memory_map.records[layer.name]
        self.units = layer.x.pixels if self.by_pixels else layer.x.blocks
        self.width = layer.x.blocks if self.by_pixels else 1
        self.most = config.accumulator_rows
        self.tiles = choose(
            f"layer {layer.name!r}, forward,",
            config,
            (self.units, memory_map.batch),
            lambda each: self._chip(each).used,
            self._cost,
            self._count,
        )
        self._chip(self.tiles)

    def _chip(self, tiles: TileSizes) -> ChipRoom:
        found, y = ChipRoom(), self.layer.y
        self.bias = found.images(1, 1, self.layer.blocks, 1)
        self.sums = found.images(tiles.samples, 1, 1, 1, y.planes)
        self.ways = [
            (found.images(tiles.blocks, self.width, LANES, 1), self._inputs(found, tiles)) for _ in range(tiles.outer)
        ]
        return found

    def _inputs(self, found: ChipRoom, tiles: TileSizes) -> ImageRegion:
        if self.by_pixels:
            return found.images(tiles.samples, 1, tiles.blocks, self.width)
        return found.images(tiles.samples, 1, 1, tiles.blocks)

    def _cost(self, tiles: TileSizes) -> int:
        """Words that are loaded, or cycles of products where these are more."""
        times, layer = -(-self.memory_map.batch // tiles.samples), self.layer
        loaded = times * layer.weight_words + layer.blocks * self.memory_map.batch * layer.x.blocks * layer.x.pixels
        loaded *= self.memory_map.cores
        return max(loaded, times * block_cycles(layer.taps * layer.x.blocks * layer.blocks, tiles.samples, 1))

    def _count(self, tiles: TileSizes) -> int:
        """One product, or too many where it does not take so many rows or taps."""
        taken = tiles.samples <= self.most and (tiles.blocks <= MOST_TAPS or not self.by_pixels)
        return 1 if taken else self.memory_map.batch * self.units + MOST_PRODUCTS

    def emit(self):
        """Emit the products of all outputs."""
        emitter, size = self.emitter, self.tiles.blocks
        last = (self.units - 1) // size * size
        emitter.copy(self.bias.operand(), biases(self.records, OLD).operand())
        for group, _ in emitter.spans(self.layer.blocks, 1):
            for samples, _ in emitter.spans(self.memory_map.batch, self.tiles.samples):
                if last:
                    self._part(Span(0, size), group, samples, 0, keep=0)
                for part, way in emitter.spans(last, size, self.tiles.outer, begin=size):
                    self._part(part, group, samples, self.tiles.outer - 1 - way, keep=1)
                self._part(Span(last, self.units - last), group, samples, 0, keep=int(last > 0), drained=True)
                sums = cut(self.sums, group, samples)
                y = self.memory_map.values[self.layer.y].blocked(group).sampled(samples)
                emitter.copy(y.operand(), sums.operand())

    def _part(self, part: Span, group: Span, samples: Span, way: int, keep: int, drained: bool = False):
        """Multiply a part of the inputs; with `drained`, bring the sums to mantissas."""
        layer, memory_map, (held, x) = self.layer, self.memory_map, self.ways[way]
        source = weights(self.records, layer, OLD).moved(0, group, LANES)
        seen = memory_map.values[layer.x].sampled(samples)
        if self.by_pixels:
            source, held = source.sampled(part), replace(held, samples=part.count)
            seen = replace(seen.moved(0, part, 1), height=1, width=part.count, apart=seen.sample)
            x = replace(x, samples=samples.count, width=part.count)
        else:
            # Blocks of channels are the rows of the one tap of weights.
            held = replace(held, samples=part.count)
            source = replace(source.moved(0, part, source.width), samples=part.count, height=1)
            seen, x = seen.blocked(part), replace(x, samples=samples.count, blocks=part.count)
        self.emitter.copy(held.operand(), source.operand(n2=LANES))
        self.emitter.copy(x.operand(), seen.operand())
        scales, sums = memory_map.scales, cut(self.sums, group, samples)
        operands = {"a": x.operand(n1=1, n2=1, blocks=1), "b": self._blocks(held)}
        values = {"relu": int(layer.relu), "ebias": self.records.biases.value, "ey": scales[layer.y]}
        if drained:
            operands |= {"y": sums.operand(), "bias": self.bias.moved(0, group, 1).operand(n2=1)}
        self.emitter.emit(
            TrainerOp.PRODUCT,
            operands,
            turned=1,
            keep=keep,
            ea=scales[layer.x],
            eb=self.records.weights.value,
            n0=x.blocks,
            n1=1,
            n2=x.width,
            a_s0=x.block,
            **(values if drained else {}),
        )

    def _blocks(self, held: ImageRegion):
        """Blocks of weights: axis 0 is channels, axis 2 pixels."""
        if self.by_pixels:
            return held.operand(n0=1, s0=LANES, n1=1, n2=1, pitch2=held.pixels)
        return held.operand(n0=1, s0=LANES, n1=1, n2=1)
