"""Jobs of all engines, of the fields of an instruction, its views and its shifts."""

from amaranth import *
from amaranth.lib import data
from concord.hw.lazy.lazy_step import change_shape
from concord.hw.trainer.instruction_decoder import SLOTS, fields, slots
from concord.hw.trainer.measure import FORMAT
from concord.hw.trainer.resolver import Shifts
from concord.hw.trainer.trainer_registers import Rate
from concord.hw.trainer.view_table import Tensor
from concord.hw.trainer.wires import (
    ADD,
    POOL,
    POOL_BACK,
    CopyJob,
    PoolingJob,
    ProductJob,
    UpdateJob,
    View,
)
from concord.spec.trainer.config import NONE, SUM_PLANES
from concord.spec.trainer.instructions import Space, TrainerOp

#: Jobs of each engine.
JOBS = {"load": CopyJob, "store": CopyJob, "move": CopyJob, "tensor": ProductJob, "pooling": PoolingJob,
        "update": UpdateJob}

#: What jobs are made of: views of the instruction; which of them are there; shifts; `converts`: sums are measured; the
#: change of the parameters' exponent; rates.
Parts = data.StructLayout({
    "views": data.ArrayLayout(View, SLOTS), "there": SLOTS, "shifts": Shifts, "converts": 1,
    "change": change_shape(FORMAT), "rate": Rate, "decay": Rate})


def view_of(tensor, extent) -> list:
    """Assigns a view with absolute addresses from what `tensor` has written: pairs of field and value."""
    same = [name for name in View.members if name in Tensor.members]
    return [*((name, tensor[name]) for name in same),
            *((name, extent[name]) for name in ("first", "jump1", "jump2"))]


def _targets(job, op: TrainerOp, **renamed: str) -> list:
    """Where a job has the views of an instruction, under the names that they have there; some may be missing."""
    return [job[renamed.get(name, name)] for name in slots(op)]


def _views(targets: list, parts) -> list:
    """Statements that give a job the views of its instruction."""
    return [(target.view if _may_be_missing(target) else target).eq(view)
            for target, view in zip(targets, parts.views, strict=False)]


def _there(targets: list, parts) -> list:
    """Statements that say which views there are."""
    return [one.there.eq(there) for one, there in zip(targets, parts.there, strict=False) if _may_be_missing(one)]


def _may_be_missing(target) -> bool:
    return "there" in target.shape().members


def copy_job(job, word, parts) -> list:
    """Statements that make the job of a `copy`."""
    i, targets = fields(word, TrainerOp.COPY), _targets(job, TrainerOp.COPY)
    return [*_views(targets, parts), *_there(targets, parts), *(job[name].eq(i[name]) for name in (
        "add", "patches", "size", "channels"))]


def product_job(job, word, parts) -> list:
    """Statements that make the job of a `product`."""
    i, targets = fields(word, TrainerOp.PRODUCT), _targets(job, TrainerOp.PRODUCT)
    same = ("relu", "mode", "turned", "keep", "sum", "acc", "outputs", "n0", "n1", "n2", "a_s0")
    return [*_views(targets, parts), *_there(targets, parts), *(job[name].eq(i[name]) for name in same),
            job.right.eq(parts.shifts.right), job.bias_right.eq(parts.shifts.bias),
            job.bias_only.eq(parts.shifts.bias_only)]


def pooling_job(m: Module, job, kind, word, parts):
    """Make the job of a `pool`, a `pool_back` or an `add`."""
    m.d.comb += [job.converts.eq(parts.converts), job.right.eq(parts.shifts.right),
                 job.x_right.eq(parts.shifts.first), job.other_right.eq(parts.shifts.second)]
    for op, number, renamed in ((TrainerOp.POOL, POOL, {}), (TrainerOp.POOL_BACK, POOL_BACK, {}),
                                (TrainerOp.ADD, ADD, {"a": "x", "b": "other"})):
        i, targets = fields(word, op), _targets(job, op, **renamed)
        m.d.comb += _views(targets, parts)  # alike in all three, so that nothing chooses
        with m.If(kind[op.name.lower()]):
            m.d.comb += [job.kind.eq(number), *_there(targets, parts)]
            same = [name for name in ("size", "stride", "mean", "relu", "reciprocal") if name in i]
            m.d.comb += [job[name].eq(i[name]) for name in same]


def update_job(job, word, parts) -> list:
    """Statements that make the job of an `update`."""
    i, shifts = fields(word, TrainerOp.UPDATE), parts.shifts
    return [*_views(_targets(job, TrainerOp.UPDATE), parts), job.acc.eq(i["acc"]), job.bias.eq(i["bias"]),
            job.rate.eq(parts.rate.mantissa), job.decay.eq(parts.decay.mantissa), job.change.eq(parts.change),
            job.g_right.eq(shifts.gradient), job.kept_right.eq(shifts.first), job.gradient_right.eq(shifts.second),
            job.v_right.eq(shifts.right), job.p_right.eq(shifts.parameter)]


def share_job(job, word, x, first, added) -> list:
    """Statements that make the job which stores rows of accumulators to a region of a `sum`, or adds those there.

    Args:
        job:   The job.
        word:  The instruction.
        x:     Its view.
        first: First word of the region.
        added: Whether rows are added.
    """
    i, made = fields(word, TrainerOp.SUM), []
    rows = {"first": i["acc"], "space": Space.ACCUMULATORS, "planes": SUM_PLANES, "blocks": 2, "n0": 1, "n1": x.n1,
            "jump1": x.n2, "pitch1": x.n2, "step1": 1, "n2": x.n2, "jump2": 1, "pitch2": 1, "step2": 1}
    region = {name: x[name] for name in View.members} | {"n0": 1, "first": first}
    for name in View.members:
        row, word_ = rows.get(name, 0), region[name]
        made += [job.to[name].eq(Mux(added, row, word_)), job.source.view[name].eq(Mux(added, word_, row))]
    return [*made, job.source.there.eq(1), job.add.eq(added)]


def is_there(number):
    """Whether a number names a view."""
    return number != NONE
