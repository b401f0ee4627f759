"""Jobs of the update engine, as the sequencer makes them of instructions."""

from concord.golden.lazy.tensor_layers import unit
from concord.golden.lazy.tensor_training import MOMENTUM_REACH
from concord.golden.trainer.core import TrainerCore
from concord.golden.trainer.summary import FORMAT
from concord.sim.trainer.jobs.views import view_fields
from concord.spec.numbers.lazy import Width
from concord.spec.trainer.config import PARAMETER_PLANES
from concord.spec.trainer.instructions import TrainerInstruction

_MOST_LEFT, _MOST_RIGHT = 32, 63  #: Shifts of a converter; further ones change no bit.


def update_job(core: TrainerCore, i: TrainerInstruction) -> dict:
    """The job of an `update`: the fields of `hw.trainer.wires.UpdateJob`."""
    ew, ev, eg = (core.exponents[i[name]] for name in ("ew", "ev", "eg"))
    gradient, kept = eg.next - (Width.LINEAR - 1), unit(core.decay) + ev.unit(2)
    lsb = max(min(kept, gradient), max(kept, gradient) - MOMENTUM_REACH)
    momentum = ev.next - (Width.GRADIENT - 1)
    shifts = {
        "g_right": gradient - eg.lsb,
        "kept_right": lsb - kept,
        "gradient_right": lsb - gradient,
        "v_right": momentum - lsb,
        "p_right": ew.now - (FORMAT.bits - 1) - FORMAT.shift - (unit(core.rate) + momentum),
    }
    views = {name: view_fields(core.seen(i[name], (PARAMETER_PLANES,), name)) for name in ("old", "new")}
    mantissas = {"decay": int(core.decay.mantissas.item()), "rate": int(core.rate.mantissas.item())}
    limited = {name: min(max(shift, -_MOST_LEFT), _MOST_RIGHT) for name, shift in shifts.items()}
    return views | mantissas | limited | {"acc": i["acc"], "bias": i["bias"], "change": ew.change}
