"""Divides a product into rows of tiles, and each row into the steps of the tile engines."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.lib.payloads import Product
from concord.spec.isa.instructions import ADDRESS_BITS, REGISTER_BITS
from concord.spec.machine.config import Config

Place = data.StructLayout({  # position within a product, from its rows of tiles to its columns
    "row_base": ADDRESS_BITS, "tile": ADDRESS_BITS, "step": REGISTER_BITS, "columns_left": REGISTER_BITS,
    "words_left": REGISTER_BITS, "rows_left": REGISTER_BITS, "row_tiles_left": REGISTER_BITS,
    "iterations_left": REGISTER_BITS, "bias_address": ADDRESS_BITS})


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
        place, go, engines = Signal(Place), Signal(), config.tile_engines
        told = Signal()  # the row of tiles of the last step that waits has been taken

        m.d.comb += [
            step.tile.eq(place.tile), step.step.eq(place.step), step.integer.eq(p.integer),
            step.columns.eq(_least(place.columns_left, engines)),
            step.from_entries.eq(p.from_entries & bool(config.vector_rf)),
            step.needed.eq(p.columns - place.columns_left + step.columns),
            step.last.eq(place.columns_left <= engines),
            step.iteration.eq(step.last & (place.row_tiles_left == 1)),
            step.product.eq(step.iteration & (place.iterations_left == 1)),
            step.words.eq(_least(place.words_left, config.vector_words)),
            step.rows.eq(_least(place.rows_left, config.native_dim)),
            result.words.eq(step.words), result.rows.eq(step.rows), result.integer.eq(p.integer),
            result.out_scale.eq(p.out_scale), result.bias.eq(p.bias), result.bias_address.eq(place.bias_address),
            self.step.valid.eq(self.active & (self.row_tile.ready | told | ~step.last)),
            self.row_tile.valid.eq(self.active & step.last & ~told),
            go.eq(self.step.valid & self.step.ready),
            self.product.ready.eq(~self.active | (go & step.product)),
        ]
        m.d.sync += told.eq(self.step.valid & step.last & ~go)
        with m.If(go):
            m.d.sync += [place.tile.eq(place.tile + engines), place.step.eq(place.step + 1),
                         place.columns_left.eq(place.columns_left - engines)]
            with m.If(step.last):
                self._next_row_tile(m, p, place)
            with m.If(step.iteration):
                self._iteration(m, p, place)
                m.d.sync += place.iterations_left.eq(place.iterations_left - 1)
        with m.If(self.product.ready):
            m.d.sync += [self.active.eq(self.product.valid), p.eq(self.product.p),
                         place.iterations_left.eq(self.product.p.iterations)]
            self._iteration(m, self.product.p, place)
        return m

    def _next_row_tile(self, m, p, place):
        below = place.row_base + p.columns
        m.d.sync += [
            place.row_base.eq(below), place.tile.eq(below), place.step.eq(0), place.columns_left.eq(p.columns),
            place.words_left.eq(place.words_left - self.config.vector_words),
            place.rows_left.eq(place.rows_left - self.config.native_dim),
            place.row_tiles_left.eq(place.row_tiles_left - 1),
            place.bias_address.eq(place.bias_address + self.config.vector_words)]

    def _iteration(self, m, p, place):
        """Go to the first step of an iteration of p."""
        m.d.sync += [
            place.row_base.eq(p.tile), place.tile.eq(p.tile), place.step.eq(0), place.columns_left.eq(p.columns),
            place.words_left.eq(p.words), place.rows_left.eq(p.rows), place.row_tiles_left.eq(p.row_tiles),
            place.bias_address.eq(p.bias_address)]


def _least(value, limit: int):
    """The smaller of the two."""
    return Mux(value > limit, limit, value)
