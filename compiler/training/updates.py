"""New weights and biases of a layer: exact gradients in the accumulators, then momentum and lazy update.

Where the accumulators hold the gradients of all weights, a repeated pass is an update alone. Else the weights go in
groups, and a repeated pass multiplies again. The plain sums of the gradient, which are those of the bias, stay beside
the first rows, whatever is multiplied.

Of several cores, each makes the gradients of some weights from all samples. Or each makes those of all weights from its
samples, they add them up, and each updates some rows.
"""

from dataclasses import replace

from concord.compiler.training import patches
from concord.compiler.training.emitter import Emitter, MovingView, Span
from concord.compiler.training.graph import Product
from concord.compiler.training.memory_map import MemoryMap
from concord.compiler.training.parameter_rows import ParameterRows, accumulators
from concord.compiler.training.regions import ImageRegion, cut
from concord.compiler.training.shares import SUM_WORDS, own_weights
from concord.compiler.training.tiles import Strip
from concord.compiler.training.update_room import Groups, UpdateRoom
from concord.golden.lazy.tensor_layers import check_terms
from concord.spec.trainer.config import LANES, SUM_PLANES, TrainerConfig
from concord.spec.trainer.instructions import Space, TrainerOp
from concord.spec.trainer.views import TrainerView

PART_ROWS = 128  #: Rows from which on an update is worth an instruction of its own.


