"""What each instruction asks of the views that it names: how it uses them, and which it refuses.

SIZE and RANGE are found here as far as they do not depend on addresses.
"""

from dataclasses import dataclass
from functools import reduce
from operator import or_

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.trainer.bases import BASE
from concord.hw.trainer.extent_finder import ROWS, Use, small_product
from concord.hw.trainer.instruction_decoder import SLOTS, Kind, fields, slots
from concord.hw.trainer.view_table import Tensor
from concord.hw.trainer.wires import COUNT
from concord.spec.trainer.config import LANES, PARAMETER_PLANES, PATCH_ROW_BYTES, SUM_PLANES
from concord.spec.trainer.instructions import WORD, Space, TrainerOp

#: Numbers that other views of an instruction must have, too, once a view was found.
Counts = data.StructLayout({"rows": ROWS, "blocks": COUNT, "n0": COUNT, "n1": COUNT, "n2": COUNT, "planes": 3,
                           "space": 2})
#: The slot behind those of views: rows of the accumulators.
SUMS = SLOTS
_COPIED = (1, 2, 4, PARAMETER_PLANES, SUM_PLANES)


@dataclass(frozen=True, kw_only=True, slots=True)
class ViewRule:
    """A view of an instruction.

    Attributes:
        planes:  Numbers of planes that it may have.
        written: Whether it is written, and has no limits.
        spaces:  Memories in which it may lie.
        like:    The slot whose rows it must have, and whose blocks, too, but for products.
    """

    planes: tuple[int, ...] = (1,)
    written: bool = False
    spaces: tuple[Space, ...] = (Space.CHIP,)
    like: int | None = None


#: The views of each instruction, in the order of `slots`.
OPERANDS = {
    TrainerOp.COPY: (ViewRule(planes=_COPIED, written=True, spaces=tuple(Space)),
                     ViewRule(planes=_COPIED, spaces=tuple(Space), like=0)),
    TrainerOp.PRODUCT: (ViewRule(planes=(1, 2)), ViewRule(), ViewRule(planes=(1, 2, 4), written=True, like=0),
                        ViewRule(), ViewRule(like=0)),
    TrainerOp.POOL: (ViewRule(written=True), ViewRule(like=0), ViewRule(written=True, like=0)),
    TrainerOp.POOL_BACK: (ViewRule(planes=(2,), written=True), ViewRule(planes=(2,)), ViewRule(like=1),
                          ViewRule(like=0)),
    TrainerOp.ADD: (ViewRule(planes=(1, 2), written=True), *[ViewRule(planes=(1, 2), like=0)] * 2, ViewRule(like=0)),
    TrainerOp.UPDATE: (ViewRule(planes=(PARAMETER_PLANES,)),
                       ViewRule(planes=(PARAMETER_PLANES,), written=True, like=0)),
    TrainerOp.SUM: (ViewRule(planes=(SUM_PLANES,), written=True, spaces=(Space.SERVER,)),)}


