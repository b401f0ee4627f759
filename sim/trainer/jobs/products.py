"""Jobs of the tensor engine, as the sequencer makes them of instructions."""

from concord.golden.lazy.tensor_layers import BIAS_REACH
from concord.golden.trainer.core import TrainerCore
from concord.sim.trainer.jobs.views import ANY_PLANES, view_fields
from concord.spec.trainer.instructions import TrainerInstruction

_MOST_LEFT, _MOST_RIGHT = 32, 63  #: Shifts of a converter; further ones change no bit.
_NO_BIAS = 9  #: A byte that is shifted so far to the right becomes 0.
_SAME = "relu", "mode", "turned", "keep", "sum", "acc", "outputs", "n0", "n1", "n2", "a_s0"


def product_job(core: TrainerCore, i: TrainerInstruction) -> dict:
    """The job of a `product`: the fields of `hw.trainer.wires.ProductJob`."""
    a, b = (core.seen(i[name], ANY_PLANES, name) for name in ("a", "b"))
    y, bias, mask = others = [core.optional(i[name], ANY_PLANES, name) for name in ("y", "bias", "mask")]
    job = {name: i[name] for name in _SAME} | {"a": view_fields(a), "b": view_fields(b)}
    for name, seen in zip(("y", "bias", "mask"), others, strict=True):
        job[name] = {"there": 1, "view": view_fields(seen)} if seen else {}
    unit = core.exponents[i["ea"]].unit(a.view.planes) + core.exponents[i["eb"]].unit(1)
    if bias:
        apart = core.exponents[i["ebias"]].unit(1) - unit
        job["bias_only"] = int(apart > BIAS_REACH)
        unit += apart * job["bias_only"]
        job["bias_right"] = max(min(-apart, _NO_BIAS), -BIAS_REACH)  # `bias_only` ignores it
    if y:
        right = core.exponents[i["ey"]].next - (8 * y.view.planes - 1) - unit
        job["right"] = min(max(right, -_MOST_LEFT), _MOST_RIGHT)
    return job
