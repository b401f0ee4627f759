"""Why a machine cannot run a model: sentences, each with the attribute of the machine that would have to change."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from concord.spec.numbers.formats import Format


@dataclass(frozen=True, kw_only=True, slots=True)
class Reason:
    """One reason why a machine cannot run a model.

    Attributes:
        sentence:  The reason in the user's words, and what to do.
        attribute: Field of `spec.machine.config.Config` that would have to change; empty if no machine runs the model.
        needed:    Smallest value of the attribute that would do, or the format that it must be; None for no attribute.
        available: Value of the attribute.
    """

    sentence: str
    attribute: str = ""
    needed: int | Format | None = None
    available: int | Format | None = None

    def __str__(self) -> str:
        said = not isinstance(self.needed, int) or self.attribute in self.sentence
        need = "" if said else f"; the machine needs `{self.attribute} = {self.needed}` at least"
        return self.sentence + need

    def of(self, subject: str) -> "Reason":
        """The reason with the name of what it is about in front."""
        return replace(self, sentence=f"{subject}: {self.sentence}")


class Refused(ValueError):
    """A machine cannot run a model.

    Args:
        heading: Begin of the message, to which each reason adds a line.
        reasons: The reasons, at least one.
    """

    def __init__(self, heading: str, reasons: Sequence[Reason]):
        super().__init__(heading, tuple(reasons))

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """The reasons."""
        return self.args[1]

    def __str__(self) -> str:
        return "\n".join([self.args[0], *map(str, self.reasons)])
