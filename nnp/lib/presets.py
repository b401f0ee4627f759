"""Choose the machine configuration for a model."""

from concord.compiler.network import Compiled, compile_network
from concord.compiler.support import problems
from concord.model.model import Model
from concord.spec.config import PRESETS, preset


def compile_for(model: Model, name: str) -> tuple[str, Compiled]:
    """Compile for the preset called `name`; if `name` is empty, for the first preset that can run the model.

    Raises:
        ValueError: there is no such preset, or the model cannot be compiled for it, or for any preset.
    """
    if name:
        return name, compile_network(model, preset(name))
    reasons = {}
    # The presets made for a purpose come before the small ones made for tests.
    for candidate in sorted(PRESETS, key=lambda p: p in ("tiny", "serial", "wide")):
        try:
            return candidate, compile_network(model, PRESETS[candidate])
        except ValueError as error:
            reasons[candidate] = str(error)
    nearest = min(reasons, key=lambda p: len(problems(model, PRESETS[p])))
    raise ValueError(f"no preset takes the model; the nearest is {nearest}: {reasons[nearest]}")
