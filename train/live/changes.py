"""Changes to a training while it runs, and the file that keeps them; nothing here needs PyTorch."""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

#: Files in the folder of a run that others read: changes, what the run is doing, what it did, and its result.
STEERING, STATE, DATABASE, MODEL = "steering.json", "state.json", "live.db", "model.safetensors"
#: Attributes of `RangeSteps` that can be changed, of all products or of one.
STEPS = ("threshold", "weights_factor", "inputs_factor", "shrink")
#: Attributes of `Widths` that can be changed, by the names that changes have for them.
WIDTHS = {"accumulator": "sum_bits", "product_bits": "product_bits", "output_bits": "output_bits"}
#: Everything that can be changed: `range` fixes the ranges of a product or frees them, `stop` ends the training.
WHAT = (*STEPS, *WIDTHS, "rate", "range", "stop")


@dataclass(frozen=True, kw_only=True, slots=True)
class SteeringChange:
    """One change.

    Attributes:
        step:   Number of steps that were finished when it took effect.
        what:   One of `WHAT`.
        layer:  Name of the product that it is for; None for all of them.
        value:  The new value; of a range, whether it is fixed; of a factor, None to derive it.
        time:   When a user made it, in seconds since 1970.
        number: Number of the command that it was, from 1; 0 for none.

    Raises:
        ValueError: there is no such change.
    """

    step: int
    what: str
    layer: str | None = None
    value: float | None = None
    time: float = field(default=0.0, compare=False)
    number: int = field(default=0, compare=False)

    def __post_init__(self):
        if self.what not in WHAT:
            raise ValueError(f"{self.what}: this cannot be changed; what can is {', '.join(WHAT)}")
        for name in "step", "number":
            if not isinstance(getattr(self, name), int) or getattr(self, name) < 0:
                raise ValueError(f"{name} {getattr(self, name)}: it is a whole number from 0 on")
        if self.layer is not None and not isinstance(self.layer, str):
            raise ValueError(f"layer {self.layer}: a layer is named by its name")
        number = isinstance(self.value, int | float) and math.isfinite(self.value)
        if not number and not (self.value is None and self.what in ("stop", "weights_factor", "inputs_factor")):
            raise ValueError(f"{self.what} {self.value}: a number is needed")

    def __str__(self) -> str:
        if self.what == "stop":
            return f"stopped after {self.step} steps"
        if self.what == "range":
            return f"ranges of {self.layer or 'all layers'} {'fixed' if self.value else 'free'} after {self.step} steps"
        value = "derived" if self.value is None else f"{self.value:g}"
        return f"{self.what}{f' of {self.layer}' if self.layer else ''} = {value} after {self.step} steps"


def read_changes(path: Path) -> list[SteeringChange]:
    """The changes of a file, in their order.

    Raises:
        ValueError: it is no file of changes; the sentence names it.
    """
    try:
        found = json.loads(Path(path).read_text())
        names = [each.name for each in fields(SteeringChange)]
        changes = [SteeringChange(**{name: each[name] for name in names if name in each}) for each in found]
    except (OSError, UnicodeDecodeError, ValueError, TypeError) as error:
        raise ValueError(f"{path}: it is no list of changes ({error}); the steering.json of a run is one") from error
    if [each.step for each in changes] != sorted(each.step for each in changes):
        raise ValueError(f"{path}: the steps of its changes do not rise; give the steering.json of a run as it is")
    return changes


def written_changes(changes: Sequence[SteeringChange]) -> str:
    """The text of a file of changes."""
    return json.dumps([asdict(each) for each in changes], indent=1)


def words_of(changes: Sequence[SteeringChange]) -> str:
    """What has been changed, as the end of a sentence about training; empty if nothing was."""
    return f"; steered: {', '.join(map(str, changes))}" if changes else ""
