"""Views as engines get them: with absolute addresses."""

from dataclasses import fields

from concord.golden.trainer.memory import Seen
from concord.hw.trainer.wires import ADDRESS, View
from concord.spec.trainer.config import PARAMETER_PLANES, SUM_PLANES
from concord.spec.trainer.views import TrainerView

ANY_PLANES = (1, 2, 4, PARAMETER_PLANES, SUM_PLANES)
_SAME = [each.name for each in fields(TrainerView) if each.name in View.members]


def view_fields(seen: Seen, column: bool = True) -> dict[str, int]:
    """The fields of `hw.trainer.wires.View`. Without `column`, axis 2 does not move the first word."""
    view = seen.view
    first = seen.first - (0 if column else view.pitch2 * view.origin2)
    jumps = {"jump1": view.pitch1 * view.step1, "jump2": view.pitch2 * view.step2}
    return {name: int(getattr(view, name)) for name in _SAME} | jumps | {"first": first % (1 << ADDRESS)}
