"""The forward program: each operation from server memory to server memory, in tiles."""

from concord.compiler.training.emitter import OLD, Emitter, MovingView, Span
from concord.compiler.training.graph import BranchSum, Operation, Pool, PoolWindows, Product, Split
from concord.compiler.training.memory_map import MemoryMap, biases, weights
from concord.compiler.training.regions import ChipRoom, ImageRegion
from concord.compiler.training.tiles import Axis, TileSizes, block_cycles, choose, part_of, pieces, windows_of
from concord.golden.lazy.tensor_layers import reciprocal
from concord.spec.trainer.config import TrainerConfig
from concord.spec.trainer.instructions import Space, TrainerOp


class Forward:
    """Emits the forward program.

    Args:
        places: Where everything lies.
        config: The core.
    """

    def __init__(self, places: MemoryMap, config: TrainerConfig):
        self.places, self.config, self.emitter = places, config, Emitter()

    def operation(self, number: int, operation: Operation):
        """Emit one operation."""
        match operation:
            case Product():
                self.emitter.part(operation.name, "forward")
                with self.emitter.repeated(e=self.places.scales[operation.y]):
                    _Products(self, operation).emit()
            case Pool():
                self.emitter.part(f"pool {number}", "forward")
                self._pool(operation)
            case BranchSum():
                self.emitter.part(f"add {number}", "forward")
                with self.emitter.repeated(e=self.places.scales[operation.y]):
                    self._add(operation)
            case Split():
                pass

    def _pool(self, operation: Pool):
        if not operation.windows.mean:
            self._pool_tiles(operation)
            return
        with self.emitter.repeated(e=self.places.scales[operation.y]):
            self._pool_tiles(operation)

    def _pool_tiles(self, operation: Pool):
        places, x, y = self.places, operation.x, operation.y
        chosen = places.chosen.get(operation)

        def chip(tiles: TileSizes) -> tuple[int, list]:
            found = ChipRoom()
            ways = [
                (
                    found.images(tiles.samples, x.height, x.width, tiles.blocks),
                    found.images(tiles.samples, y.height, y.width, tiles.blocks),
                    found.images(tiles.samples, y.height, y.width, tiles.blocks if chosen else 0),
                )
                for _ in range(tiles.inner)
            ]
            return found.used, ways

        tiles = choose(
            "pooling", self.config, (x.blocks, places.batch), lambda each: chip(each)[0], lambda each: 0, lambda each: 1
        )
        ways = chip(tiles)[1]
        for blocks, _ in self.emitter.spans(x.blocks, tiles.blocks):
            for samples, way in self.emitter.spans(places.batch, tiles.samples, tiles.inner):
                seen, made, which = (cut(each, blocks, samples) for each in ways[way])
                self.emitter.copy(seen.operand(), outside(places.values[x], blocks, samples).operand())
                pool(
                    self.emitter,
                    operation.windows,
                    made,
                    seen,
                    which if chosen else None,
                    ex=places.scales[x],
                    ey=places.scales[y],
                )
                self.emitter.copy(outside(places.values[y], blocks, samples).operand(), made.operand())
                if chosen:
                    self.emitter.copy(outside(chosen, blocks, samples).operand(), which.operand())

    def _add(self, operation: BranchSum):
        add_tiles(
            self.emitter,
            self.places,
            self.config,
            [self.places.values[each] for each in (operation.y, operation.a, operation.b)],
            None,
            relu=int(operation.relu),
            ey=self.places.scales[operation.y],
            ea=self.places.scales[operation.a],
            eb=self.places.scales[operation.b],
        )


def cut(region: ImageRegion, blocks: Span, samples: Span) -> ImageRegion:
    """A place on the chip, as far as a span fills it."""
    return ImageRegion(
        offset=region.offset,
        samples=samples.count,
        height=region.height,
        width=region.width,
        blocks=blocks.count,
        block=region.block,
        planes=region.planes,
        plane=region.plane,
    )


def outside(region: ImageRegion, blocks: Span, samples: Span) -> ImageRegion:
    """The same blocks and samples of a region of server memory."""
    return region.blocked(blocks).sampled(samples)


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


