"""Options of `concord.quantize` and `concord.train`: those of `nnp quantize` and `nnp train FILE`, with `_` for `-`."""

from difflib import get_close_matches
from inspect import signature
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from concord.train.imported.choices import Choices

#: Options that choose the quantisation of gates, and the attributes of `Gates` that they set.
GATES = {"asymmetric": "asymmetric", "shared": "shared", "gate_bits": "outputs"}


def choices(preset: str, arithmetic: str, options: dict) -> "Choices":
    """How a network is quantised for a machine.

    Args:
        preset:     A preset or a TOML file; empty where `weights_bits` and `input_bits` decide.
        arithmetic: "integer", or "bfp" for block floating point.
        options:    Further options by name; None stands for the default.

    Raises:
        ValueError: there is no such option, machine or method, or they contradict each other.
    """
    from concord.nnp.lib.choices import choices_for
    from concord.train.lib.methods import Gates

    given = {name: value for name, value in options.items() if value is not None}
    known = {*list(signature(choices_for).parameters)[2:], *GATES}
    if unknown := [name for name in given if name not in known]:
        near = get_close_matches(unknown[0], [*known, "preset", "calibration", "epochs", "rate"], 1)
        raise ValueError(f"there is no option {unknown[0]}: " + (
            f"is {near[0]} meant?" if near else f"choose among {', '.join(sorted(known))}"))
    if not preset and not {"weights_bits", "input_bits"} <= given.keys():
        raise ValueError('name the machine, such as preset="vision" or preset="speech", or give weights_bits and '
                         "input_bits")
    gates = {attribute: given.pop(name) for name, attribute in GATES.items() if name in given}
    if gates:
        given["gates"] = Gates(**gates)
    return choices_for(preset, arithmetic, **given)
