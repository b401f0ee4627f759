"""Jobs of the pooling engine, as the sequencer makes them of instructions."""

from concord.golden.lazy.tensor_layers import REACH
from concord.golden.trainer.core import TrainerCore
from concord.hw.trainer.wires import ADD, POOL, POOL_BACK
from concord.sim.trainer.jobs.views import ANY_PLANES, view_fields
from concord.spec.trainer.instructions import TrainerInstruction, TrainerOp

_MOST_LEFT, _MOST_RIGHT = 32, 63  #: Shifts of a converter; further ones change no bit.
_NO_TERM = 17  #: A number of 16 bits that is shifted so far to the right becomes 0.
_KINDS = {TrainerOp.POOL: POOL, TrainerOp.POOL_BACK: POOL_BACK, TrainerOp.ADD: ADD}
_SAME = "size", "stride", "mean", "relu", "reciprocal"


def pooling_job(core: TrainerCore, i: TrainerInstruction) -> dict:
    """The job of a `pool`, `pool_back` or `add`: the fields of `hw.trainer.wires.PoolingJob`."""
    kind, adds = _KINDS[i.op], i.op == TrainerOp.ADD
    names = {"y": "y", "x": "a", "other": "b"} if adds else {"y": "y", "x": "x"}
    seen = {field: core.seen(i[name], ANY_PLANES, name) for field, name in names.items()}
    job = {name: i[name] for name in _SAME if name in i.values} | {"kind": kind}
    job |= {field: view_fields(view) for field, view in seen.items()}
    for name in ("chosen", "mask"):
        if name in i.values and (view := core.optional(i[name], ANY_PLANES, name)):
            job[name] = {"there": 1, "view": view_fields(view)}
    planes = seen["y"].view.planes
    if adds:
        units = [core.exponents[i[name]].unit(planes) for name in ("ea", "eb")]
        lsb = max(min(units), max(units) - REACH)
        job |= {name: min(lsb - unit, _NO_TERM) for name, unit in zip(("x_right", "other_right"), units, strict=True)}
    else:
        lsb = core.exponents[i["ex"]].unit(planes) - i["shift"]
    if adds or i["mean"] or (kind == POOL_BACK and i["stride"] < i["size"]):
        right = core.exponents[i["ey"]].next - (8 * planes - 1) - lsb
        job |= {"converts": 1, "right": min(max(right, -_MOST_LEFT), _MOST_RIGHT)}
    return job
