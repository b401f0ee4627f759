"""Divides a product into rows of tiles, and each row into the steps of the tile engines."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.lib.arithmetic import low_high
from concord.hw.lib.payloads import Product
from concord.spec.isa.instructions import ADDRESS_BITS, REGISTER_BITS
from concord.spec.machine.config import Config

#: Position within a product, and what follows from it for the present step, which is computed with the step before.
ProductPosition = data.StructLayout({
    "row_base": ADDRESS_BITS, "tile": ADDRESS_BITS, "step": REGISTER_BITS, "columns_left": REGISTER_BITS,
    "words_left": REGISTER_BITS, "rows_left": REGISTER_BITS, "row_tiles_left": REGISTER_BITS,
    "iterations_left": REGISTER_BITS, "bias_address": ADDRESS_BITS, "last_column": 1, "last_row_tile": 1,
    "last_iteration": 1})


def lead(config: Config) -> data.StructLayout:
    """Position of a walk that begins with the first columns of several rows of tiles.

    `on` while it is there, in a row of tiles that begins at `row_base`, from which on `rows_left` rows come; `left`
    rows of tiles come, this one included. Afterwards, `left` more rows of tiles go on behind `columns` columns, which
    are `steps` steps.
    """
    return data.StructLayout({
        "on": 1, "left": range(config.partial_sums + 1), "row_base": ADDRESS_BITS,
        **dict.fromkeys(("rows_left", "columns", "steps"), REGISTER_BITS)})


def sums(config: Config) -> dict:
    """Which running sums a step adds to, and whether it begins them, on machines that keep several."""
    return {"slot": range(config.partial_sums), "first": 1} if config.partial_sums else {}


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
        "product": 1, "integer": 1, "words": range(config.vector_words + 1), "rows": range(config.native_dim + 1),
        **sums(config)})


def row_tile(config: Config) -> data.StructLayout:
    """Settings for the totals of one row of tiles."""
    return data.StructLayout({
        "words": range(config.vector_words + 1), "rows": range(config.native_dim + 1), "integer": 1,
        "out_scale": signed(6), "bias": 1, "bias_address": range(config.bias_words)})


class RowTiles(wiring.Component):
    """Walks through a product: its iterations, their rows of tiles, and their columns, `tile_engines` at a time.

    With `partial_sums`, an iteration begins with the first columns of so many rows of tiles; then these rows of tiles
    go on with the other columns. The first half of a recurrent layer's operand is often there while the other half, the
    hidden vector, is still computed. So the first columns are whole steps within that half, and so few that the others
    take as many beats as the row of tiles has words: results leave one word a cycle.

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
        place, go, engines = Signal(ProductPosition), Signal(), self.config.tile_engines
        self.lead = Signal(lead(config)) if config.partial_sums else None
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
            if config.partial_sums:
                m.d.sync += step.first.eq(0)
                self._lead(m, p, place, columns, needed, rows)
            with m.If(step.last):
                self._first_column(m, p, columns, needed, place)
                self._next_row_tile(m, p, place, words, rows)
                if config.partial_sums:
                    m.d.sync += step.slot.eq(_next(step.slot, config.partial_sums))
                    with m.If(self.lead.left != 0):
                        m.d.sync += self.lead.left.eq(self.lead.left - 1)
                        self._go_on(m, p, place, columns, needed, place.row_base + p.columns)
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
        if self.config.partial_sums:
            m.d.sync += self.step.p.first.eq(1)

    def _lead(self, m, p, place, columns, needed, rows):
        """Walk through the first half of the columns of several rows of tiles."""
        step, walk, engines = self.step.p, self.lead, self.config.tile_engines
        with m.If(walk.on & ~self._leads(p, needed + engines)):
            m.d.sync += [walk.left.eq(walk.left - 1), walk.row_base.eq(walk.row_base + p.columns),
                         place.tile.eq(walk.row_base + p.columns), step.slot.eq(step.slot + 1),
                         walk.rows_left.eq(walk.rows_left - self.config.native_dim),
                         rows.eq(_rest(walk.rows_left, self.config.native_dim))]
            self._first_column(m, p, columns, needed, place)
            with m.If(walk.left == 1):
                m.d.sync += [walk.on.eq(0), walk.left.eq(step.slot), step.slot.eq(0), walk.columns.eq(needed),
                             walk.steps.eq(place.step + 1), rows.eq(_least(p.rows, self.config.native_dim))]
                self._go_on(m, p, place, columns, needed, place.row_base, needed, place.step + 1)

    def _leads(self, p, columns):
        """Whether so many columns, whole steps, may come before those of other rows of tiles."""
        least = -(-self.config.vector_words // self.config.groups) - 1
        return (2 * columns <= p.columns) & (columns + least * self.config.tile_engines < p.columns)

    def _go_on(self, m, p, place, columns, needed, row_base, behind=None, steps=None):
        """Go to the step of a row of tiles that follows its first columns."""
        behind = self.lead.columns if behind is None else behind
        left = (p.columns - behind)[:REGISTER_BITS]
        now = _least(left, self.config.tile_engines)
        m.d.sync += [place.tile.eq(row_base + behind), place.step.eq(self.lead.steps if steps is None else steps),
                     place.columns_left.eq(left), columns.eq(now), needed.eq(behind + now), self.step.p.first.eq(0),
                     place.last_column.eq(left <= self.config.tile_engines)]

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
        if self.config.partial_sums:
            on = self._leads(p, Const(self.config.tile_engines)) & (p.row_tiles > 1)
            m.d.sync += [self.lead.on.eq(on), self.lead.row_base.eq(p.tile), self.lead.rows_left.eq(p.rows),
                         self.step.p.slot.eq(0),
                         self.lead.left.eq(Mux(on, _least(p.row_tiles, self.config.partial_sums), 0))]


def _next(slot, count: int):
    """The slot after one of `count`."""
    return Mux(slot == count - 1, 0, slot + 1)


def _least(value, limit: int):
    """The smaller of the two."""
    return Mux(value > limit, limit, value)


def _rest(value, limit: int):
    """The smaller of value - limit and limit; value is larger than limit."""
    if limit & limit - 1:
        return Mux(value > 2 * limit, limit, value - limit)
    low, high = low_high(value, limit)
    return Mux(high > 1, limit, low)
