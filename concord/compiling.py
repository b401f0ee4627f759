"""`concord.compile`: a quantised model becomes firmware for one machine."""

import os
from dataclasses import replace

from concord.loading import model_of
from concord.objects import Model, Program


def compile(model: Model | str | os.PathLike, *, preset: str = "", full_precision: bool = False
            ) -> Program:
    """Compile a quantised model, as `nnp compile` does.

    Args:
        model:  What `quantize`, `finetune` or `load` gives, or the path of a quantised model.
        preset: Machine: a preset or a TOML file; the smallest preset that takes the model by default.
        full_precision: Whether the firmware also holds the numbers before any rounding, for `run(unquantized=True)`.

    Raises:
        ValueError: there is no such machine, or it cannot run the model; the message has a line for each reason. Or
            the model does not hold the numbers of its float network.
    """
    from concord.compiler.network import full_precision as numbers_of
    from concord.workflows.presets import compile_for

    quantized = model_of(model).quantized
    machine, compiled = compile_for(quantized, preset)
    firmware = compiled.firmware
    if full_precision:
        firmware = replace(firmware, full_precision=numbers_of(quantized, firmware))
    return Program(firmware=firmware, machine=machine, usage=compiled.usage)
