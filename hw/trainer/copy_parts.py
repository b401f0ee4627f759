"""The two sides of a copy, which walk for themselves: a job becomes one for its source and one for where it goes."""

from amaranth import *
from amaranth.lib import data, stream
from concord.hw.trainer.wires import View
from concord.spec.trainer.instructions import Space

#: What one side walks through.
WalkJob = data.StructLayout({"view": View, "by_rows": 1})
_COUNTS = "planes", "blocks", "n0", "n1", "n2"


def split(m: Module, job, source, to):
    """Give both sides their parts of a job when both are ready.

    Args:
        job:    Stream of CopyJob.
        source: Stream, whose payload has `view` and `by_rows`, and may have `zeros`, `patches`, `size` and `channels`.
        to:     Stream, whose payload has `view` and `by_rows`, and may have `zeros` and `add`. With `zeros` it makes
            them itself, and the source gets nothing.
    """
    p, there = job.p, job.p.source.there
    values = {"by_rows": (p.to.space == Space.ACCUMULATORS.value) | (
        there & (p.source.view.space == Space.ACCUMULATORS.value)), "zeros": ~there}
    values |= {name: p[name] for name in ("add", "patches", "size", "channels")}
    for side, view in (source, p.source.view), (to, p.to):
        known = side.p.shape().members.keys()
        m.d.comb += [side.p.view.eq(view), *(side.p[name].eq(values[name]) for name in known if name in values)]
    needed = there
    if "zeros" not in to.p.shape().members:
        needed = 1
        with m.If(~there):
            m.d.comb += [source.p.view[name].eq(p.to[name]) for name in _COUNTS]
    m.d.comb += [
        job.ready.eq(to.ready & (source.ready | ~needed)), source.valid.eq(job.valid & to.ready & needed),
        to.valid.eq(job.valid & (source.ready | ~needed))]


def buffered(m: Module, sink):
    """A stream whose payloads wait in a register until `sink` takes them."""
    made = stream.Signature(sink.p.shape()).create(path=("buffered",))
    m.d.comb += made.ready.eq(~sink.valid)
    with m.If(made.valid & made.ready):
        m.d.sync += [sink.p.eq(made.p), sink.valid.eq(1)]
    with m.Elif(sink.ready):
        m.d.sync += sink.valid.eq(0)
    return made
