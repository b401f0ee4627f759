"""Start of each beat of the tile engines."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.lib.arithmetic import low_high
from concord.hw.lib.payloads import Product
from concord.hw.lib.queue import Queue
from concord.hw.mvm.row_tiles import RowTiles, column_step, row_tile, sums
from concord.spec.machine import timing
from concord.spec.machine.config import Config

STEPS = 6  # steps whose marks are looked up ahead; a slot is known to be free one cycle late


def beat(config: Config) -> data.StructLayout:
    """A beat, one lane group of the tiles of a step; `last` marks the last beat of a row of tiles with `rows` rows."""
    return data.StructLayout({
        "valid": 1, "from_entries": 1, "tile": range(config.matrix_tiles), "group": range(config.groups),
        "columns": range(config.tile_engines + 1), "last": 1, "integer": 1, "rows": range(config.native_dim + 1),
        **sums(config)})


class BeatSequencer(wiring.Component):
    """Issues the beats of a product: row of tiles by row of tiles, step by step, lane group by lane group.

    A step has as many beats as its tile with the highest mark, at least one. A beat waits until the columns of its
    step are whole, or until they can be read from VectorRf. What follows the tile engines never stalls, so the last
    beat of a row of tiles waits, too, until its words have room in the result queue, and until the words of the row of
    tiles before it have all been picked up.

    Args:
        config: The machine.
        space:  Number of words of the result queue.

    Members:
        product: In(stream Product). Each payload is one `mv_mul`.
        mark_tile, marks: Out, In. First tile of a step, and one cycle later the zero marks of its tiles.
        complete, whole: In. Number of complete columns in the operand buffer; whether all columns are.
        entries: In(1). The next beat of a product from VectorRf can read its columns. read: Out(1). It does so now.
            end: Out(1). It is the last beat of its step.
        freed: In(1). A word has left the result queue.
        step, group, release: Out. Read of the operand buffer, one cycle before the beat.
        beat: Out {valid, from_entries, tile, group, columns, last, integer, rows}.
        done: Out(1). Pulse with the last beat of a product.
        row_tile: Out(stream row_tile). Describes each row of tiles, not later than its last beat.
        beats, tiles: Out. Number of lane groups and of tiles that the beat multiplies.
        busy, wait_operand, wait_output: Out(1). State of this cycle.

    Timing:
        One beat a cycle; no bubble between steps, rows of tiles, iterations and products. The first beat is out
        `latency` cycles after its product has been taken, or 1 cycle after its columns are whole.
    """

    latency = timing.BEAT

    def __init__(self, config: Config, space: int):
        self.config, self.space = config, space
        count = range(config.tile_engines + 1)
        super().__init__({
            "product": In(stream.Signature(Product)), "mark_tile": Out(range(config.matrix_tiles)),
            "marks": In(data.ArrayLayout(range(config.groups + 1), config.tile_engines)),
            "complete": In(range(config.operand_columns + 1)), "whole": In(1), "freed": In(1),
            "entries": In(1), "read": Out(1), "end": Out(1),
            "step": Out(column_step(config)["step"].shape), "group": Out(range(config.groups)), "release": Out(1),
            "beat": Out(beat(config)), "done": Out(1),
            "row_tile": Out(stream.Signature(row_tile(config))), "beats": Out(count), "tiles": Out(count),
            "busy": Out(1), "wait_operand": Out(1), "wait_output": Out(1)})

    def elaborate(self, platform):
        m = Module()
        config = self.config
        marked = data.StructLayout({
            "step": column_step(config), "marks": self.marks.shape(), "beats": range(config.groups + 1)})
        m.submodules.row_tiles = row_tiles = RowTiles(config)
        m.submodules.steps = steps = Queue(marked, STEPS)
        wiring.connect(m, wiring.flipped(self.product), row_tiles.product)
        wiring.connect(m, row_tiles.row_tile, wiring.flipped(self.row_tile))
        self._look_up(m, row_tiles, steps)
        self._issue(m, steps, row_tiles.active | self.product.valid)
        return m

    def _look_up(self, m, row_tiles, steps):
        """Look up the marks of each step, and with them the number of its beats."""
        config, step = self.config, Signal(column_step(self.config))
        looking, taken, room, left = Signal(), Signal(), Signal(), Signal(range(STEPS + 1), init=STEPS)
        m.d.comb += [self.mark_tile.eq(row_tiles.step.p.tile), row_tiles.step.ready.eq(room),
                     taken.eq(row_tiles.step.valid & room)]
        m.d.sync += [looking.eq(taken), step.eq(row_tiles.step.p), room.eq(left > taken),
                     left.eq(left - taken + (steps.o.valid & steps.o.ready))]
        marks = [Mux(used, mark, 0) for mark, used in zip(self.marks, _banks_used(m, config, step), strict=True)]
        most = marks[0]
        for k, mark in enumerate(marks[1:]):
            larger = Mux(mark > most, mark, most)
            most = larger if _is_power(config.tile_engines) else _named(m, larger, f"most{k}")
        m.d.comb += [steps.i.valid.eq(looking), steps.i.p.step.eq(step), steps.i.p.beats.eq(most | (most == 0)),
                     *(kept.eq(mark) for kept, mark in zip(steps.i.p.marks, marks, strict=True))]

    def _issue(self, m, steps, waiting):
        """Issue the beats of the first step."""
        step, group = steps.o.p.step, self.group
        free, spacing = Signal(range(self.space + 1), init=self.space), Signal(range(self.config.vector_words + 1))
        end, go, last = Signal(), Signal(), Signal()
        operand, output = Signal(), Signal()  # what the beat waits for is there
        m.d.comb += [
            end.eq(group + 1 == steps.o.p.beats), last.eq(end & step.last),
            operand.eq(Mux(step.from_entries, self.entries, self.whole | (self.complete >= step.needed))),
            output.eq(~last | ((spacing <= 1) & (free >= step.words))),
            go.eq(steps.o.valid & operand & output), steps.o.ready.eq(go & end),
            self.read.eq(go & step.from_entries), self.end.eq(end), self.step.eq(step.step),
            self.release.eq(go & last & step.iteration & ~step.from_entries), self.busy.eq(go),
            self.wait_output.eq(steps.o.valid & operand & ~output),
            self.wait_operand.eq(~go & ~self.wait_output & (steps.o.valid | waiting)),
            self.beats.eq(Mux(go, sum(mark > group for mark in steps.o.p.marks), 0)),
            self.tiles.eq(Mux(go & end, step.columns, 0)),
        ]
        with m.If(go):
            m.d.sync += group.eq(Mux(end, 0, group + 1))
        m.d.sync += [
            free.eq(free + self.freed - Mux(go & last, step.words, 0)),
            spacing.eq(Mux(go & last, step.words, Mux(spacing == 0, 0, spacing - 1))),
            self.done.eq(go & last & step.product), self.beat.valid.eq(go),
            self.beat.last.eq(last), self.beat.group.eq(group),
            *(self.beat[name].eq(step[name]) for name in ("from_entries", "tile", "columns", "integer", "rows"))]
        if self.config.partial_sums:
            m.d.sync += [self.beat.slot.eq(step.slot), self.beat.first.eq(step.first & (group == 0))]


def _is_power(count: int) -> bool:
    """Whether a number is a power of two."""
    return not count & count - 1


def _named(m, value, name: str):
    """A signal with this value."""
    signal = Signal(Value.cast(value).shape(), name=name)
    m.d.comb += signal.eq(value)
    return signal


def _banks_used(m, config: Config, step):
    """Whether each bank holds a tile of the step."""
    engines = config.tile_engines
    if engines == 1:
        return [Const(1)]
    first, _ = low_high(step.tile, engines)
    if _is_power(engines):
        return [(j - first)[:len(first)] < step.columns for j in range(engines)]
    first = _named(m, first, "first_bank")
    return [(Mux(first > j, engines, 0) + j - first) < step.columns for j in range(engines)]
