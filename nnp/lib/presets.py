"""Choose the machine configuration for a model."""

from concord.compiler.network import Compiled, compile_network
from concord.compiler.support import problems
from concord.model.model import Model
from concord.spec.config import PRESETS
from concord.spec.machine_file import find_config, machine_name


def compile_for(model: Model, place: str) -> tuple[str, Compiled]:
    """Compile for the machine that `place` names; if `place` is empty, for the first preset that can run the model.

    Args:
        place: Name of a preset, or a TOML file.

    Returns:
        The name of the machine in reports, and what is compiled.

    Raises:
        ValueError: there is no such machine, or the model cannot be compiled for it, or for any preset.
    """
    if place:
        return machine_name(place), compile_network(model, find_config(place))
    reasons = {}
    # The presets made for a purpose come before the small ones made for tests.
    for candidate in sorted(PRESETS, key=lambda p: p in ("tiny", "serial", "wide")):
        try:
            return candidate, compile_network(model, PRESETS[candidate])
        except ValueError as error:
            reasons[candidate] = str(error)
    nearest = min(reasons, key=lambda p: len(problems(model, PRESETS[p])))
    raise ValueError(f"no preset takes the model; the nearest is {nearest}: {reasons[nearest]}")
