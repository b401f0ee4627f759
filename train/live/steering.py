"""How changes to a training take effect.

A change takes effect between two steps of training, and nothing else but its number of finished steps says when. So the
same changes give the same network, whether a user made them, or a file repeats them.

Source: S3.d; S3.e.
"""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace

import torch
from concord.train.lib.observer import TrainingState
from concord.train.live.changes import WIDTHS, SteeringChange
from concord.train.overflow.predictor import Predictor


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
