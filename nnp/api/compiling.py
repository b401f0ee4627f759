"""`concord.compile`: a quantised model becomes firmware for one machine."""

import os

from concord.nnp.api.loading import model_of
from concord.nnp.api.objects import Model, Program


def compile(model: Model | str | os.PathLike, *, preset: str = "") -> Program:
    """Compile a quantised model, as `nnp compile` does.

    Args:
        model:  What `quantize`, `train` or `load` gives, or the path of a quantised model.
        preset: Machine: a preset or a TOML file; the smallest preset that takes the model by default.

    Raises:
        ValueError: there is no such machine, or it cannot run the model; the message has a line for each reason.
    """
    from concord.nnp.lib.presets import compile_for

    machine, compiled = compile_for(model_of(model).quantised, preset)
    return Program(firmware=compiled.firmware, machine=machine, usage=compiled.usage)