class Updates:
    """Emits the update of a layer's parameters.

    Args:
        memory_map: Where everything lies.
        config:     The core.
        emitter:    Takes the instructions.
        layer:      The layer.

    Raises:
        ValueError: the sums may be too large, or the core is too small.
    """

    def __init__(self, memory_map: MemoryMap, config: TrainerConfig, emitter: Emitter, layer: Product):
        self.memory_map, self.config, self.emitter, self.layer = memory_map, config, emitter, layer
        self.records, self.parameters = memory_map.records[layer.name], ParameterRows(memory_map, emitter, layer)
        check_terms(memory_map.whole * layer.pixels, f"the gradient of layer {layer.name!r}")
        own = own_weights(layer, memory_map.whole, memory_map.core, memory_map.cores)
        self.added = own is None  # whether each core has the gradients of all weights, of its samples
        if own:
            self.memory_map = memory_map.together()
        else:
            self.exchange = memory_map.exchange_regions(config.accumulator_rows)
        #: Blocks of channels, and units: rows of a kernel, or pixels. A unit has so many taps.
        self.channels, self.units = own or (Span(0, layer.x.blocks), Span(0, layer.taps if layer.dense else layer.rows))
        self.unit = 1 if layer.dense else layer.columns
        self.least = self.unit * layer.outputs
        if self.least > config.accumulator_rows:
            raise ValueError(
                f"layer {layer.name!r}, update, needs {self.least} rows of the accumulators, and the core has "
                f"{config.accumulator_rows}: give it more accumulator_rows, or the layer fewer outputs"
            )
        self.room = UpdateRoom(self.memory_map, config, layer, self.channels, self.units, self.least, added=self.added)

    def emit(self):
        emitter, layer = self.emitter, self.layer
        emitter.part(layer.name, "update")
        if rest := -layer.outputs % LANES:  # lanes of the bias behind the last output take zeros
            emitter.copy(accumulators(layer.outputs, rest))
        if self.memory_map.cores > 1 and not self.added:  # the samples of others have gradients
            emitter.emit(TrainerOp.BARRIER, cores=self.memory_map.mask)
        room = self.room
        if room.held:
            self._sums(self.channels, self.units, 0)
        elif room.groups.resident:
            room.arrivals[0].load(emitter, Span(0, self.memory_map.batch))
            if not room.passing:
                self._inputs(0, Span(0, self.memory_map.batch), room.strips(0)[0], self.channels)
        if room.held and not self.added and not room.groups.parted:
            self.parameters.kept(self.channels, self._taps(self.units), self._held_parts(), room.records[0])
        else:
            with self.parameters.repeated(self.records.weights):
                if room.held:
                    self._update(self.channels, self.units, 0, 0)
                else:
                    self._grouped(room.groups)
        self.parameters.bias(room.bias)

    def _grouped(self, groups: Groups):
        for taps in self._tap_spans(groups):
            for blocks, way in self.emitter.spans(*_ends(self.channels, groups.blocks, groups.ways)):
                acc = way * (self.config.accumulator_rows // 2)
                self._sums(blocks, taps, acc, way)
                self._update(blocks, taps, acc, way)

    def _held_parts(self) -> list[tuple[Span, int]]:
        """Blocks whose rows an update takes at a time, while products of the next ones go on, and their first row."""
        count, start = self.channels.count, self.channels.start
        rows = self.least * self.units.count
        size = count if self.added or self.room.groups.parted else max(-(-count // 2), -(-PART_ROWS // rows))
        return [(Span(start + k, min(size, count - k)), k * rows) for k in range(0, count, size)]

    def _tap_spans(self, groups: Groups):
        """Groups of taps: in a loop of the machine for pixels, one after the other for rows of a kernel."""
        if self.layer.dense:
            return (span for span, _ in self.emitter.spans(*_ends(self.units, groups.taps)))
        stop = self.units.start + self.units.count
        return (Span(k, min(groups.taps, stop - k)) for k in range(self.units.start, stop, groups.taps))

    def _load(self, way: int, samples: Span, strip: Strip, blocks: Span) -> tuple[ImageRegion, ImageRegion]:
        """Emit loads: the gradient, and some blocks of inputs, on the chip."""
        x = self._inputs(way, samples, strip, blocks)
        rows = range(strip.row, strip.row + strip.rows) if self.room.tiles.rows else None
        return self.room.arrivals[way].load(self.emitter, samples, rows), x

    def _inputs(self, way: int, samples: Span, strip: Strip, blocks: Span) -> ImageRegion:
        """Emit the load of some blocks of inputs, or make patches again."""
        x, source = cut(self.room.inputs[way], blocks, samples), self.memory_map.values[self.layer.x].sampled(samples)
        if self.room.pixels:
            source = replace(source.moved(self.room.pixels.start), height=1, width=x.width, apart=source.sample)
            self.emitter.copy(x.operand(), source.blocked(blocks).operand())
            return x
        x = replace(x, height=strip.high - strip.low)
        if self.room.lines:
            patches.make(self.emitter, self.memory_map, self.layer, self.room.lines[way], x, samples, strip.low)
            return x
        self.emitter.copy(x.operand(), source.rowed(strip.low, x.height).blocked(blocks).operand())
        return x

    def _sums(self, blocks: Span, taps: Span, acc: int, way: int = 0):
        """Emit the exact gradients of some weights in the accumulators."""
        self._products(blocks, taps, acc, way)
        if not self.added:
            return
        most, rows = self.config.accumulator_rows, blocks.count * taps.count * self.least
        view = TrainerView(
            space=Space.SERVER,
            planes=SUM_PLANES,
            plane=1,
            offset=self.exchange,
            n0=self.memory_map.cores,
            s0=most * SUM_WORDS,
            n1=1,
            n2=rows,
            pitch2=SUM_WORDS,
            blocks=2,
            block=SUM_PLANES,
        )
        self.emitter.emit(TrainerOp.SUM, {"x": MovingView(view)}, acc=acc, cores=self.memory_map.mask)

    def _products(self, blocks: Span, taps: Span, acc: int, turn: int):
        """Multiply gradients by inputs, sample after sample."""
        room, batch, size = self.room, self.memory_map.batch, self.room.tiles.samples
        if room.groups.resident:
            everything = Span(0, batch)
            if room.passing:
                x = self._inputs(turn, everything, room.strips(0)[0], blocks)
            else:
                x = cut(room.inputs[0], self.channels, everything)
                x = x.moved(-self.channels.start * x.block).blocked(blocks)
            sums = cut(room.arrivals[0].sums, Span(0, self.layer.blocks), everything)
            self._product(sums, x, taps, acc, 0, room.strips(0)[0])
            return
        strips = room.strips(room.tiles.rows)
        for strip in strips:
            self._tile(self._load(0, Span(0, size), strip, blocks), taps, acc, int(strip.row > 0), strip)
        for samples, way in self.emitter.spans(batch, size, room.tiles.inner, begin=size):
            for strip in strips:
                loaded = self._load(room.tiles.inner - 1 - way, samples, strip, blocks)
                self._tile(loaded, taps, acc, 1, strip)

    def _tile(self, loaded: tuple, taps: Span, acc: int, keep: int, strip: Strip):
        """Multiply what was loaded, in the parts that updates take."""
        sums, x = loaded
        parts = self._held_parts() if self.room.held else [(Span(self.channels.start, x.blocks), 0)]
        for blocks, row in parts:
            part = x.blocked(Span(blocks.start - self.channels.start, blocks.count))
            self._product(sums, part, taps, acc + row, keep, strip)

    def _product(self, sums: ImageRegion, x: ImageRegion, taps: Span, acc: int, keep: int, strip: Strip):
        layer, records, memory_map = self.layer, self.records, self.memory_map
        if layer.dense:
            first = self.room.pixels.start if self.room.pixels else 0
            seen = x.moved(-first, taps, 1).operand(n1=1, n2=1, blocks=1)
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
            ea=memory_map.gradient_scales[layer.y],
            eb=memory_map.scales[layer.x],
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
        cores = self.memory_map.cores if self.added else 1
        self.parameters.weights(blocks, self._taps(taps), acc, self.room.records[way], self.room.rows, cores)

    def _taps(self, units: Span) -> Span:
        """The taps of some units."""
        steps = tuple((loop, step * self.unit) for loop, step in units.steps)
        return Span(units.start * self.unit, units.count * self.unit, steps)


def _ends(span: Span, size: int, ways: int = 1) -> tuple[int, int, int, int]:
    """What `Emitter.spans` takes for elements of a span, `size` at a time."""
    return span.start + span.count, size, ways, span.start
