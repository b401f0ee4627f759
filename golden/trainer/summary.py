"""What the updates of one tensor of parameters have met: from it `measure` decides whether the pass stands."""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

from concord.golden.lazy.lazy_update import Counts, next_change
from concord.spec.numbers.lazy import LazyFormat

FORMAT = LazyFormat()  #: How a trainer keeps parameters.


@dataclass(slots=True, kw_only=True)
class Summary:
    """Updates since the last `measure` of the kind update.

    Attributes:
        exponents:   Numbers of the exponents ew, ev and eg that they named; None before the first one.
        length:      Length of P, the products of learning rate and momenta: `golden.trainer.exponents.length`.
        lowest:      Smallest joint value, or 0.
        highest:     Largest joint value, or 0.
        largest:     Largest magnitude of a mantissa before it is limited.
        outside:     Whether a mantissa was limited.
        holds:       Whether an old mantissa or residual is not 0.
        steps, rounded, saturations: Counts of this pass.
    """

    exponents: tuple[int, int, int] | None = None
    length: int = 0
    lowest: int = 0
    highest: int = 0
    largest: int = 0
    outside: bool = False
    holds: bool = False
    steps: int = 0
    rounded: int = 0
    saturations: int = 0

    def change(self, exponent: int) -> int:
        """By how much the exponent of the parameters must change."""
        return next_change(self.lowest, self.highest, self.largest, not self.outside, exponent, FORMAT)

    def count(self, counts: Counts, change: int):
        """Add a pass that stands to counts."""
        counts.steps += self.steps
        counts.changes += change != 0
        counts.rounded += self.rounded
        counts.saturations += self.saturations


#: Counts of a core are its own; everything else of a summary is the largest over the cores, but for `lowest`.
_OWN = ("exponents", "steps", "rounded", "saturations")


def together(summaries: Iterable[Summary], own: Summary) -> Summary:
    """The summary of several cores, with a core's own counts."""
    found = list(summaries)
    joint: dict[str, Any] = {
        each.name: max(getattr(one, each.name) for one in found) for each in fields(Summary) if each.name not in _OWN
    }
    mine: dict[str, Any] = {name: getattr(own, name) for name in _OWN}
    joint["lowest"] = min(one.lowest for one in found)
    return Summary(**joint, **mine)
