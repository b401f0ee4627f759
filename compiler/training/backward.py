"""The backward program: gradients from the output to the first layer, and new parameters.

A layer sends the gradient of its input back before it changes its weights, as both read the old ones. Whatever makes
the gradient of a value that came out of a relu masks it.
"""

from concord.compiler.training.arrivals import pool_back
from concord.compiler.training.emitter import Emitter
from concord.compiler.training.forward import add_tiles
from concord.compiler.training.graph import BranchSum, Operation, Pool, PoolWindows, Product, Split, StepValue
from concord.compiler.training.inputs import InputGradients
from concord.compiler.training.memory_map import MemoryMap, add_gradient
from concord.compiler.training.pool_strips import PoolStrips
from concord.compiler.training.regions import ChipRoom, ImageRegion, cut, outside
from concord.compiler.training.tiles import TileSizes, choose
from concord.compiler.training.updates import Updates
from concord.spec.trainer.config import TrainerConfig


class Backward:
    """Emits the backward program.

    Args:
        memory_map: Where everything lies; gradients get regions as they come.
        config:     The core.
        output:     The value whose gradient the host gives.
    """

    def __init__(self, memory_map: MemoryMap, config: TrainerConfig, output: StepValue):
        self.memory_map, self.config, self.emitter = memory_map, config, Emitter(memory_map.mask)
        add_gradient(memory_map, output)

    def operation(self, operation: Operation):
        """Emit one operation; its successors are done."""
        match operation:
            case Product():
                if operation.x.wanted:
                    add_gradient(self.memory_map, operation.x)
                    self.emitter.part(operation.name, "gradient of inputs")
                    with self.emitter.repeated(e=self.memory_map.gradient_scales[operation.x]):
                        InputGradients(self.memory_map, self.config, self.emitter, operation).emit()
                Updates(self.memory_map, self.config, self.emitter, operation).emit()
            case Pool() if operation.x.wanted:
                self.emitter.part(operation.name, "gradient of inputs")
                self._pool(operation)
            case BranchSum():
                self.emitter.part(operation.name, "gradient of inputs")
                for value in operation.a, operation.b:
                    if value.wanted:
                        self._pass(operation.name, operation.y, value)
            case Split() if operation.x.wanted:
                self.emitter.part(operation.name, "sum of gradients")
                self._split(operation)

    def _alias(self, y: StepValue, x: StepValue):
        """Let the gradient of y be that of x."""
        self.memory_map.gradients[x] = self.memory_map.gradients[y]
        self.memory_map.gradient_scales[x] = self.memory_map.gradient_scales[y]

    def _pass(self, name: str, y: StepValue, x: StepValue):
        """Send the gradient of a sum to a term."""
        if not x.relu:
            self._alias(y, x)
            return
        add_gradient(self.memory_map, x, self.memory_map.gradient_scales[y])
        self._windows(name, y, x, PoolWindows(1, 1), None)

    def _pool(self, operation: Pool):
        x, y, windows = operation.x, operation.y, operation.windows
        if windows.size == 1:
            self._alias(y, x)  # a relu: whoever made it has masked it
            return
        chosen = self.memory_map.chosen.get(operation)
        if windows.passes:
            add_gradient(self.memory_map, x, self.memory_map.gradient_scales[y])
            self._windows(operation.name, y, x, windows, chosen)
            return
        add_gradient(self.memory_map, x)
        with self.emitter.repeated(e=self.memory_map.gradient_scales[x]):
            self._windows(operation.name, y, x, windows, chosen)

    def _windows(self, name: str, y: StepValue, x: StepValue, windows: PoolWindows, chosen: ImageRegion | None):
        """Send the gradient of y through windows to x, with the mask of x; windows of one pixel choose number 0."""
        memory_map, source, to = self.memory_map, self.memory_map.gradients[y], self.memory_map.gradients[x]

        def chip(tiles: TileSizes) -> tuple[int, list]:
            found = ChipRoom()
            seen, made = ((tiles.samples, each.height, each.width, tiles.blocks) for each in (source, to))
            ways = [
                (found.images(*made, 2), found.images(*seen, 2), found.images(*seen), found.images(*made))
                for _ in range(tiles.inner)
            ]
            return found.used, ways

        if chosen and windows.size > windows.stride and chip(TileSizes(1, 1, 1, 1))[0] > self.config.words:
            PoolStrips(memory_map, self.config, self.emitter, name, y, x, windows, chosen).emit()
            return
        tiles = choose(
            f"layer {name!r}, gradient of inputs,",
            self.config,
            (x.blocks, memory_map.batch),
            lambda each: chip(each)[0],
        )
        ways = chip(tiles)[1]
        for blocks, _ in self.emitter.spans(x.blocks, tiles.blocks):
            for samples, way in self.emitter.spans(memory_map.batch, tiles.samples, tiles.inner):
                made, seen, which, mask = (cut(each, blocks, samples) for each in ways[way])
                self.emitter.copy(seen.operand(), outside(source, blocks, samples).operand())
                if not windows.mean:
                    self.emitter.copy(which.operand(), outside(chosen, blocks, samples).operand() if chosen else None)
                if x.relu:
                    self.emitter.copy(mask.operand(), outside(memory_map.values[x], blocks, samples).operand())
                pool_back(
                    self.emitter,
                    windows,
                    made,
                    seen,
                    which,
                    mask if x.relu else None,
                    ex=memory_map.gradient_scales[y],
                    ey=memory_map.gradient_scales[x],
                )
                self.emitter.copy(outside(to, blocks, samples).operand(), made.operand())

    def _split(self, operation: Split):
        memory_map, x = self.memory_map, operation.x
        add_gradient(memory_map, x)
        regions = [memory_map.gradients[each] for each in (x, operation.a, operation.b)]
        scales = {
            name: memory_map.gradient_scales[each]
            for name, each in (("ey", x), ("ea", operation.a), ("eb", operation.b))
        }
        with self.emitter.repeated(e=scales["ey"]):
            what, mask = f"layer {operation.name!r}, sum of gradients,", memory_map.values[x] if x.relu else None
            add_tiles(what, self.emitter, memory_map, self.config, regions, mask, **scales)