def add_tiles(
    emitter: Emitter,
    places: MemoryMap,
    config: TrainerConfig,
    regions: list[ImageRegion],
    mask: ImageRegion | None,
    **values: int,
):
    """Emit the sum of two tensors.

    Args:
        emitter: Takes the instructions.
        places:  Where everything lies.
        config:  The core.
        regions: Sum and terms in server memory.
        mask:    Of the sum, in server memory.
        values:  Numbers of the instruction.
    """
    y = regions[0]

    def chip(tiles: TileSizes) -> tuple[int, list]:
        found = ChipRoom()
        sizes = (tiles.samples, y.height, y.width, tiles.blocks)
        ways = [
            [found.images(*sizes, y.planes) for _ in regions] + [found.images(*sizes)] * bool(mask)
            for _ in range(tiles.inner)
        ]
        return found.used, ways

    tiles = choose(
        "a sum", config, (y.blocks, places.batch), lambda each: chip(each)[0], lambda each: 0, lambda each: 1
    )
    ways = chip(tiles)[1]
    for blocks, _ in emitter.spans(y.blocks, tiles.blocks):
        for samples, way in emitter.spans(places.batch, tiles.samples, tiles.inner):
            made, *seen = (cut(each, blocks, samples) for each in ways[way])
            for to, source in zip(seen, [*regions[1:], *([mask] if mask else [])], strict=True):
                emitter.copy(to.operand(), outside(source, blocks, samples).operand())
            operands = dict(zip(("y", "a", "b", "mask"), (made, *seen), strict=False))
            emitter.emit(TrainerOp.ADD, {name: each.operand() for name, each in operands.items()}, **values)
            emitter.copy(outside(y, blocks, samples).operand(), made.operand())


