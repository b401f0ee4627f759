"""The products of a layer, forward: weights of some outputs stay while samples pass."""

from dataclasses import replace

from concord.compiler.training import patches
from concord.compiler.training.arrivals import pool
from concord.compiler.training.emitter import OLD, Emitter, Span
from concord.compiler.training.graph import Product
from concord.compiler.training.memory_map import MemoryMap, biases, weights
from concord.compiler.training.regions import ChipRoom, ImageRegion, cut
from concord.compiler.training.tiles import (
    Axis,
    Piece,
    Strip,
    TileSizes,
    block_cycles,
    choose,
    heights,
    part_of,
    pieces,
    tile_cycles,
    window_strips,
    windows_of,
)
from concord.spec.trainer.config import LANES, TrainerConfig
from concord.spec.trainer.instructions import TrainerOp


class LayerProducts:
    """Emits the products of a layer: weights of some outputs stay while samples pass."""

    def __init__(self, memory_map: MemoryMap, config: TrainerConfig, emitter: Emitter, layer: Product):
        self.layer, self.memory_map, self.emitter = layer, memory_map, emitter
        self.records, self.scales = memory_map.records[layer.name], memory_map.scales
        self.config, self.half = config, config.accumulator_rows // 2
        self.tiles = choose(
            f"layer {layer.name!r}, forward,",
            self.config,
            (layer.blocks, self.memory_map.batch),
            lambda each: self._chip(each).used,
            self._cost,
            self._count,
            () if layer.dense else heights(layer.height, layer.pool.stride if layer.pool else 1),
        )
        self._chip(self.tiles)

    def _chip(self, tiles: TileSizes) -> ChipRoom:
        """Regions of tiles, with inputs and weights in different memories if there is room."""
        apart = self._regions(tiles, ChipRoom(memory=self.config.memory))
        return apart if apart.used <= self.config.words else self._regions(tiles, ChipRoom())

    def _regions(self, tiles: TileSizes, found: ChipRoom) -> ChipRoom:
        layer, x, y = self.layer, self.layer.x, self.layer.y
        strips = self._strips(tiles.rows)
        height = max(strip.high - strip.low for strip in strips)
        self.ways = []
        for _ in range(tiles.inner):
            self.ways.append(
                {
                    "raster": patches.lines(found, self.memory_map, tiles.samples) if layer.patch else None,
                    "x": found.images(tiles.samples, height, x.width, x.blocks),
                }
            )
        found.apart()
        self.bias = found.images(1, 1, layer.blocks, 1)
        self.weights = [found.images(layer.taps, x.blocks, 16 * tiles.blocks, 1) for _ in range(tiles.outer)]
        both = max(tiles.outer, tiles.inner)
        self.results = [
            found.images(tiles.samples, tiles.rows or layer.height, layer.width, tiles.blocks, y.planes)
            for _ in range(both)
        ]
        if layer.pool:
            rows = -(-tiles.rows // layer.pool.stride) or y.height
            self.pooled = [
                [found.images(tiles.samples, rows, y.width, tiles.blocks) for _ in range(2)] for _ in range(both)
            ]
        return found

    def _cost(self, tiles: TileSizes) -> int:
        layer, batch, strips = self.layer, self.memory_map.batch, self._strips(tiles.rows)
        blocks, clash = layer.taps * layer.x.blocks * layer.blocks, 0 if self._chip(tiles).memory else LANES
        rows = [
            piece.samples * piece.rows * layer.width
            for strip in strips
            for piece in self._pieces(tiles.samples, strip.rows)
        ]
        cycles = sum(block_cycles(blocks, each, 1) + blocks * clash for each in rows)
        tall, groups = -(-batch // tiles.samples), -(-layer.blocks // tiles.blocks)
        inputs, cores = layer.x.blocks * layer.x.pixels * batch, self.memory_map.cores
        return tile_cycles(groups, tall * len(strips), cycles * tall, layer.weight_words * cores, inputs * cores)

    def _count(self, tiles: TileSizes) -> int:
        strips = self._strips(tiles.rows)
        return sum(len(self._pieces(tiles.samples, strip.rows)) for strip in strips) * tiles.blocks

    def _strips(self, rows: int) -> list[Strip]:
        layer = self.layer
        return window_strips(layer.height, rows, layer.x.height, layer.rows, layer.stride, layer.padding)

    def _pieces(self, samples: int, height: int) -> list:
        layer = self.layer
        return list(pieces(samples, height, layer.width, self.half, f"layer {layer.name!r}"))

    def emit(self):
        layer, tiles, memory_map = self.layer, self.tiles, self.memory_map
        everything = Span(0, memory_map.batch)
        self.emitter.copy(self.bias.operand(), biases(self.records, OLD).operand())
        strips = self._strips(tiles.rows)
        resident = tiles.samples == memory_map.batch and len(strips) == 1
        if resident:
            x = self._load(self.ways[0], everything, strips[0])
        for group, outer in self.emitter.spans(layer.blocks, tiles.blocks, tiles.outer):
            held = self.weights[outer]
            self._load_weights(held, group)
            for samples, inner in self.emitter.spans(memory_map.batch, tiles.samples, tiles.inner):
                for strip in strips:
                    if not resident:
                        x = self._load(self.ways[inner], samples, strip)
                    self._tile(held, x, max(outer, inner), group, samples, strip)

    def _load_weights(self, held: ImageRegion, group: Span):
        """Load the rows of some outputs, of all taps and blocks of channels."""
        source = weights(self.records, self.layer, OLD).moved(0, group, 16)
        rows = 16 * group.count
        self.emitter.copy(held.operand(n2=rows), source.operand(n2=rows))

    def _load(self, way: dict, samples: Span, strip: Strip) -> ImageRegion:
        """Load inputs, or make patches of rows of pixels, which are kept for the way back or made again there."""
        layer, x = self.layer, cut(way["x"], Span(0, way["x"].blocks), samples)
        x = replace(x, height=strip.high - strip.low)
        stored = self.memory_map.values[layer.x].sampled(samples).rowed(strip.low, x.height).operand()
        if not layer.patch:
            self.emitter.copy(x.operand(), stored)
            return x
        patches.make(self.emitter, self.memory_map, layer, way["raster"], x, samples, strip.low)
        if not self.memory_map.remakes:
            self.emitter.copy(stored, x.operand())
        return x

    def _tile(self, held: ImageRegion, x: ImageRegion, way: int, group: Span, samples: Span, strip: Strip):
        layer, memory_map, emitter = self.layer, self.memory_map, self.emitter
        sums = replace(cut(self.results[way], group, samples), height=strip.rows)
        half = 0
        for piece in self._pieces(samples.count, strip.rows):
            for block in range(group.count):
                self._product(held, x, sums, block, group, piece, half, strip)
                half ^= self.half
        rows = layer.pooled(range(strip.row, strip.row + strip.rows))
        y = memory_map.values[layer.y].blocked(group).sampled(samples).rowed(rows.start, len(rows))
        if not layer.pool:
            emitter.copy(y.operand(), sums.operand())
            return
        if not rows:  # rows behind the last window
            return
        pooled, chosen = (replace(cut(each, group, samples), height=len(rows)) for each in self.pooled[way])
        pool(emitter, layer.pool, pooled, sums, chosen, ex=self.scales[layer.y], ey=self.scales[layer.y])
        emitter.copy(y.operand(), pooled.operand())
        which = memory_map.chosen[layer].blocked(group).sampled(samples).rowed(rows.start, len(rows))
        emitter.copy(which.operand(), chosen.operand())

    def _product(
        self,
        held: ImageRegion,
        x: ImageRegion,
        sums: ImageRegion,
        block: int,
        group: Span,
        piece: Piece,
        acc: int,
        strip: Strip,
    ):
        layer = self.layer
        if layer.dense:
            seen = x.operand(n0=piece.samples, n1=1, n2=1, offset=piece.sample * x.pixels, blocks=1)
        else:
            origin = layer.stride * strip.row - layer.padding - strip.low
            rows = Axis(layer.stride, origin, layer.padding and x.height)
            columns = Axis(layer.stride, -layer.padding, layer.padding and x.width)
            seen = windows_of(x, piece, layer.width, (rows, columns))
        row = held.height * held.width
        blocks = held.operand(
            offset=16 * block, n0=1, s0=held.width, n1=1, pitch1=layer.columns * row, n2=1, pitch2=row
        )
        bias = self.bias.moved(block, group, 1).operand(n2=1)
        self.emitter.emit(
            TrainerOp.PRODUCT,
            {"a": seen, "b": blocks, "y": part_of(sums.column(block), piece), "bias": bias},
            turned=1,
            relu=int(layer.relu),
            acc=acc,
            ea=self.scales[layer.x],
            eb=self.records.weights.value,
            ebias=self.records.biases.value,
            ey=self.scales[layer.y],
            n0=layer.x.blocks,
            n1=layer.rows,
            n2=layer.columns,
            a_s0=x.block,
        )
