"""The gradient of a layer's inputs: weights of some inputs stay while samples pass."""

from dataclasses import replace

from concord.compiler.training.arrivals import Arrivals
from concord.compiler.training.emitter import OLD, Emitter, Span
from concord.compiler.training.graph import Product
from concord.compiler.training.memory_map import MemoryMap, weights
from concord.compiler.training.regions import ChipRoom, ImageRegion, cut, outside
from concord.compiler.training.tiles import (
    Axis,
    Piece,
    Strip,
    TileSizes,
    block_cycles,
    choose,
    heights,
    pieces,
    windows_of,
)
from concord.spec.trainer.config import TrainerConfig
from concord.spec.trainer.instructions import TrainerOp


class InputGradients:
    """Emits the gradient of a layer's inputs: weights of some inputs stay while samples pass.

    The inputs of a convolution go by blocks of channels. Those of a dense layer behind images go by pixels.
    """

    def __init__(self, memory_map: MemoryMap, config: TrainerConfig, emitter: Emitter, layer: Product):
        self.layer, self.memory_map, self.emitter = layer, memory_map, emitter
        self.records, self.config = memory_map.records[layer.name], config
        self.half, self.by_pixels = config.accumulator_rows // 2, layer.dense and layer.x.pixels > 1
        self.units = layer.x.pixels if self.by_pixels else layer.x.blocks
        self.tiles = choose(
            f"layer {layer.name!r}, gradient of inputs,",
            self.config,
            (self.units, self.memory_map.batch),
            lambda each: self._chip(each).used,
            self._cost,
            self._count,
            () if layer.dense else heights(layer.x.height, layer.stride),
        )
        self._chip(self.tiles)

    def _chip(self, tiles: TileSizes) -> ChipRoom:
        """Regions of tiles, with gradients and weights in different memories if there is room."""
        apart = self._regions(tiles, ChipRoom(memory=self.config.memory))
        return apart if apart.used <= self.config.words else self._regions(tiles, ChipRoom())

    def _regions(self, tiles: TileSizes, found: ChipRoom) -> ChipRoom:
        layer, x = self.layer, self.layer.x
        if self.by_pixels:
            size = (tiles.samples, 1, tiles.blocks, x.blocks)
            held = (tiles.blocks, x.blocks, layer.padded, 1)
        else:
            size = (tiles.samples, tiles.rows or x.height, x.width, tiles.blocks)
            held = (layer.taps, tiles.blocks, layer.padded, 1)
        rows = max(strip.high - strip.low for strip in self._strips(tiles.rows)) if tiles.rows else 0
        self.arrivals = [Arrivals(self.memory_map, layer, found, tiles.samples, rows) for _ in range(tiles.inner)]
        found.apart()
        self.weights = [found.images(*held) for _ in range(tiles.outer)]
        self.results = [(found.images(*size, 2), found.images(*size)) for _ in range(max(tiles.outer, tiles.inner))]
        return found

    def _cost(self, tiles: TileSizes) -> int:
        """Words that are loaded, or cycles of products where these are more."""
        layer, groups, batch = self.layer, -(-self.units // tiles.blocks), self.memory_map.batch
        times = 1 if tiles.samples == batch and not tiles.rows else groups
        moved = self.memory_map.cores * (layer.weight_words + batch * (
            times * 2 * layer.blocks * layer.pixels + 3 * layer.x.blocks * layer.x.pixels
        ))
        blocks = layer.taps * layer.x.blocks * layer.blocks
        if layer.dense:
            cycles = block_cycles(blocks, min(tiles.samples, self.half), 2)
            return max(moved, cycles * -(-batch // min(tiles.samples, self.half)))
        rows = sum(
            block_cycles(blocks, piece.samples * piece.rows * -(-layer.x.width // layer.stride), 2)
            for strip in self._strips(tiles.rows)
            for piece in self._pieces(tiles.samples, strip.rows, 0)
        )
        return max(moved, rows * -(-batch // tiles.samples))

    def _count(self, tiles: TileSizes) -> int:
        if self.layer.dense:
            return 1
        count = sum(
            len(self._pieces(tiles.samples, strip.rows, rest))
            for strip in self._strips(tiles.rows)
            for rest in range(self.layer.stride)
        )
        return tiles.blocks * count * self.layer.stride

    def _strips(self, rows: int) -> list[Strip]:
        """Strips of the input, and the rows of the gradient that they take: whole windows of the pooling."""
        layer = self.layer
        if not rows:
            return [Strip(0, layer.x.height, 0, layer.height)]
        found, align = [], layer.pool.stride if layer.pool else 1
        for row in range(0, layer.x.height, rows):
            count = min(rows, layer.x.height - row)
            low = min(max(-(-(row + layer.padding - layer.rows + 1) // layer.stride), 0), layer.height - 1)
            high = max((row + count - 1 + layer.padding) // layer.stride + 1, low + 1)
            low, high = low // align * align, -(-high // align) * align
            found.append(Strip(row, count, low, min(high, layer.height)))
        return found

    def _pieces(self, samples: int, height: int, rest: int) -> list[Piece]:
        """Pieces of rows `rest`, `rest` + stride, ... of a strip of the input."""
        layer, x = self.layer, self.layer.x
        if layer.dense:
            return list(pieces(samples, 1, 1, self.half, f"layer {layer.name!r}"))
        height, width = -(-(height - rest) // layer.stride), -(-x.width // layer.stride)
        return list(pieces(samples, height, width, self.half, f"layer {layer.name!r}")) if height > 0 else []

    def emit(self):
        tiles, memory_map = self.tiles, self.memory_map
        strips = self._strips(tiles.rows)
        resident = tiles.samples == memory_map.batch and len(strips) == 1
        sums = self.arrivals[0].load(self.emitter, Span(0, memory_map.batch)) if resident else None
        for group, outer in self.emitter.spans(self.units, tiles.blocks, tiles.outer):
            held = self._load_weights(self.weights[outer], group)
            for samples, inner in self.emitter.spans(memory_map.batch, tiles.samples, tiles.inner):
                for strip in strips:
                    rows = range(strip.low, strip.high) if tiles.rows else None
                    seen = self.arrivals[inner].load(self.emitter, samples, rows) if sums is None else sums
                    self._strip(held, seen, group, samples, strip, max(outer, inner))

    def _strip(self, held: ImageRegion, seen: ImageRegion, group: Span, samples: Span, strip: Strip, way: int):
        """Make the gradient of a strip, with its mask, and store it."""
        memory_map, x = self.memory_map, self.layer.x
        made, mask = (self._cut(each, group, samples) for each in self.results[way])
        y, value = (self._outside(each[x], group, samples) for each in (memory_map.gradients, memory_map.values))
        if self.tiles.rows:
            made, mask = (replace(each, height=strip.rows) for each in (made, mask))
            y, value = (each.rowed(strip.row, strip.rows) for each in (y, value))
        if x.relu:
            self.emitter.copy(mask.operand(), value.operand())
        self._tile(held, seen, made, mask if x.relu else None, strip)
        self.emitter.copy(y.operand(), made.operand())

    def _load_weights(self, held: ImageRegion, group: Span) -> ImageRegion:
        source = weights(self.records, self.layer, OLD)
        if self.by_pixels:
            held, source = replace(held, samples=group.count), source.sampled(group)
        else:
            held = replace(held, height=group.count)
            source = source.moved(0, group, source.width)
        counts = {"n0": held.samples, "n1": held.height}
        self.emitter.copy(
            held.operand(s0=self._tap(held), **counts), source.operand(s0=source.width * self.layer.x.blocks, **counts)
        )
        return held

    def _tap(self, held: ImageRegion) -> int:
        """Words from one tap to the next on the chip."""
        return held.width * (self.layer.x.blocks if self.by_pixels else held.height)

    def _cut(self, region: ImageRegion, group: Span, samples: Span) -> ImageRegion:
        if self.by_pixels:
            return replace(cut(region, Span(0, self.layer.x.blocks), samples), width=group.count)
        return cut(region, group, samples)

    def _outside(self, region: ImageRegion, group: Span, samples: Span) -> ImageRegion:
        """A group of a region of server memory; a view of some pixels keeps the pitch of samples."""
        if not self.by_pixels:
            return outside(region, group, samples)
        return replace(region.sampled(samples).moved(0, group, 1), height=1, width=group.count, apart=region.pixels)

    def _tile(self, held: ImageRegion, seen: ImageRegion, made: ImageRegion, mask: ImageRegion | None, strip: Strip):
        layer, half = self.layer, 0
        if layer.dense:
            self._dense(held, seen, made, mask)
            return
        stride = layer.stride
        for first in range(stride):
            for second in range(stride):
                columns = -(-(made.width - second) // stride)
                if columns <= 0:
                    continue
                axes = [
                    self._axis(first, strip.high - strip.low, layer.rows, strip.row // stride - strip.low),
                    self._axis(second, layer.width, layer.columns),
                ]
                for piece in self._pieces(made.samples, made.height, first):
                    for block in range(made.blocks):
                        self._product(
                            held,
                            seen,
                            made.column(block),
                            mask and mask.column(block),
                            block,
                            piece,
                            (first, second),
                            columns,
                            axes,
                            half,
                        )
                        half ^= self.half

    def _axis(self, rest: int, limit: int, kernel: int, moved: int = 0) -> tuple[Axis, int, int]:
        """How inputs `rest`, `rest` + stride, ... see the gradient; the number of taps, and the tap seen first."""
        stride = self.layer.stride
        first = (rest + self.layer.padding) % stride
        count = len(range(first, kernel, stride))
        origin = (rest + self.layer.padding - first) // stride - (count - 1) + moved
        return Axis(1, origin, limit), count, first + stride * (count - 1)

    def _product(
        self,
        held: ImageRegion,
        seen: ImageRegion,
        made: ImageRegion,
        mask: ImageRegion | None,
        block: int,
        piece: Piece,
        rest: tuple[int, int],
        columns: int,
        axes: list,
        acc: int,
    ):
        layer, stride = self.layer, self.layer.stride
        (rows, n1, last1), (cells, n2, last2) = axes

        def some(region: ImageRegion):
            row = rest[0] + stride * piece.row
            return region.operand(
                offset=piece.sample * region.pixels + row * region.width + rest[1],
                n0=piece.samples,
                n1=piece.rows,
                pitch1=stride * region.width,
                n2=columns,
                pitch2=stride,
            )

        if not n1 * n2:
            self.emitter.copy(some(made))
            return
        tap = self._tap(held)
        blocks = held.operand(
            offset=block * held.width + (last1 * layer.columns + last2) * tap,
            n0=1,
            s0=16,
            n1=1,
            pitch1=-stride * layer.columns * tap,
            n2=1,
            pitch2=-stride * tap,
        )
        scales = self.memory_map.gradient_scales
        self.emitter.emit(
            TrainerOp.PRODUCT,
            {
                "a": windows_of(seen, piece, columns, (rows, cells)),
                "b": blocks,
                "y": some(made),
                "mask": some(mask) if mask else None,
            },
            acc=acc,
            ea=scales[layer.y],
            eb=self.records.weights.value,
            ey=scales[layer.x],
            n0=layer.blocks,
            n1=n1,
            n2=n2,
            a_s0=seen.block,
        )

    def _dense(self, held: ImageRegion, seen: ImageRegion, made: ImageRegion, mask: ImageRegion | None):
        """Products of a dense layer: one for each unit and block of channels."""
        layer, scales = self.layer, self.memory_map.gradient_scales
        count = made.width if self.by_pixels else made.blocks
        for unit, _ in self.emitter.spans(count, 1):
            for block in range(layer.x.blocks if self.by_pixels else 1):
                where = held.moved(block * held.width, unit, self._tap(held) if self.by_pixels else held.width)
                half = 0
                for piece in self._pieces(made.samples, 1, 0):
                    step = (block * made.block, unit, 1) if self.by_pixels else (0, unit, made.block)

                    def some(region: ImageRegion, step=step, piece=piece):
                        return region.moved(*step).operand(
                            offset=piece.sample * region.pixels, n0=piece.samples, n1=1, n2=1, blocks=1
                        )

                    self.emitter.emit(
                        TrainerOp.PRODUCT,
                        {
                            "a": seen.operand(offset=piece.sample, n0=piece.samples, blocks=1),
                            "b": where.operand(n0=1, s0=16, n1=1, n2=1),
                            "y": some(made),
                            "mask": some(mask) if mask else None,
                        },
                        acc=half,
                        ea=scales[layer.y],
                        eb=self.records.weights.value,
                        ey=scales[layer.x],
                        n0=layer.blocks,
                        n1=1,
                        n2=1,
                        a_s0=seen.block,
                    )
                    half ^= self.half
