"""Compile a quantised model into firmware."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from concord.compiler.compilation import Compilation
from concord.compiler.lib.bounds import Bound
from concord.compiler.lib.build import Build
from concord.compiler.lib.neighbours import ALONE, Neighbours
from concord.compiler.lib.reason import Reason, Refused
from concord.compiler.lib.received import entering
from concord.compiler.lib.uses import uses
from concord.compiler.support import problems
from concord.firmware.firmware import Firmware
from concord.firmware.full_precision import FullPrecision
from concord.net.full_precision import layers_of
from concord.net.layers.layer import Layer
from concord.net.lowering.full_precision import Numbers
from concord.net.model import Model
from concord.spec.isa.memories import FILLED, MEMORY_NAMES, depth
from concord.spec.machine.config import Config


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Compiled:
    """The result of a compilation.

    Attributes:
        firmware: Firmware for the machine.
        bounds:   Bound of the sums of each product, which tells whether a sum may overflow.
        usage:    For each memory by name, the number of words or tiles in use, and the number that it has.
        uses:     For each depth of the machine by its attribute, the smallest value under which the program runs.
        sent:     Names of the layers whose results leave the machine, in order.
    """

    firmware: Firmware
    bounds: tuple[Bound, ...]
    usage: Mapping[str, tuple[int, int]]
    uses: Mapping[str, int]
    sent: tuple[str, ...] = ()


def compile_network(model: Model, config: Config, neighbours: Neighbours = ALONE) -> Compiled:
    """Compile a model for one machine.

    Args:
        model:      The model, or a part of one.
        config:     The machine.
        neighbours: The machines before and behind, where the model is a part.

    Raises:
        Refused: the machine cannot run the model. The message has a line for each layer that cannot be compiled, or
            for each memory that is too small.
    """
    found = problems(model, config, neighbours)
    if found:
        raise Refused(f"{model.name} cannot be compiled for this machine:", found)
    build, plan = _emitted(model, config, neighbours)
    if len(build.program.instructions) > config.instructions:
        build, plan = _emitted(model, config, neighbours, short=True)
    _check_sizes(build, model.name)
    firmware = Firmware(
        name=model.name,
        config=config,
        data=model.data,
        description=model.description,
        axes=model.axes,
        classes=model.classes,
        inputs=sum(entering(model)),
        outputs=sum(layer.outputs for layer in model.layers if layer.name in plan.sent),
        loop=build.program.loop,
        text=build.program.text(),
        instruction_words=np.array(build.program.instruction_words(), np.uint64),
        sections=tuple(build.program.sections),
        vectors=build.allocator.images(),
        tiles=build.tiles(),
        biases=build.biases(),
        **plan.host,
    )
    return Compiled(firmware=firmware, bounds=tuple(build.bounds), usage=_usage(build), uses=uses(build),
                    sent=plan.sent)


def full_precision(model: Model, firmware: Firmware, numbers: Numbers = Numbers.REAL) -> FullPrecision:
    """The numbers that the memories of compiled firmware would hold before any rounding, for the same program.

    Args:
        model:    The model that the firmware was compiled from.
        firmware: The firmware.
        numbers:  Which numbers fill the memories.

    Raises:
        ValueError: a layer does not hold the numbers of its float network, or the firmware is that of another model.
    """
    real, words = layers_of(model, numbers), firmware.instruction_words.tolist()
    for short in (False, True):
        build, plan = _emitted(model, firmware.config, ALONE, short=short, real=real)
        if build.program.instruction_words() == words:
            return FullPrecision(
                vectors=build.allocator.images(), tiles=build.real_tiles(), biases=build.biases(),
                entries=plan.host.get("entries", ()), clips=build.program.clips())
    raise ValueError(f"{firmware.name} is not the firmware of model {model.name!r}: compile the model again")


def _emitted(
    model: Model, config: Config, neighbours: Neighbours, *, short: bool = False,
    real: Mapping[str, Layer] | None = None,
) -> tuple[Build, Compilation]:
    """The whole program of a model; a short one has strips of images in loops. For `real` see `Build`."""
    build = Build(config, short=short, real=real)
    plan = Compilation(build, model, neighbours)
    plan.emit()
    build.program.end()
    return build, plan


def _usage(build: Build) -> dict[str, tuple[int, int]]:
    used = {
        MEMORY_NAMES[mem]: (build.allocator.used(mem), depth(build.config, mem))
        for mem in FILLED if depth(build.config, mem)
    }
    return used | {"instructions": (len(build.program.instructions), build.config.instructions)}


def _check_sizes(build: Build, name: str):
    """Raise an error about all memories that are too small, before anything is packed."""
    found = build.allocator.shortages() + build.shortages
    used, available = len(build.program.instructions), build.config.instructions
    if used > available:
        found.append(Reason(
            sentence=f"the instruction buffer needs {used} words and has {available}, {used - available} too few",
            attribute="instructions", needed=used, available=available))
    if found:
        raise Refused(
            f"{name} is too large for this machine: make the network smaller or choose a larger preset:", found)
