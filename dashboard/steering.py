"""What a user can change while a run trains, as commands for its worker."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from secrets import token_hex
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """A quantity that can be changed.

    Attributes:
        name:   Name in commands.
        label:  What the page calls it.
        unit:   Unit of its value; empty where it has none.
        lowest, highest: Smallest and largest value.
        whole:  Whether it is a whole number.
        layers: Whether one layer can have a value of its own.
    """

    name: str
    label: str
    unit: str = ""
    lowest: float
    highest: float
    whole: bool = False
    layers: bool = False


#: Quantities by their names.
CHANGES = {
    change.name: change
    for change in (
        Change(name="threshold", label="Threshold", unit="events", lowest=0, highest=2**62, whole=True, layers=True),
        Change(name="weights_factor", label="Factor a1 of weights", lowest=1, highest=1000, layers=True),
        Change(name="inputs_factor", label="Factor a2 of inputs", lowest=1, highest=1000, layers=True),
        Change(name="shrink", label="Smallest shrink", lowest=0.001, highest=1, layers=True),
        Change(name="accumulator", label="Accumulator", unit="bits", lowest=1, highest=64, whole=True),
        Change(name="product_bits", label="Products", unit="bits", lowest=1, highest=64, whole=True),
        Change(name="output_bits", label="Outputs", unit="bits", lowest=1, highest=64, whole=True),
        Change(name="rate", label="Learning rate", lowest=1e-9, highest=100))
}
#: Commands without a value.
DOING = {"pause": "Pause", "step": "One step", "go": "Go on", "stop": "Stop and keep"}
#: Quantities of a what-if.
ASKING = ("accumulator", "threshold")


def command_of(form: Mapping[str, str], layers: set[str]) -> dict[str, Any]:
    """The command of a form.

    Args:
        form:   `do`, and for a change `what`, `value` and, for one layer, `layer`.
        layers: Names of the layers of the run.

    Raises:
        ValueError: there is no such command, quantity or layer, or the value is out of range.
    """
    do = form.get("do", "")
    if do in DOING:
        return {"do": do}
    what, layer = form.get("what", ""), form.get("layer") or None
    if layer is not None and layer not in layers:
        raise ValueError(f"{layer}: there is no such layer; the run has {', '.join(sorted(layers)) or 'none yet'}")
    if do == "set" and what == "range" and layer is not None:
        return {"do": "set", "what": "range", "layer": layer, "value": form.get("value") != "free"}
    if do == "what_if" and what in ASKING:
        return {"do": "what_if", "id": token_hex(4), what: _number(CHANGES[what], form.get("value", ""))}
    if do != "set" or what not in CHANGES:
        raise ValueError(f"{do} {what}: there is no such command")
    change = CHANGES[what]
    if layer is not None and not change.layers:
        raise ValueError(f"{change.label}: it is that of the whole network, not of one layer")
    return {"do": "set", "what": what, "layer": layer, "value": _number(change, form.get("value", ""))}


def _number(change: Change, text: str) -> float | int | None:
    """The number of a text within the range of a quantity; None for "auto" of a factor."""
    if text.strip() == "auto" and change.name in ("weights_factor", "inputs_factor"):
        return None
    try:
        number = float(text)
    except ValueError:
        number = float("nan")
    if not isfinite(number) or change.whole and number != int(number):
        raise ValueError(f"{change.label}: {text!r} is no {'whole number' if change.whole else 'number'}")
    if not change.lowest <= number <= change.highest:
        raise ValueError(f"{change.label}: {text} is not in {change.lowest:g}..{change.highest:g}")
    return int(number) if change.whole else number
