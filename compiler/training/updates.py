"""New weights and biases of a layer: exact gradients in the accumulators, then momentum and lazy update.

Where the accumulators hold the gradients of all weights, a repeated pass is an update alone. Else the weights go in
groups, and a repeated pass multiplies again. The plain sums of the gradient, which are those of the bias, stay beside
the first rows, whatever is multiplied.
"""

from dataclasses import dataclass, replace
from itertools import product
from math import prod

from concord.compiler.training.arrivals import Arrivals
from concord.compiler.training.emitter import NEW, OLD, Emitter, MovingView, Span
from concord.compiler.training.graph import Product
from concord.compiler.training.memory_map import MemoryMap, biases, weights
from concord.compiler.training.regions import ChipRoom, ImageRegion, cut, rounded
from concord.compiler.training.tiles import (
    MOST_PRODUCTS,
    MOST_TAPS,
    Strip,
    TileSizes,
    block_cycles,
    choose,
    heights,
    window_strips,
)
from concord.golden.lazy.tensor_layers import check_terms
from concord.spec.trainer.config import LANES, PARAMETER_PLANES, SUM_PLANES, TrainerConfig
from concord.spec.trainer.instructions import MeasureKind, Space, TrainerOp
from concord.spec.trainer.views import TrainerView


@dataclass(frozen=True, slots=True)
class Groups:
    """How the gradients of weights are cut: all those of some blocks of channels and some taps at a time.

    Attributes:
        blocks:   Blocks of channels.
        taps:     Rows of a kernel, or pixels of a dense layer.
        ways:     Number of places that groups take in turn.
        resident: Whether all inputs and gradients stay on the chip.
        parted:   Whether an update takes some outputs of one tap at a time.
    """

    blocks: int
    taps: int
    ways: int = 1
    resident: bool = False
    parted: bool = False


