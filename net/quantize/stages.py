"""Stages of quantisation-aware training: quantities that are initialised one after the other, with training between.

Source: paragraph [0144] of the first document.
"""

from dataclasses import dataclass
from enum import StrEnum


class Quantity(StrEnum):
    """What post-training quantisation gives a quantiser under training."""

    WEIGHTS = "weights"  #: integers and scales of weights
    SATURATIONS = "saturations"  #: b of the inputs of layers
    OFFSETS = "offsets"  #: m of the inputs of layers


#: Quantities of the codes of inputs.
OF_INPUTS = frozenset({Quantity.SATURATIONS, Quantity.OFFSETS})


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingStage:
    """Quantities that are initialised, and the training after it.

    Attributes:
        quantities: What is initialised.
        epochs:     Epochs of training afterwards, 0 or more.
    """

    quantities: tuple[Quantity, ...]
    epochs: int

    def __str__(self) -> str:
        return "+".join(self.quantities)


def stages_of(text: str) -> tuple[TrainingStage, ...]:
    """The stages of a text such as "weights:1, saturations+offsets:2"; none of an empty one.

    Raises:
        ValueError: the text is no such list, or a quantity is missing or stands twice.
    """
    if not text:
        return ()
    found = []
    for item in text.split(","):
        names, _, epochs = item.partition(":")
        wanted = [name.strip() for name in names.split("+")]
        if unknown := [name for name in wanted if name not in list(Quantity)]:
            raise ValueError(f"stages: {unknown[0]!r} cannot be initialised; choose among {', '.join(Quantity)}")
        if not epochs.strip().isdecimal():
            raise ValueError(f"stages: {item.strip()!r} needs a number of epochs after a colon, such as {wanted[0]}:1")
        found.append(TrainingStage(quantities=tuple(map(Quantity, wanted)), epochs=int(epochs)))
    named = [one for stage in found for one in stage.quantities]
    for one in Quantity:
        if named.count(one) != 1:
            raise ValueError(f"stages: {one} must stand in one stage, not in {named.count(one)}, such as "
                             '"weights:1, saturations:1, offsets:2"')
    return tuple(found)
