"""Divides a product into rows of tiles, and each row into the steps of the tile engines."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.lib.arithmetic import low_high
from concord.hw.lib.payloads import Product
from concord.spec.isa.instructions import ADDRESS_BITS, REGISTER_BITS
from concord.spec.machine.config import Config

#: Position within a product, and what follows from it for the present step, which is computed with the step before.
Place = data.StructLayout({
    "row_base": ADDRESS_BITS, "tile": ADDRESS_BITS, "step": REGISTER_BITS, "columns_left": REGISTER_BITS,
    "words_left": REGISTER_BITS, "rows_left": REGISTER_BITS, "row_tiles_left": REGISTER_BITS,
    "iterations_left": REGISTER_BITS, "bias_address": ADDRESS_BITS, "last_column": 1, "last_row_tile": 1,
    "last_iteration": 1})


def column_step(config: Config) -> data.StructLayout:
    """A step: neighbouring tiles in one row of tiles, one for each engine.

    `tile` is the first of them, `step` the number of the step in its row of tiles, and `columns` the number of tiles.
    `needed` columns of the operand must be complete, or they lie in VectorRf if `from_entries`. `last`, `iteration` and
    `product` mark the last step of the row of tiles, of the iteration and of the product. The row of tiles yields
    `words` words and `rows` rows.
    """
    columns = range(config.operand_columns + 1)
    return data.StructLayout({
        "tile": range(config.matrix_tiles), "step": range(-(-config.operand_columns // config.tile_engines)),
        "columns": range(config.tile_engines + 1), "needed": columns, "from_entries": 1, "last": 1, "iteration": 1,
        "product": 1, "integer": 1, "words": range(config.vector_words + 1), "rows": range(config.native_dim + 1)})


def row_tile(config: Config) -> data.StructLayout:
    """Settings for the totals of one row of tiles."""
    return data.StructLayout({
        "words": range(config.vector_words + 1), "rows": range(config.native_dim + 1), "integer": 1,
        "out_scale": signed(6), "bias": 1, "bias_address": range(config.bias_words)})


class RowTiles(wiring.Component):
    """Walks through a product: its iterations, their rows of tiles, and their columns, `tile_engines` at a time.

    Args:
        config: The machine.

    Members:
        product: In(stream Product). One `mv_mul`; taken when the walk begins.
        step: Out(stream column_step). Steps in order.
        row_tile: Out(stream row_tile). Describes each row of tiles, not later than its last step.
        active: Out(1). A product is being walked through.

    Timing:
        One step a cycle, products in a row included; the first one cycle after `product` is taken. A row of tiles' last
        step waits until `row_tile` is taken.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "product": In(stream.Signature(Product)), "step": Out(stream.Signature(column_step(config))),
            "row_tile": Out(stream.Signature(row_tile(config))), "active": Out(1)})

    def elaborate(self, platform):
        m = Module()
        config, p, step, result = self.config, Signal(Product), self.step.p, self.row_tile.p
        place, go, engines = Signal(Place), Signal(), self.config.tile_engines
        columns, needed = Signal(step.columns.shape()), Signal(REGISTER_BITS)
        words, rows = Signal(step.words.shape()), Signal(step.rows.shape())
        told = Signal()  # the row of tiles of the last step that waits has been taken

        m.d.comb += [
            step.tile.eq(place.tile), step.step.eq(place.step), step.integer.eq(p.integer), step.columns.eq(columns),
            step.from_entries.eq(p.from_entries & bool(config.vector_rf)), step.needed.eq(needed),
            step.last.eq(place.last_column), step.iteration.eq(step.last & place.last_row_tile),
            step.product.eq(step.iteration & place.last_iteration), step.words.eq(words), step.rows.eq(rows),
            result.words.eq(words), result.rows.eq(rows), result.integer.eq(p.integer),
            result.out_scale.eq(p.out_scale), result.bias.eq(p.bias), result.bias_address.eq(place.bias_address),
            self.step.valid.eq(self.active & (self.row_tile.ready | told | ~step.last)),
            self.row_tile.valid.eq(self.active & step.last & ~told),
            go.eq(self.step.valid & self.step.ready),
            self.product.ready.eq(~self.active | (go & step.product)),
        ]
        m.d.sync += told.eq(self.step.valid & step.last & ~go)
        # What a step says is in registers: comparisons and sums of the next step need not wait until this one goes.
        # What follows is chosen without a look at `go`, which comes late.
        fresh = ~self.active | step.product
        with m.If(go | ~self.active):
            m.d.sync += [
                place.tile.eq(place.tile + engines), place.step.eq(place.step + 1),
                place.columns_left.eq(place.columns_left - engines),
                place.last_column.eq(place.columns_left <= 2 * engines),
                columns.eq(_rest(place.columns_left, engines)), needed.eq(needed + _rest(place.columns_left, engines))]
            with m.If(step.last):
                self._first_column(m, p, columns, needed, place)
                self._next_row_tile(m, p, place, words, rows)
            with m.If(step.iteration):
                self._iteration(m, p, place, words, rows)
                m.d.sync += [place.iterations_left.eq(place.iterations_left - 1),
                             place.last_iteration.eq(place.iterations_left == 2)]
            with m.If(fresh):
                following = self.product.p
                m.d.sync += [
                    self.active.eq(self.product.valid), p.eq(following),
                    place.iterations_left.eq(following.iterations), place.last_iteration.eq(following.iterations == 1)]
                self._first_column(m, following, columns, needed, place)
                self._iteration(m, following, place, words, rows)
        return m

    def _first_column(self, m, p, columns, needed, place):
        """Go to the first step of a row of tiles of p."""
        first = _least(p.columns, self.config.tile_engines)
        m.d.sync += [place.step.eq(0), place.columns_left.eq(p.columns), columns.eq(first), needed.eq(first),
                     place.last_column.eq(p.columns <= self.config.tile_engines)]

    def _next_row_tile(self, m, p, place, words, rows):
        below, config = place.row_base + p.columns, self.config
        m.d.sync += [
            place.row_base.eq(below), place.tile.eq(below),
            place.words_left.eq(place.words_left - config.vector_words),
            place.rows_left.eq(place.rows_left - config.native_dim),
            words.eq(_rest(place.words_left, config.vector_words)), rows.eq(_rest(place.rows_left, config.native_dim)),
            place.row_tiles_left.eq(place.row_tiles_left - 1), place.last_row_tile.eq(place.row_tiles_left == 2),
            place.bias_address.eq(place.bias_address + config.vector_words)]

    def _iteration(self, m, p, place, words, rows):
        """Go to the first row of tiles of an iteration of p."""
        m.d.sync += [
            place.row_base.eq(p.tile), place.tile.eq(p.tile), place.words_left.eq(p.words), place.rows_left.eq(p.rows),
            words.eq(_least(p.words, self.config.vector_words)), rows.eq(_least(p.rows, self.config.native_dim)),
            place.row_tiles_left.eq(p.row_tiles), place.last_row_tile.eq(p.row_tiles == 1),
            place.bias_address.eq(p.bias_address)]


def _least(value, limit: int):
    """The smaller of the two."""
    return Mux(value > limit, limit, value)


def _rest(value, limit: int):
    """The smaller of value - limit and limit; value is larger than limit."""
    if limit & limit - 1:
        return Mux(value > 2 * limit, limit, value - limit)
    low, high = low_high(value, limit)
    return Mux(high > 1, limit, low)
