"""Jobs of the load, store and move engines, as the sequencer makes them of instructions."""

from concord.golden.trainer.core import TrainerCore
from concord.golden.trainer.memory import Seen
from concord.sim.trainer.jobs.views import ANY_PLANES, view_fields
from concord.spec.trainer.instructions import Space, TrainerInstruction


def copy_job(core: TrainerCore, i: TrainerInstruction) -> tuple[str, dict]:
    """The engine that executes a `copy`, and its job: the fields of `hw.trainer.wires.CopyJob`."""
    to, source = (
        core.seen(i[name], ANY_PLANES, name) if not i["zeros"] or name == "to" else None for name in ("to", "source")
    )
    return between(to, source, **{name: i[name] for name in ("add", "patches", "size", "channels")})


def between(to: Seen, source: Seen | None, **fields: int) -> tuple[str, dict]:
    """The engine that copies between two views, or zeros to one, and its job."""
    job = {"to": view_fields(to), "source": {}, **fields}
    if source:
        job["source"] = {"there": 1, "view": view_fields(source, column=not fields.get("patches"))}
    if to.view.space == Space.SERVER:
        return "store", job
    return "load" if source and source.view.space == Space.SERVER else "move", job