class _Products:
    """Emits the products of a layer: weights of some outputs stay while samples pass."""

    def __init__(self, forward: Forward, layer: Product):
        self.layer, self.places, self.emitter = layer, forward.places, forward.emitter
        self.records, self.scales = self.places.records[layer.name], forward.places.scales
        self.config, self.half = forward.config, forward.config.accumulator_rows // 2
        self.tiles = choose(
            f"layer {layer.name!r}, forward,",
            self.config,
            (layer.blocks, self.places.batch),
            lambda each: self._chip(each).used,
            self._cost,
            self._count,
        )
        self._chip(self.tiles)

    def _chip(self, tiles: TileSizes) -> ChipRoom:
        layer, x, y, found = self.layer, self.layer.x, self.layer.y, ChipRoom()
        self.bias = found.images(1, 1, layer.blocks, 1)
        self.weights = [found.images(layer.taps, x.blocks, 16 * tiles.blocks, 1) for _ in range(tiles.outer)]
        self.ways = []
        for _ in range(tiles.inner):
            raster = layer.patch and self.places.raster
            self.ways.append(
                {
                    "raster": found.images(tiles.samples, raster.height, raster.width, 1) if raster else None,
                    "x": found.images(tiles.samples, x.height, x.width, x.blocks),
                }
            )
        both = max(tiles.outer, tiles.inner)
        self.results = [
            found.images(tiles.samples, layer.height, layer.width, tiles.blocks, y.planes) for _ in range(both)
        ]
        if layer.pool:
            self.pooled = [
                [found.images(tiles.samples, y.height, y.width, tiles.blocks) for _ in range(2)] for _ in range(both)
            ]
        return found

    def _cost(self, tiles: TileSizes) -> int:
        """Words that are loaded, or cycles of products where these are more."""
        layer, groups, batch = self.layer, -(-self.layer.blocks // tiles.blocks), self.places.batch
        times = 1 if tiles.samples == batch else groups
        loaded = layer.weight_words + times * layer.x.blocks * layer.x.pixels * batch
        rows = [piece.samples * piece.rows * layer.width for piece in self._pieces(tiles.samples)]
        cycles = sum(block_cycles(layer.taps * layer.x.blocks * layer.blocks, each, 1) for each in rows)
        return max(loaded, cycles * -(-batch // tiles.samples))

    def _count(self, tiles: TileSizes) -> int:
        return len(self._pieces(tiles.samples)) * tiles.blocks

    def _pieces(self, samples: int) -> list:
        layer = self.layer
        return list(pieces(samples, layer.height, layer.width, self.half, f"layer {layer.name!r}"))

    def emit(self):
        layer, tiles, places = self.layer, self.tiles, self.places
        everything = Span(0, places.batch)
        self.emitter.copy(self.bias.operand(), biases(self.records, OLD).operand())
        resident = tiles.samples == places.batch
        if resident:
            self._load(self.ways[0], everything)
        for group, outer in self.emitter.spans(layer.blocks, tiles.blocks, tiles.outer):
            held = self.weights[outer]
            self._load_weights(held, group)
            for samples, inner in self.emitter.spans(places.batch, tiles.samples, tiles.inner):
                if not resident:
                    self._load(self.ways[inner], samples)
                self._tile(held, self.ways[inner]["x"], max(outer, inner), group, samples)

    def _load_weights(self, held: ImageRegion, group: Span):
        """Load the rows of some outputs, of all taps and blocks of channels."""
        source = weights(self.records, self.layer, OLD).moved(0, group, 16)
        rows = 16 * group.count
        self.emitter.copy(held.operand(n2=rows), source.operand(n2=rows))

    def _load(self, way: dict, samples: Span):
        """Load inputs, or make them of rows of pixels and keep them for the way back."""
        layer, x = self.layer, cut(way["x"], Span(0, way["x"].blocks), samples)
        stored = self.places.values[layer.x].sampled(samples).operand()
        if not layer.patch:
            self.emitter.copy(x.operand(), stored)
            return
        raster, patch = way["raster"], layer.patch
        lines = cut(raster, Span(0, 1), samples)
        self.emitter.copy(lines.operand(), self.places.raster.sampled(samples).operand())
        seen = lines.operand(
            n1=x.height,
            step1=patch.stride,
            origin1=-patch.padding,
            limit1=layer.source.height,
            n2=x.width,
            step2=patch.stride,
            origin2=-patch.padding,
            limit2=layer.source.width,
        )
        self.emitter.copy(x.operand(), seen, patches=1, size=patch.size, channels=patch.inputs)
        self.emitter.copy(stored, x.operand())

    def _tile(self, held: ImageRegion, x: ImageRegion, way: int, group: Span, samples: Span):
        layer, places, emitter = self.layer, self.places, self.emitter
        sums = cut(self.results[way], group, samples)
        half = 0
        for piece in self._pieces(samples.count):
            for block in range(group.count):
                self._product(held, x, sums, block, group, piece, half)
                half ^= self.half
        y = places.values[layer.y].blocked(group).sampled(samples)
        if not layer.pool:
            emitter.copy(y.operand(), sums.operand())
            return
        pooled, chosen = (cut(each, group, samples) for each in self.pooled[way])
        pool(emitter, layer.pool, pooled, sums, chosen, ex=self.scales[layer.y], ey=self.scales[layer.y])
        emitter.copy(y.operand(), pooled.operand())
        emitter.copy(places.chosen[layer].blocked(group).sampled(samples).operand(), chosen.operand())

    def _product(self, held: ImageRegion, x: ImageRegion, sums: ImageRegion, block: int, group: Span, piece, acc: int):
        layer = self.layer
        if layer.dense:
            seen = x.operand(n0=piece.samples, n1=1, n2=1, offset=piece.sample * x.pixels, blocks=1)
        else:
            axes = [Axis(layer.stride, -layer.padding, layer.padding and size) for size in (x.height, x.width)]
            seen = windows_of(x, piece, layer.width, (axes[0], axes[1]))
        row = held.height * held.width
        blocks = held.operand(
            offset=16 * block, n0=1, s0=held.width, n1=1, pitch1=layer.columns * row, n2=1, pitch2=row
        )
        bias = self.bias.moved(block, group, 1)
        bias = bias.operand(n2=1)
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


def exponent_words(places: MemoryMap, space: Space) -> MovingView:
    """All exponents, in the core or in server memory."""
    return ImageRegion(space=space, offset=0, samples=1, width=places.exponents).operand()
