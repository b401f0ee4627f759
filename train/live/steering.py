"""Changes to a training while it runs: what they are, how a file keeps them, and how they take effect.

A change takes effect between two steps of training, and nothing else but its number of finished steps says when. So the
same changes give the same network, whether a user made them, or a file repeats them.

Source: S3.d; S3.e.
"""

import json
import math
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from concord.train.lib.observer import TrainingState
from concord.train.overflow.predictor import Predictor

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

    Raises:
        ValueError: there is no such change.
    """

    step: int
    what: str
    layer: str | None = None
    value: float | None = None

    def __post_init__(self):
        if self.what not in WHAT:
            raise ValueError(f"{self.what}: this cannot be changed; what can is {', '.join(WHAT)}")
        if not isinstance(self.step, int) or self.step < 0:
            raise ValueError(f"step {self.step}: a change comes after 0 steps or more")
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
        changes = [
            SteeringChange(**{key: each.get(key) for key in ("step", "what", "layer", "value")}) for each in found
        ]
    except (OSError, UnicodeDecodeError, ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"{path}: it is no list of changes ({error}); the steering.json of a run is one") from error
    if [each.step for each in changes] != sorted(each.step for each in changes):
        raise ValueError(f"{path}: the steps of its changes do not rise; give the steering.json of a run as it is")
    return changes


def written_changes(changes: Sequence[SteeringChange], times: Sequence[float]) -> str:
    """The text of a file of changes, with the time of each."""
    return json.dumps([asdict(each) | {"time": time} for each, time in zip(changes, times, strict=True)], indent=1)


def words_of(changes: Sequence[SteeringChange]) -> str:
    """What has been changed, as the end of a sentence about training; empty if nothing was."""
    return f"; steered: {', '.join(map(str, changes))}" if changes else ""


def apply(change: SteeringChange, predictor: Predictor | None, state: TrainingState):
    """Let a change take effect. Ranges follow it at once; if they cannot, everything stays as it was.

    Raises:
        ValueError: it cannot take effect.
    """
    if change.what == "rate":
        _set_rate(change.value or 0.0, state)
    elif change.what != "stop":
        if predictor is None:
            raise ValueError(f"{change.what}: no overflows are counted; begin the training with --accumulator")
        _settle(predictor, state, lambda: set_overflow(change, predictor))


def set_overflow(change: SteeringChange, predictor: Predictor | None):
    """Set what a change is about, and leave the ranges as they are.

    Raises:
        ValueError: there is no such product, or the value is out of range.
    """
    if predictor is None or change.what in ("rate", "stop"):
        return
    names = [change.layer] if change.layer else list(predictor.factors)
    for name in names:
        if name not in predictor.factors:
            raise ValueError(f"{name}: there is no such layer; there are {', '.join(predictor.factors)}")
    if change.what == "range":
        predictor.fixed = predictor.fixed | set(names) if change.value else predictor.fixed - set(names)
    elif change.what in WIDTHS:
        if change.layer:
            raise ValueError(f"{change.what}: storage is that of the machine, not of one layer")
        predictor.widths = replace(predictor.widths, **{WIDTHS[change.what]: int(change.value or 0)})
    else:
        value = int(change.value or 0) if change.what == "threshold" else change.value
        predictor.own |= {name: replace(predictor.steps_of(name), **{change.what: value}) for name in names}


def _set_rate(rate: float, state: TrainingState):
    """Set the learning rate of the first group of parameters; the others keep their ratio to it."""
    groups = state.optimiser.param_groups
    if not 0 < rate < 100:
        raise ValueError(f"rate {rate:g}: a learning rate is above 0, such as 0.01")
    if not groups or not groups[0]["lr"]:
        raise ValueError("rate: this phase has come to its end, where the learning rate is 0")
    factor = rate / groups[0]["lr"]
    for group in groups:
        group["lr"] *= factor
        group["initial_lr"] *= factor
    state.schedule.base_lrs = [each * factor for each in state.schedule.base_lrs]


def _settle(predictor: Predictor, state: TrainingState, change: Callable[[], None]):
    """Change the predictor's settings and let it run; put everything back if it fails."""
    kept = {name: tensor.clone() for name, tensor in state.net.state_dict().items()}
    before = predictor.widths, dict(predictor.own), set(predictor.fixed), deepcopy(predictor.state_dict())
    try:
        change()
        with torch.no_grad():
            predictor.note()
    except ValueError:
        state.net.load_state_dict(kept)
        predictor.widths, predictor.own, predictor.fixed, factors = before
        predictor.load_state_dict(factors)
        raise
