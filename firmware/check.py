"""Checks of firmware: its parts fit the machine and each other, and its program is legal."""

from math import prod

import numpy as np
from concord.golden.mvm.elements import representable
from concord.lib.names import check_printable
from concord.spec.isa.assembler import assemble
from concord.spec.isa.check import check
from concord.spec.isa.instructions import Op, decode
from concord.spec.isa.memories import MEMORY_NAMES, VRFS, Mem, depth
from numpy.typing import DTypeLike


def check_shapes(firmware):
    """Refuse contents of memories that the machine of a `Firmware` cannot hold.

    Raises:
        ValueError: a sentence that names the content.
    """
    config = firmware.config
    if not isinstance(firmware.description, str):
        raise ValueError(f"description: a text is needed, not {firmware.description!r}; compile again")
    if firmware.axes is not None and prod(firmware.axes.shape) != firmware.inputs:
        raise ValueError(f"axes: an input of {firmware.inputs} numbers is not "
                         f"{' x '.join(map(str, firmware.axes.shape))}; compile again")
    check_printable("the name", (firmware.name, firmware.data, *firmware.classes,
                                 *(section.layer for section in firmware.sections)))
    size, lanes, tiles = config.native_dim, config.mfu_lanes, firmware.tiles
    count = len(tiles.mantissas)
    wanted: dict[str, tuple[np.ndarray, DTypeLike, tuple[int, ...]]] = {
        "words": (firmware.instruction_words, np.uint64, (len(firmware.instruction_words),)),
        "tiles, mantissas": (tiles.mantissas, np.dtype(config.weights.dtype), (count, size, size)),
        "tiles, exponents": (tiles.exponents, np.int8, (count, size)),
        "tiles, integer": (tiles.integer, np.bool_, (count,)),
        "biases": (firmware.biases, np.int32, (len(firmware.biases), lanes)),
    } | {MEMORY_NAMES[mem]: (words, np.uint16, (len(words), lanes)) for mem, words in firmware.vectors.items()}
    for k, part in enumerate(firmware.entries):
        shape = len(part.mantissas), size
        wanted[f"entries {k}, mantissas"] = part.mantissas, np.dtype(config.activations.dtype), shape
        wanted[f"entries {k}, exponents"] = part.exponents, np.int8, (len(part.mantissas),)
    for name, (array, dtype, shape) in wanted.items():
        if array.dtype != dtype or array.shape != shape:
            raise ValueError(f"{name}: {np.dtype(dtype)}{list(shape)} is needed, not {array.dtype}{list(array.shape)}")
    sizes = {Mem.MATRIX_RF: count, Mem.BIAS_RF: len(firmware.biases)} | {m: len(v) for m, v in firmware.vectors.items()}
    sizes[Mem.VECTOR_RF] = max((part.address + len(part.mantissas) for part in firmware.entries), default=0)
    for mem, used in sizes.items():
        if used > depth(config, mem):
            raise ValueError(f"{MEMORY_NAMES[mem]} holds {depth(config, mem)} items, the firmware brings {used}")
    if not set(firmware.vectors) <= {*VRFS, Mem.DRAM}:
        raise ValueError("vectors go to random-access vector memories and to Dram only")
    if not 0 <= firmware.constant_words <= len(firmware.vectors.get(Mem.DRAM, ())):
        raise ValueError(f"{firmware.constant_words} words of Dram are constants, and the firmware brings "
                         f"{len(firmware.vectors.get(Mem.DRAM, ()))}")
    if any(part.address < 0 or not len(part.mantissas) for part in firmware.entries):
        raise ValueError("a range of VectorRf begins at 0 or later and has at least one entry")
    _check_ranges(firmware)


def require_single(firmware, what: str):
    """Refuse firmware that takes several samples at once.

    Raises:
        ValueError: a sentence that begins with what takes one sample at a time.
    """
    if firmware.batch > 1:
        raise ValueError(f"{what} takes one input at a time, and {firmware.name} takes {firmware.batch} at once: "
                         "compile it without --batch")


def _check_ranges(firmware):
    config, tiles = firmware.config, firmware.tiles
    fmt = config.activations
    for what, array, low, high in (
        *(("mantissas of entries", part.mantissas, fmt.lowest, fmt.highest) for part in firmware.entries),
        *(("exponents of entries", part.exponents, fmt.e_min, fmt.e_max) for part in firmware.entries),
        ("mantissas", tiles.mantissas, config.weights.lowest, config.weights.highest),
        ("exponents", tiles.exponents, config.weights.e_min, config.weights.e_max),
        ("biases", firmware.biases, -(1 << config.bias_bits - 1), (1 << config.bias_bits - 1) - 1),
    ):
        if array.size and not low <= array.min() <= array.max() <= high:
            raise ValueError(f"{what} lie in {array.min()}..{array.max()}, the machine takes {low}..{high}")
    for what, array, operand in (
        *(("mantissas of entries", part.mantissas, fmt) for part in firmware.entries),
        ("mantissas", tiles.mantissas, config.weights),
    ):
        if not representable(array, operand):
            raise ValueError(f"{what}: some are no numbers of {operand.element}, the operands of the machine")


def check_program(firmware):
    """Refuse a program that is not legal, and sizes and layouts of inputs and outputs that do not fit each other.

    Raises:
        ValueError: a sentence on what is wrong.
    """
    if firmware.inputs < 0 or firmware.outputs < 1:
        raise ValueError(f"inputs are 0 at least and outputs 1, not {firmware.inputs} and {firmware.outputs}")
    if firmware.input_words is not None and firmware.inputs > firmware.input_words * firmware.config.mfu_lanes:
        raise ValueError(f"{firmware.inputs} inputs do not fit {firmware.input_words} words of "
                         f"{firmware.config.mfu_lanes} lanes")
    if firmware.batch != 1 and (firmware.batch < 1 or firmware.recurrent or not firmware.input_layout
                                or not firmware.output_layout):
        raise ValueError(f"a batch of {firmware.batch} vectors needs layouts of its inputs and outputs; compile again")
    if firmware.steps is not None and (firmware.steps < 1 or firmware.loop is not None or not firmware.input_layout):
        raise ValueError(f"inputs of {firmware.steps} time steps need a layout and no loop that the host sets; compile "
                         "again")
    if firmware.input_layout:
        count = firmware.inputs * (firmware.steps or firmware.batch)
        firmware.input_layout.check(firmware.config, count, "the input")
    if firmware.output_layout:
        firmware.output_layout.check(firmware.config, firmware.outputs * firmware.batch, "the output", whole=True)
    words = [int(word) for word in firmware.instruction_words]
    if assemble(firmware.text) != words:
        raise ValueError("the program text does not mean the program's words; compile again")
    if firmware.loop is not None:
        instruction = decode(words[firmware.loop]) if 0 <= firmware.loop < len(words) else None
        if instruction is None or instruction.op != Op.LOOP:
            raise ValueError(f"instruction {firmware.loop} is not the loop over time steps; compile again")
    violation = check(words, firmware.config, firmware.tiles.modes(firmware.config), firmware.constant_words)
    if violation:
        raise ValueError(f"the program is not legal: {violation}")
