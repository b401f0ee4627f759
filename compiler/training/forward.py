"""The forward program: each operation from server memory to server memory, in tiles."""

from dataclasses import replace

from concord.compiler.training.arrivals import pool
from concord.compiler.training.emitter import Emitter, MovingView
from concord.compiler.training.graph import BranchSum, Operation, Pool, Product, Split
from concord.compiler.training.long_products import LongProducts
from concord.compiler.training.memory_map import MemoryMap
from concord.compiler.training.products import LayerProducts
from concord.compiler.training.regions import ChipRoom, ImageRegion, cut, outside
from concord.compiler.training.tiles import MOST_TAPS, TileSizes, choose, heights
from concord.spec.trainer.config import LANES, TrainerConfig
from concord.spec.trainer.instructions import Space, TrainerOp


class Forward:
    """Emits the forward program.

    Args:
        memory_map: Where everything lies.
        config:     The core.
    """

    def __init__(self, memory_map: MemoryMap, config: TrainerConfig):
        self.memory_map, self.config, self.emitter = memory_map, config, Emitter(memory_map.mask)

    def operation(self, operation: Operation):
        """Emit one operation."""
        match operation:
            case Product():
                self.emitter.part(operation.name, "forward")
                with self.emitter.repeated(e=self.memory_map.scales[operation.y]):
                    self._product(operation)
            case Pool():
                self.emitter.part(operation.name, "forward")
                self._pool(operation)
            case BranchSum():
                self.emitter.part(operation.name, "forward")
                with self.emitter.repeated(e=self.memory_map.scales[operation.y]):
                    self._add(operation)
            case Split():
                pass

    def _product(self, operation: Product):
        held = operation.weight_words // operation.blocks + operation.x.blocks * operation.x.pixels
        long = operation.dense and (held + LANES * operation.blocks > self.config.words or operation.rows > MOST_TAPS)
        kind = LongProducts if long else LayerProducts
        kind(self.memory_map, self.config, self.emitter, operation).emit()

    def _pool(self, operation: Pool):
        if not operation.windows.mean:
            self._pool_tiles(operation)
            return
        with self.emitter.repeated(e=self.memory_map.scales[operation.y]):
            self._pool_tiles(operation)

    def _pool_tiles(self, operation: Pool):
        memory_map, x, y = self.memory_map, operation.x, operation.y
        chosen = memory_map.chosen.get(operation)

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
            f"layer {operation.name!r}, forward,", self.config, (x.blocks, memory_map.batch), lambda each: chip(each)[0]
        )
        ways = chip(tiles)[1]
        for blocks, _ in self.emitter.spans(x.blocks, tiles.blocks):
            for samples, way in self.emitter.spans(memory_map.batch, tiles.samples, tiles.inner):
                seen, made, which = (cut(each, blocks, samples) for each in ways[way])
                self.emitter.copy(seen.operand(), outside(memory_map.values[x], blocks, samples).operand())
                pool(
                    self.emitter,
                    operation.windows,
                    made,
                    seen,
                    which if chosen else None,
                    ex=memory_map.scales[x],
                    ey=memory_map.scales[y],
                )
                self.emitter.copy(outside(memory_map.values[y], blocks, samples).operand(), made.operand())
                if chosen:
                    self.emitter.copy(outside(chosen, blocks, samples).operand(), which.operand())

    def _add(self, operation: BranchSum):
        add_tiles(
            f"layer {operation.name!r}, forward,",
            self.emitter,
            self.memory_map,
            self.config,
            [self.memory_map.values[each] for each in (operation.y, operation.a, operation.b)],
            None,
            relu=int(operation.relu),
            ey=self.memory_map.scales[operation.y],
            ea=self.memory_map.scales[operation.a],
            eb=self.memory_map.scales[operation.b],
        )


def add_tiles(
    what: str,
    emitter: Emitter,
    memory_map: MemoryMap,
    config: TrainerConfig,
    regions: list[ImageRegion],
    mask: ImageRegion | None,
    **values: int,
):
    """Emit the sum of two tensors.

    Args:
        what:       Names the work in an error.
        emitter:    Takes the instructions.
        memory_map: Where everything lies.
        config:     The core.
        regions:    Sum and terms in server memory.
        mask:       Mask of the sum, in server memory.
        values:     Numbers of the instruction.
    """
    y, mask_of = regions[0], [mask] if mask else []

    def chip(tiles: TileSizes) -> tuple[int, list]:
        found = ChipRoom()
        sizes = (tiles.samples, tiles.rows or y.height, y.width, tiles.blocks)
        ways = [
            [*(found.images(*sizes, y.planes) for _ in regions), *(found.images(*sizes) for _ in mask_of)]
            for _ in range(tiles.inner)
        ]
        return found.used, ways

    tiles = choose(
        what,
        config,
        (y.blocks, memory_map.batch),
        lambda each: chip(each)[0],
        heights=heights(y.height, 1),
    )
    ways, size = chip(tiles)[1], tiles.rows or y.height
    for blocks, _ in emitter.spans(y.blocks, tiles.blocks):
        for samples, way in emitter.spans(memory_map.batch, tiles.samples, tiles.inner):
            for row in range(0, y.height, size):
                rows = min(size, y.height - row)
                made, *seen = (replace(cut(each, blocks, samples), height=rows) for each in ways[way])
                to, *sources = (outside(each, blocks, samples).rowed(row, rows) for each in (*regions, *mask_of))
                for term, source in zip(seen, sources, strict=True):
                    emitter.copy(term.operand(), source.operand())
                operands = dict(zip(("y", "a", "b", "mask"), (made, *seen), strict=False))
                emitter.emit(TrainerOp.ADD, {name: each.operand() for name, each in operands.items()}, **values)
                emitter.copy(to.operand(), made.operand())


def exponent_words(memory_map: MemoryMap, space: Space) -> MovingView:
    """All exponents, in the core or in server memory."""
    return ImageRegion(space=space, offset=0, samples=1, width=memory_map.exponents).operand()