class OperandRules(wiring.Component):
    """Says of one view of an instruction how it is used, and what is wrong with it.

    Members:
        word: In(256). kind: In(Kind). The instruction.
        slot: In. Which of its views it is; SUMS for rows of the accumulators, which have no view.
        view, there, base: In. The view, whether it is written, and what its base register holds.
        rows: In. Number of rows of the view, which `size` looks at.
        first, second: In(Counts). Counts of the views in the slots 0 and 1, where those were found before.
        use: Out(Use).
        written: Out(1). The instruction writes it.
        aligned: Out(1). All rows, planes and blocks that are used must begin at multiples of 16 words.
        size, range: Out(1). It is refused.

    Timing:
        Everything follows within the cycle.
    """

    def __init__(self):
        super().__init__({
            "word": In(2 * WORD), "kind": In(Kind), "slot": In(range(SLOTS + 1)), "view": In(Tensor), "there": In(1),
            "base": In(signed(BASE)), "rows": In(ROWS), "first": In(Counts), "second": In(Counts), "use": Out(Use),
            "written": Out(1), "aligned": Out(1), "size": Out(1), "range": Out(1)})

    def elaborate(self, platform):
        m = Module()
        self.i = {op: fields(self.word, op) for op in TrainerOp}
        self.size_rules, self.range_rules = [], []
        self._common(m)
        self._tables(m)
        for op, used in ((TrainerOp.COPY, self._copy), (TrainerOp.PRODUCT, self._product), (TrainerOp.POOL, self._pool),
                         (TrainerOp.POOL_BACK, self._pool_back), (TrainerOp.ADD, self._add),
                         (TrainerOp.UPDATE, self._update), (TrainerOp.SUM, self._sum)):
            with m.If(self.kind[op.name.lower()]):
                used(m, self.i[op])
        m.d.comb += [self.size.eq(self.wrong_size | self.wrong_here_size),
                     self.range.eq(self.wrong_range | self.wrong_here_range)]
        return m

    def _at(self, op: TrainerOp, name: str):
        """Whether the view is this one."""
        return self.slot == slots(op).index(name)

    def _common(self, m):
        """A view as most instructions use it: all planes and blocks, without taps."""
        use, view = self.use, self.view
        self.sums = view.space == Space.ACCUMULATORS
        m.d.comb += [use[name].eq(view[name]) for name in (
            "offset", "plane", "n0", "s0", "n1", "pitch1", "step1", "origin1", "limit1", "n2", "pitch2", "step2",
            "origin2", "limit2")]
        m.d.comb += [use.base.eq(self.base), use.planes.eq(Mux(self.sums, 1, view.planes)), use.taps1.eq(1),
                     use.taps2.eq(1), use.further.eq(Mux(self.sums, 1, view.blocks)), use.stride.eq(view.block),
                     use.count0.eq(view.n0), use.count1.eq(view.n1), use.count2.eq(view.n2)]

    def _tables(self, m):
        """What `OPERANDS` says."""
        view = self.view
        self.wrong_size, self.wrong_range = Signal(), Signal()
        self.wrong_here_size, self.wrong_here_range = Signal(), Signal()
        zero = ~(view.n0.any() & view.n1.any() & view.n2.any() & view.blocks.any())
        for op, operands in OPERANDS.items():
            for slot, operand in enumerate(operands):
                with m.If(self.kind[op.name.lower()] & (self.slot == slot)):
                    like = {0: self.first, 1: self.second, None: None}[operand.like]
                    wrong = [~self.there, zero, ~view.planes.matches(*operand.planes)]
                    if like is not None:
                        wrong.append(self.rows != like.rows)
                        if op != TrainerOp.PRODUCT:
                            wrong.append(view.blocks != like.blocks)
                    limited = operand.written & (view.limit1.any() | view.limit2.any())
                    m.d.comb += [self.wrong_size.eq(reduce(or_, wrong)), self.written.eq(operand.written),
                                 self.wrong_range.eq(~view.space.matches(*operand.spaces) | limited)]

    def _copy(self, m, i):
        view, use, source = self.view, self.use, self._at(TrainerOp.COPY, "source")
        one_plane, six = view.planes == 1, view.planes == SUM_PLANES
        wrong = Mux(view.space == Space.EXPONENTS, ~one_plane, self.sums & (~six | (view.blocks > 2)))
        bytes_ = small_product(i["size"], i["channels"])
        patches = ~one_plane | (view.blocks != 1) | (bytes_ == 0) | (bytes_ > PATCH_ROW_BYTES) | (
            small_product(bytes_, i["size"]) > LANES) | (source & (view.limit2 == 0))
        other = source & (view.planes != self.first.planes)
        m.d.comb += [
            self.wrong_here_size.eq(wrong | other | (i["patches"] & patches)),
            self.wrong_here_range.eq(
                (~source & i["add"] & ~self.sums) | (i["patches"] & (view.space != Space.CHIP))
                | (source & (view.space == Space.SERVER) & (self.first.space == Space.SERVER)))]
        with m.If(i["patches"] & source):  # axis 2 counts words of a raster row
            m.d.comb += [use.n2.eq(1), use.origin2.eq(0), use.pitch2.eq(1), use.limit2.eq(0), use.taps1.eq(i["size"]),
                         use.taps2.eq((small_product(view.limit2, i["channels"]) + (LANES - 1)) >> 4)]

    def _product(self, m, i):
        view, use, op = self.view, self.use, TrainerOp.PRODUCT
        a, b, columns = self._at(op, "a"), self._at(op, "b"), i["mode"]
        limited, bias = view.limit1.any() | view.limit2.any(), self._at(op, "bias")
        empty = ~(i["n0"].any() & i["n1"].any() & i["n2"].any()) | (columns & ~i["outputs"].any())
        m.d.comb += [self.wrong_here_size.eq(empty),
                     self.wrong_here_range.eq(limited & (bias | Mux(columns, a, b))), use.further.eq(1)]
        one_row = [use[name].eq(1) for name in ("n0", "n1", "n2")]
        with m.If(Mux(columns, b, a)):  # the operand that blocks meet
            m.d.comb += [use.taps1.eq(i["n1"]), use.taps2.eq(i["n2"]), use.further.eq(i["n0"]),
                         use.stride.eq(i["a_s0"])]
        with m.Elif(b):  # 16 words for each block
            m.d.comb += [self.aligned.eq(1), use.limit1.eq(0), use.limit2.eq(0), use.extra.eq(LANES - 1),
                         *(use[name].eq(i[name]) for name in ("n0", "n1", "n2"))]
        with m.Elif(a):  # a word for each row of b, in as many blocks as outputs fill
            rows = self.second.rows
            m.d.comb += [*one_row, self.aligned.eq(1)]
            m.d.comb += [use.further.eq((i["outputs"] + (LANES - 1)) >> 4), use.limit1.eq(0), use.limit2.eq(0),
                         use.extra.eq(Mux(rows[17:].any(), -1, rows[:17] - 1))]
        with m.Elif(bias):
            m.d.comb += [*one_row, use.limit1.eq(0), use.limit2.eq(0)]
        with m.If(self.slot == SUMS):
            m.d.comb += [use.count0.eq(i["n0"]), use.count1.eq(small_product(i["n1"], i["n2"])),
                         use.count2.eq(i["outputs"])]

    def _pool(self, m, i):
        m.d.comb += self.wrong_here_size.eq(i["size"] == 0)
        with m.If(self._at(TrainerOp.POOL, "x")):
            m.d.comb += [self.use.taps1.eq(i["size"]), self.use.taps2.eq(i["size"])]

    def _pool_back(self, m, i):
        view, op = self.view, TrainerOp.POOL_BACK
        other = (view.n0 != self.first.n0) | (view.blocks != self.first.blocks)
        unlike = reduce(or_, (view[name] != self.second[name] for name in ("n0", "n1", "n2")))
        windows, chosen = self._at(op, "x"), self._at(op, "chosen")
        m.d.comb += [
            self.wrong_here_size.eq(
                (i["size"] == 0) | (i["stride"] == 0) | (windows & other) | (chosen & unlike)),
            self.wrong_here_range.eq((windows | chosen) & (view.limit1.any() | view.limit2.any()))]

    def _add(self, m, i):
        operand = self._at(TrainerOp.ADD, "a") | self._at(TrainerOp.ADD, "b")
        m.d.comb += self.wrong_here_size.eq(operand & (self.view.planes != self.first.planes))

    def _update(self, m, i):
        m.d.comb += self.wrong_here_size.eq(self.view.blocks != 1)

    def _sum(self, m, i):
        view, members = self.view, sum(i["cores"])
        m.d.comb += self.wrong_here_size.eq((view.blocks != 2) | (view.n0 != members))
        with m.If(self.slot == SUMS):
            m.d.comb += self.use.count0.eq(1)