class Updates:
    """Emits the update of a layer's parameters.

    Args:
        places:  Where everything lies.
        config:  The core.
        emitter: Takes the instructions.
        layer:   The layer.

    Raises:
        ValueError: the sums may be too large, or the core is too small.
    """

    def __init__(self, places: MemoryMap, config: TrainerConfig, emitter: Emitter, layer: Product):
        self.places, self.config, self.emitter, self.layer = places, config, emitter, layer
        self.records = places.records[layer.name]
        self.what = f"layer {layer.name!r}, update,"
        check_terms(places.batch * layer.pixels, f"the gradient of layer {layer.name!r}")
        #: Taps of one unit, and number of units: a row of a kernel, or a pixel.
        self.unit, self.units = (1, layer.taps) if layer.dense else (layer.columns, layer.rows)
        self.least = self.unit * layer.outputs
        self.heights = [] if layer.dense else heights(layer.height, layer.pool.stride if layer.pool else 1)
        if self.least > config.accumulator_rows:
            raise ValueError(
                f"{self.what} needs {self.least} rows of the accumulators, and the core has "
                f"{config.accumulator_rows}: give it more accumulator_rows, or the layer fewer outputs"
            )
        self.held = self.least * self.units * layer.x.blocks <= config.accumulator_rows and self.units <= MOST_TAPS

    def emit(self):
        emitter, layer = self.emitter, self.layer
        emitter.part(layer.name, "update")
        if rest := -layer.outputs % LANES:  # lanes of the bias behind the last output take zeros
            emitter.copy(_rows(layer.outputs, rest))
        numbers = self.records.weights
        every = Span(0, layer.x.blocks)
        groups = self._groups()
        self._plan(groups)
        if self.held:
            self._products(groups, every, Span(0, self.units), 0)
        elif groups.resident:
            self._load(0, Span(0, self.places.batch), self._strips(0)[0], every)
        with emitter.repeated(e=numbers.momentum, kind=MeasureKind.UPDATE, ew=numbers.value, eg=numbers.gradient):
            if self.held:
                self._update(every, Span(0, self.units), 0, 0)
            else:
                self._grouped(groups)
        self._bias()

    def _grouped(self, groups: Groups):
        for taps in self._tap_spans(groups):
            for blocks, way in self.emitter.spans(self.layer.x.blocks, groups.blocks, groups.ways):
                acc = way * (self.config.accumulator_rows // 2)
                self._products(groups, blocks, taps, acc)
                self._update(blocks, taps, acc, way)

    def _tap_spans(self, groups: Groups):
        """Groups of taps: in a loop of the machine for pixels, one after the other for rows of a kernel."""
        if self.layer.dense:
            return (span for span, _ in self.emitter.spans(self.units, groups.taps))
        return (Span(start, min(groups.taps, self.units - start)) for start in range(0, self.units, groups.taps))

    def _groups(self) -> Groups:
        """Groups that fit with the least traffic: with all tensors on the chip, or else as few as possible."""
        channels, found = self.layer.x.blocks, {}
        if self.held:
            whole = Groups(channels, self.units)
            return whole if self._room(whole) <= self.config.words else replace(whole, parted=True)
        for ways, resident, parted in product((2, 1), (True, False), (False, True)):
            most = self.config.accumulator_rows // ways // self.least
            for taps in range(min(most, self.units, MOST_TAPS), 0, -1):
                for blocks in range(min(most // taps, channels), 0, -1):
                    groups = Groups(blocks, taps, ways, resident, parted)
                    if self._room(groups) <= self.config.words:
                        count = -(-self.units // taps) * -(-channels // blocks)
                        found[groups] = (not resident, 0 if resident else count, parted, -ways, count)
        return min(found, key=lambda groups: found[groups]) if found else Groups(1, 1, parted=True)

    def _room(self, groups: Groups) -> int:
        """Words on the chip that groups need at least."""
        if groups.resident:
            return self._chip(TileSizes(1, self.places.batch, 1, 1), groups)
        return min(self._chip(TileSizes(1, 1, 1, 1, rows), groups) for rows in (0, *self.heights[-1:]))

    def _plan(self, groups: Groups):
        """Find the tiles of samples that fit beside what a group needs."""
        batch, layer = self.places.batch, self.layer
        self.tiles = TileSizes(1, batch, 1, 1)
        if not groups.resident:
            blocks = layer.x.blocks * layer.taps
            self.tiles = choose(
                self.what,
                self.config,
                (1, batch),
                lambda each: self._chip(each, groups),
                lambda each: (
                    -(-batch // each.samples)
                    * block_cycles(blocks * -(-each.samples * layer.pixels // LANES), layer.outputs, 2)
                ),
                lambda each: MOST_PRODUCTS,
                self.heights,
            )
        self._chip(self.tiles, groups)

    def _chip(self, tiles: TileSizes, groups: Groups) -> int:
        layer, x, chip = self.layer, self.layer.x, ChipRoom()
        self.arrivals, self.inputs = [], []
        height = max(strip.high - strip.low for strip in self._strips(tiles.rows))
        for _ in range(tiles.inner):
            self.arrivals.append(Arrivals(self.places, layer, chip, tiles.samples, tiles.rows))
            blocks = x.blocks if groups.resident else groups.blocks
            self.inputs.append(chip.images(tiles.samples, height, x.width, blocks))
        # Updates begin when products are done, so that both may lie at the same place; but not with what stays.
        room = ChipRoom(0 if self.held else chip.used)
        self.rows = groups.blocks * groups.taps * self.least
        if groups.parted:
            most = (self.config.words - room.used) // (2 * PARAMETER_PLANES * groups.ways) - 2 * LANES
            self.rows = max(min(most, layer.outputs), LANES)
        self.records_on_chip = [
            [room.words(PARAMETER_PLANES * self.rows) for _ in range(2)] for _ in range(groups.ways)
        ]
        self.bias_on_chip = [0, rounded(PARAMETER_PLANES * layer.blocks)]
        return max(chip.used, room.used, 2 * self.bias_on_chip[1])

    def _strips(self, rows: int) -> list[Strip]:
        """Strips of the gradient, and the rows of inputs that they take."""
        layer = self.layer
        if layer.dense:
            return [Strip(0, 1, 0, layer.x.height)]
        return window_strips(layer.height, rows, layer.x.height, layer.rows, layer.stride, layer.padding)

    def _load(self, way: int, samples: Span, strip: Strip, blocks: Span) -> tuple[ImageRegion, ImageRegion]:
        """Emit loads: the gradient, and some blocks of inputs, on the chip."""
        x = replace(cut(self.inputs[way], blocks, samples), height=strip.high - strip.low)
        source = self.places.values[self.layer.x].sampled(samples).rowed(strip.low, x.height).blocked(blocks)
        self.emitter.copy(x.operand(), source.operand())
        rows = range(strip.row, strip.row + strip.rows) if self.tiles.rows else None
        return self.arrivals[way].load(self.emitter, samples, rows), x

    def _products(self, groups: Groups, blocks: Span, taps: Span, acc: int):
        """Multiply gradients by inputs, sample after sample."""
        batch, size = self.places.batch, self.tiles.samples
        if groups.resident:
            everything = Span(0, batch)
            x = cut(self.inputs[0], Span(0, self.layer.x.blocks), everything).blocked(blocks)
            sums = cut(self.arrivals[0].sums, Span(0, self.layer.blocks), everything)
            self._product(sums, x, taps, acc, 0, self._strips(0)[0])
            return
        strips = self._strips(self.tiles.rows)
        for strip in strips:
            loaded = self._load(0, Span(0, size), strip, blocks)
            self._product(*loaded, taps, acc, int(strip.row > 0), strip)
        for samples, way in self.emitter.spans(batch, size, self.tiles.inner, begin=size):
            for strip in strips:
                loaded = self._load(self.tiles.inner - 1 - way, samples, strip, blocks)
                self._product(*loaded, taps, acc, 1, strip)

    def _product(self, sums: ImageRegion, x: ImageRegion, taps: Span, acc: int, keep: int, strip: Strip):
        layer, records, places = self.layer, self.records, self.places
        if layer.dense:
            seen = x.moved(0, taps, 1).operand(n1=1, n2=1, blocks=1)
            n1, n2 = 1, taps.count
        else:
            limits = [layer.padding and size for size in (x.height, x.width)]
            seen = x.operand(
                n1=strip.rows,
                step1=layer.stride,
                origin1=strip.row * layer.stride + taps.start - layer.padding - strip.low,
                limit1=limits[0],
                n2=layer.width,
                step2=layer.stride,
                origin2=-layer.padding,
                limit2=limits[1],
                blocks=1,
            )
            n1, n2 = taps.count, layer.columns
        self.emitter.emit(
            TrainerOp.PRODUCT,
            {"a": sums.operand(), "b": seen},
            mode=1,
            sum=1,
            keep=keep,
            acc=acc,
            ea=places.gradient_scales[layer.y],
            eb=places.scales[layer.x],
            ey=records.weights.gradient,
            ebias=records.biases.gradient,
            outputs=layer.outputs,
            n0=x.blocks,
            n1=n1,
            n2=n2,
            a_s0=x.block,
        )

    def _update(self, blocks: Span, taps: Span, acc: int, way: int):
        """Load old weights, update them, and store new ones: all at once, or some outputs of one tap at a time."""
        outputs, count = self.layer.outputs, taps.count * self.unit
        if blocks.count * count * outputs <= self.rows:
            self._some(blocks, taps, (0, 0, 0), (blocks.count, count, outputs), acc, way)
            return
        for block, tap, first in product(range(blocks.count), range(count), range(0, outputs, self.rows)):
            counts = (1, 1, min(self.rows, outputs - first))
            self._some(blocks, taps, (block, tap, first), counts, acc + (block * count + tap) * outputs + first, way)

    def _some(
        self, blocks: Span, taps: Span, first: tuple[int, int, int], counts: tuple[int, int, int], acc: int, way: int
    ):
        """Update so many blocks of channels, taps and outputs, from the first of each on."""
        chip = [
            ImageRegion(offset=place, samples=1, width=prod(counts), planes=PARAMETER_PLANES, plane=prod(counts))
            for place in self.records_on_chip[way]
        ]
        outer = []
        for base in (OLD, NEW):
            region = weights(self.records, self.layer, base, PARAMETER_PLANES)
            moved = first[0] * region.width + first[1] * region.pixels + first[2]
            region = region.moved(moved, blocks, region.width).moved(0, taps, self.unit * region.pixels)
            outer.append(
                region.operand(n0=counts[0], s0=region.width, n1=counts[1], pitch1=region.pixels, n2=counts[2])
            )
        self._one([each.operand() for each in chip], outer, acc, 0)

    def _one(self, chip: list[MovingView], outer: list[MovingView], acc: int, bias: int):
        emitter, numbers = self.emitter, self.records.biases if bias else self.records.weights
        emitter.copy(chip[0], outer[0])
        emitter.emit(
            TrainerOp.UPDATE,
            {"old": chip[0], "new": chip[1]},
            acc=acc,
            bias=bias,
            ew=numbers.value,
            ev=numbers.momentum,
            eg=numbers.gradient,
        )
        emitter.copy(outer[1], chip[1])

    def _bias(self):
        numbers = self.records.biases
        outer = [biases(self.records, base, PARAMETER_PLANES).operand() for base in (OLD, NEW)]
        region = ImageRegion(
            offset=0, samples=1, width=self.layer.blocks, planes=PARAMETER_PLANES, plane=self.layer.blocks
        )
        chip = [replace(region, offset=place).operand() for place in self.bias_on_chip]
        with self.emitter.repeated(e=numbers.momentum, kind=MeasureKind.UPDATE, ew=numbers.value, eg=numbers.gradient):
            self._one(chip, outer, 0, 1)


def _rows(first: int, count: int) -> MovingView:
    """Rows of the accumulators, with the plain lane."""
    return MovingView(
        TrainerView(space=Space.ACCUMULATORS, planes=SUM_PLANES, offset=first, n2=count, pitch2=1, blocks=2)
    )
