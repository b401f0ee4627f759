"""New weights and biases of a layer: exact gradients in the accumulators, then momentum and lazy update.

Where the accumulators hold the gradients of all weights, a repeated pass is an update alone. Else the weights go in
groups, and a repeated pass multiplies again. The plain sums of the gradient, which are those of the bias, stay beside
the first rows, whatever is multiplied.

Of several cores, each makes the gradients of some weights from all samples. Or each makes those of all weights from its
samples, they add them up, and each updates some rows.
"""

from dataclasses import dataclass, replace
from itertools import product

from concord.compiler.training.arrivals import Arrivals
from concord.compiler.training.emitter import Emitter, MovingView, Span
from concord.compiler.training.graph import Product
from concord.compiler.training.memory_map import MemoryMap
from concord.compiler.training.parameter_rows import ParameterRows, accumulators
from concord.compiler.training.regions import ChipRoom, ImageRegion, cut, rounded
from concord.compiler.training.shares import SUM_WORDS, own_weights, share
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
from concord.spec.trainer.instructions import Space, TrainerOp
from concord.spec.trainer.views import TrainerView

PART_ROWS = 128  #: Rows from which on an update is worth an instruction of its own.


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
        self.records, self.parameters = places.records[layer.name], ParameterRows(places, emitter, layer)
        self.what = f"layer {layer.name!r}, update,"
        check_terms(places.whole * layer.pixels, f"the gradient of layer {layer.name!r}")
        own = own_weights(layer, places.whole, places.core, places.cores)
        self.added = own is None  # whether each core has the gradients of all weights, of its samples
        if own:
            self.places = places.together()
        else:
            self.exchange = places.exchange_place(config.accumulator_rows)
        #: Blocks of channels, and units: rows of a kernel, or pixels. A unit has so many taps.
        self.channels, self.units = own or (Span(0, layer.x.blocks), Span(0, layer.taps if layer.dense else layer.rows))
        self.unit = 1 if layer.dense else layer.columns
        self.least = self.unit * layer.outputs
        self.heights = [] if layer.dense else heights(layer.height, layer.pool.stride if layer.pool else 1)
        if self.least > config.accumulator_rows:
            raise ValueError(
                f"{self.what} needs {self.least} rows of the accumulators, and the core has "
                f"{config.accumulator_rows}: give it more accumulator_rows, or the layer fewer outputs"
            )
        units = self.units.count
        self.held = self.least * units * self.channels.count <= config.accumulator_rows and units <= MOST_TAPS

    def emit(self):
        emitter, layer = self.emitter, self.layer
        emitter.part(layer.name, "update")
        if rest := -layer.outputs % LANES:  # lanes of the bias behind the last output take zeros
            emitter.copy(accumulators(layer.outputs, rest))
        if self.places.cores > 1 and not self.added:  # the samples of others have gradients
            emitter.emit(TrainerOp.BARRIER, cores=self.places.mask)
        groups = self._groups()
        self._plan(groups)
        if self.held:
            self._sums(groups, self.channels, self.units, 0)
        elif groups.resident:
            self.arrivals[0].load(emitter, Span(0, self.places.batch))
            if not self._passing(groups):
                self._inputs(0, Span(0, self.places.batch), self._strips(0)[0], self.channels)
        if self.held and not self.added and not groups.parted:
            taps = self._taps(self.units)
            self.parameters.kept(self.channels, taps, self._held_parts(groups), self.records_on_chip[0])
        else:
            with self.parameters.repeated(self.records.weights):
                if self.held:
                    self._update(self.channels, self.units, 0, 0)
                else:
                    self._grouped(groups)
        self.parameters.bias(self.bias_on_chip)

    def _grouped(self, groups: Groups):
        for taps in self._tap_spans(groups):
            for blocks, way in self.emitter.spans(*_ends(self.channels, groups.blocks, groups.ways)):
                acc = way * (self.config.accumulator_rows // 2)
                self._sums(groups, blocks, taps, acc, way)
                self._update(blocks, taps, acc, way)

    def _passing(self, groups: Groups) -> bool:
        """Whether gradients stay on the chip, and each block of inputs comes with the only group that needs it."""
        return groups.resident and groups.taps >= self.units.count and groups.blocks * groups.ways < self.channels.count

    def _held_parts(self, groups: Groups) -> list[tuple[Span, int]]:
        """Blocks whose rows an update takes at a time, while products of the next ones go on, and their first row."""
        count, start = self.channels.count, self.channels.start
        rows = self.least * self.units.count
        size = count if self.added or groups.parted else max(-(-count // 2), -(-PART_ROWS // rows))
        return [(Span(start + k, min(size, count - k)), k * rows) for k in range(0, count, size)]

    def _tap_spans(self, groups: Groups):
        """Groups of taps: in a loop of the machine for pixels, one after the other for rows of a kernel."""
        if self.layer.dense:
            return (span for span, _ in self.emitter.spans(*_ends(self.units, groups.taps)))
        stop = self.units.start + self.units.count
        return (Span(k, min(groups.taps, stop - k)) for k in range(self.units.start, stop, groups.taps))

    def _groups(self) -> Groups:
        """Groups that fit with the least traffic: with all tensors on the chip, or else as few as possible."""
        channels, units, found = self.channels.count, self.units.count, {}
        if self.held:
            whole = Groups(channels, units)
            return whole if self._room(whole) <= self.config.words else replace(whole, parted=True)
        for ways, resident, parted in product((2, 1), (True, False), (False, True)):
            most = self.config.accumulator_rows // ways // self.least
            for taps in range(min(most, units, MOST_TAPS), 0, -1):
                for blocks in range(min(most // taps, channels), 0, -1):
                    groups = Groups(blocks, taps, ways, resident, parted)
                    if self._room(groups) <= self.config.words:
                        count = -(-units // taps) * -(-channels // blocks)
                        clash = not self.apart
                        found[groups] = (not resident, 0 if resident else count, parted, -ways, clash, count)
        return min(found, key=lambda groups: found[groups]) if found else Groups(1, 1, parted=True)

    def _room(self, groups: Groups) -> int:
        """Words on the chip that groups need at least; groups of several cores are those of the first one."""
        if groups.resident:
            most = share(self.places.whole, 0, self.places.cores).count if self.added else self.places.whole
            return self._chip(TileSizes(1, most, 1, 1), groups)
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
        """Find places: what is read in the same cycles in different memories, and updates beside products, if it fits.

        Returns: the number of words that are needed, of the closest places if others do not fit.
        """
        for apart, behind in (True, True), (False, True), (False, not self.held):
            self.apart, memory = apart, self.config.memory if apart else 0
            used = self._places(tiles, groups, ChipRoom(memory=memory), behind)
            if used <= self.config.words:
                break
        return used

    def _places(self, tiles: TileSizes, groups: Groups, chip: ChipRoom, behind: bool) -> int:
        layer, x = self.layer, self.layer.x
        self.arrivals, self.inputs = [], []
        height = max(strip.high - strip.low for strip in self._strips(tiles.rows))
        for _ in range(tiles.inner):
            self.arrivals.append(Arrivals(self.places, layer, chip, tiles.samples, tiles.rows))
        chip.apart()
        for _ in range(tiles.inner):
            blocks = self.channels.count if groups.resident and not self._passing(groups) else groups.blocks
            self.inputs.append(chip.images(tiles.samples, height, x.width, blocks))
        if self._passing(groups):
            self.inputs += [chip.images(tiles.samples, height, x.width, groups.blocks) for _ in range(1, groups.ways)]
        # If updates begin when all products are done, both may lie at the same place.
        room = ChipRoom(chip.used, chip.memory) if behind else ChipRoom()
        self.rows = groups.blocks * groups.taps * self.least
        if groups.parted:
            most = (self.config.words - room.used) // (2 * PARAMETER_PLANES * groups.ways) - 2 * LANES
            self.rows = max(min(most, layer.outputs), LANES)
        old = [room.words(PARAMETER_PLANES * self.rows) for _ in range(groups.ways)]
        room.apart()
        self.records_on_chip = [[place, room.words(PARAMETER_PLANES * self.rows)] for place in old]
        size, used = rounded(PARAMETER_PLANES * layer.blocks), max(chip.used, room.used)
        # Behind all else, if there is room: then it does not wait until new weights are stored.
        place = used if used + 2 * size <= self.config.words else 0
        self.bias_on_chip = [place, place + size]
        return max(used, 2 * size)

    def _strips(self, rows: int) -> list[Strip]:
        """Strips of the gradient, and the rows of inputs that they take."""
        layer = self.layer
        if layer.dense:
            return [Strip(0, 1, 0, layer.x.height)]
        return window_strips(layer.height, rows, layer.x.height, layer.rows, layer.stride, layer.padding)

    def _load(self, way: int, samples: Span, strip: Strip, blocks: Span) -> tuple[ImageRegion, ImageRegion]:
        """Emit loads: the gradient, and some blocks of inputs, on the chip."""
        x = self._inputs(way, samples, strip, blocks)
        rows = range(strip.row, strip.row + strip.rows) if self.tiles.rows else None
        return self.arrivals[way].load(self.emitter, samples, rows), x

    def _inputs(self, way: int, samples: Span, strip: Strip, blocks: Span) -> ImageRegion:
        """Emit the load of some blocks of inputs."""
        x = replace(cut(self.inputs[way], blocks, samples), height=strip.high - strip.low)
        source = self.places.values[self.layer.x].sampled(samples).rowed(strip.low, x.height).blocked(blocks)
        self.emitter.copy(x.operand(), source.operand())
        return x

    def _sums(self, groups: Groups, blocks: Span, taps: Span, acc: int, way: int = 0):
        """Emit the exact gradients of some weights in the accumulators."""
        self._products(groups, blocks, taps, acc, way)
        if not self.added:
            return
        most, rows = self.config.accumulator_rows, blocks.count * taps.count * self.least
        view = TrainerView(
            space=Space.SERVER,
            planes=SUM_PLANES,
            plane=1,
            offset=self.exchange,
            n0=self.places.cores,
            s0=most * SUM_WORDS,
            n1=1,
            n2=rows,
            pitch2=SUM_WORDS,
            blocks=2,
            block=SUM_PLANES,
        )
        self.emitter.emit(TrainerOp.SUM, {"x": MovingView(view)}, acc=acc, cores=self.places.mask)

    def _products(self, groups: Groups, blocks: Span, taps: Span, acc: int, place: int):
        """Multiply gradients by inputs, sample after sample."""
        batch, size = self.places.batch, self.tiles.samples
        if groups.resident:
            everything = Span(0, batch)
            if self._passing(groups):
                x = self._inputs(place, everything, self._strips(0)[0], blocks)
            else:
                x = cut(self.inputs[0], self.channels, everything)
                x = x.moved(-self.channels.start * x.block).blocked(blocks)
            sums = cut(self.arrivals[0].sums, Span(0, self.layer.blocks), everything)
            self._product(sums, x, taps, acc, 0, self._strips(0)[0])
            return
        strips = self._strips(self.tiles.rows)
        for strip in strips:
            self._tile(groups, self._load(0, Span(0, size), strip, blocks), taps, acc, int(strip.row > 0), strip)
        for samples, way in self.emitter.spans(batch, size, self.tiles.inner, begin=size):
            for strip in strips:
                loaded = self._load(self.tiles.inner - 1 - way, samples, strip, blocks)
                self._tile(groups, loaded, taps, acc, 1, strip)

    def _tile(self, groups: Groups, loaded: tuple, taps: Span, acc: int, keep: int, strip: Strip):
        """Multiply what was loaded, in the parts that updates take."""
        sums, x = loaded
        parts = self._held_parts(groups) if self.held else [(Span(self.channels.start, x.blocks), 0)]
        for blocks, row in parts:
            part = x.blocked(Span(blocks.start - self.channels.start, blocks.count))
            self._product(sums, part, taps, acc + row, keep, strip)

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
        """Update some weights, whose gradients are in the accumulators: of several cores that added them, a share."""
        cores = self.places.cores if self.added else 1
        self.parameters.weights(blocks, self._taps(taps), acc, self.records_on_chip[way], self.rows, cores)

    def _taps(self, units: Span) -> Span:
        """The taps of some units."""
        steps = tuple((loop, step * self.unit) for loop, step in units.steps)
        return Span(units.start * self.unit, units.count * self.unit, steps)


def _ends(span: Span, size: int, ways: int = 1) -> tuple[int, int, int, int]:
    """What `Emitter.spans` takes for elements of a span, `size` at a time."""
    return span.start + span.count, size, ways, span.start
