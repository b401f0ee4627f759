"""Compile a quantised model into firmware."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from concord.compiler.compilation import Compilation
from concord.compiler.emit.far_addresses import come_near
from concord.compiler.emit.scalar_writes import without_repeated_writes
from concord.compiler.emit.tile_loads import load_tiles
from concord.compiler.lib.build import ModelBuild
from concord.compiler.lib.limits import CannotRun, Reason
from concord.compiler.lib.neighbours import ALONE, Neighbours, entering
from concord.compiler.lib.tiling import Bound
from concord.compiler.spills import spilled
from concord.compiler.support import problems
from concord.firmware.firmware import Firmware
from concord.firmware.full_precision import FullPrecision
from concord.net.layers.layer import Layer
from concord.net.lowering.full_precision import MemoryNumbers
from concord.net.model import Model
from concord.net.network import layers_of
from concord.spec.isa.instructions import ADDRESS_BITS, Instruction, Op, Reg
from concord.spec.isa.memories import FILLED, MEMORY_NAMES, Mem, depth
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


def compile_network(model: Model, config: Config, neighbours: Neighbours = ALONE, *, batch: int = 1) -> Compiled:
    """Compile a model for one machine.

    Args:
        model:      The model, or a part of one.
        config:     The machine.
        neighbours: The machines before and after, where the model is a part.
        batch:      Number of samples that the machine takes at once, in networks of vectors.

    Raises:
        ValueError: the samples of the model cannot be taken at once.
        Refused: the machine cannot run the model. The message has a line for each layer that cannot be compiled, or
            for each memory that is too small.
    """
    if batch != 1:
        return _for_samples(model, config, batch)
    found = problems(model, config, neighbours)
    if found:
        raise CannotRun(f"{model.name} cannot be compiled for this machine:", found)
    if config.dram_words and _tiles(model, config, neighbours) > config.matrix_tiles:
        build, plan = _with_loads(model, config, neighbours)
    else:
        build, plan = _emitted(model, config, neighbours, waves=True)
        if plan.waves and not plan.fits:
            build, plan = _emitted(model, config, neighbours)
        if len(build.program.instructions) > config.instructions:
            build, plan = _emitted(model, config, neighbours, short=True)
    build.shortages += come_near(build.program)
    _check_sizes(build, model.name)
    outside = build.outside() if build.loads else None
    firmware = Firmware(
        name=model.name,
        config=config,
        data=model.data,
        description=model.description,
        axes=model.axes,
        classes=model.classes,
        results=model.results,
        table=model.table,
        inputs=sum(entering(model)),
        outputs=sum(layer.outputs for layer in model.layers if layer.name in plan.sent),
        loop=build.program.loop,
        text=build.program.text(),
        instruction_words=np.array(build.program.instruction_words(), np.uint64),
        sections=tuple(build.program.sections),
        vectors=build.allocator.images() | ({} if outside is None else {Mem.DRAM: outside}),
        tiles=build.tiles(),
        biases=build.biases(),
        constant_words=0 if outside is None else len(outside),
        **plan.host,
    )
    return Compiled(firmware=firmware, bounds=tuple(build.bounds), usage=_usage(build), uses=uses(build),
                    sent=plan.sent)


def _for_samples(model: Model, config: Config, batch: int) -> Compiled:
    """A model that the machine runs on several samples at once, see `net.batched`."""
    from concord.net.batched import batched

    made = compile_network(batched(model, batch), config)
    return replace(made, firmware=replace(
        made.firmware, inputs=model.inputs, outputs=made.firmware.outputs // batch, axes=model.axes, batch=batch))


def without_loads(model: Model, firmware: Firmware) -> Firmware:
    """Firmware of the same model for one sample that loads no tiles, for a machine that holds all of them.

    Args:
        firmware: What was compiled from the model; it is returned where it loads none.
    """
    if not firmware.constant_words and firmware.batch == 1:
        return firmware
    most = dict.fromkeys(("matrix_tiles", "instructions"), 1 << ADDRESS_BITS)
    return compile_network(model, replace(firmware.config, **most)).firmware


def full_precision(model: Model, firmware: Firmware, numbers: MemoryNumbers = MemoryNumbers.REAL) -> FullPrecision:
    """The numbers that the memories of compiled firmware would hold before any rounding, for the same program.

    Args:
        model:    The model that the firmware was compiled from.
        firmware: The firmware.
        numbers:  Which numbers fill the memories.

    Raises:
        ValueError: a layer does not hold the numbers of its float network, or the firmware is that of another model.
    """
    if firmware.batch > 1:
        raise ValueError(f"{firmware.name} takes {firmware.batch} samples at once, which full precision does not know: "
                         "leave out the batch")
    if firmware.constant_words:
        raise ValueError(f"{firmware.name} loads tiles from Dram, which full precision does not know: compile the "
                         "model for a machine whose matrix_tiles hold it")
    real, words = layers_of(model, numbers), firmware.instruction_words.tolist()
    for waves, short in ((True, False), (False, False), (False, True)):
        build, plan = _emitted(model, firmware.config, ALONE, short=short, real=real, waves=waves)
        come_near(build.program)
        if build.program.instruction_words() == words:
            return FullPrecision(
                vectors=build.allocator.images(), tiles=build.real_tiles(), biases=build.biases(),
                entries=plan.host.get("entries", ()), clips=build.program.clips())
    raise ValueError(f"{firmware.name} is not the firmware of model {model.name!r}: compile the model again")


def _emitted(
    model: Model, config: Config, neighbours: Neighbours, *, short: bool = False,
    real: Mapping[str, Layer] | None = None, loads: int = 0, waves: bool = False,
) -> tuple[ModelBuild, Compilation]:
    """The whole program of a model; a short one has strips of images in loops. For others see `ModelBuild`.

    Where memories of the chip are too small, tensors go to Dram, one after the other.
    """
    def planned(far: frozenset[str]) -> tuple[ModelBuild, Compilation]:
        build = ModelBuild(config, short=short, real=real, loads=loads, far=far, waves=waves)
        plan = Compilation(build, model, neighbours)
        plan.arrange()
        return build, plan

    found = build, plan = planned(frozenset())
    if config.dram_words and not plan.waves:
        build, plan = spilled(lambda far: planned(far) if far else found)
    plan.emit()
    build.program.end()
    if not loads:
        without_repeated_writes(build.program)
    return build, plan


def _tiles(model: Model, config: Config, neighbours: Neighbours) -> int:
    """Number of tiles of all matrices of a model."""
    build = ModelBuild(config)
    Compilation(build, model, neighbours)
    return build.allocator.used(Mem.MATRIX_RF)


def _with_loads(model: Model, config: Config, neighbours: Neighbours) -> tuple[ModelBuild, Compilation]:
    """The program of a model whose tiles MatrixRf does not hold: some of them are loaded from Dram.

    Smaller products leave more room for tiles that stay, and need more instructions.
    """
    for loads, short in product((8, 4, 2), (False, True)):
        build, plan = _emitted(model, config, neighbours, short=short, loads=loads)
        load_tiles(build)
        without_repeated_writes(build.program)
        if len(build.program.instructions) <= config.instructions:
            break
    return build, plan


def _usage(build: ModelBuild) -> dict[str, tuple[int, int]]:
    used = {
        MEMORY_NAMES[mem]: (build.used(mem), depth(build.config, mem))
        for mem in (*FILLED, *[Mem.DRAM] * bool(build.loads or build.far)) if depth(build.config, mem)
    }
    return used | {"instructions": (len(build.program.instructions), build.config.instructions)}


def _check_sizes(build: ModelBuild, name: str):
    """Raise an error about all memories that are too small, before anything is packed."""
    found = build.allocator.shortages(without=[Mem.MATRIX_RF] * bool(build.loads)) + build.shortages
    used, available = len(build.program.instructions), build.config.instructions
    if used > available:
        found.append(Reason(
            sentence=f"the instruction buffer needs {used} words and has {available}, {used - available} too few",
            attribute="instructions", needed=used, available=available))
    if found:
        raise CannotRun(
            f"{name} is too large for this machine: make the network smaller or choose a larger preset:", found)


#: Registers that decide how much a chain moves.
_SIZES = (Reg.ROWS, Reg.COLUMNS, Reg.ITERATIONS)


def uses(build: ModelBuild) -> dict[str, int]:
    """The smallest value of each depth of `spec.machine.config.Config` under which the program of a build runs.

    MvmQ must have room for the words that it holds at once. The queues from and to the host must have room for those of
    one iteration of a chain, since the host brings and takes more as the program goes on.
    """
    config, found, held = build.config, Counter(), 0
    for mem in FILLED:
        found[mem.size] = max(found[mem.size], build.used(mem))
    found["instructions"] = len(build.program.instructions)

    def least(attribute: str, value: int):
        found[attribute] = max(found[attribute], value)

    for chain, rows, columns, iterations in _chains(build.program.instructions, config.native_dim):
        source, words = chain[0].mem, config.words_of(rows)
        product = any(instruction.op == Op.MV_MUL for instruction in chain)
        written = {instruction.mem for instruction in chain if instruction.op == Op.V_WR}
        if product:
            least("accumulator_rows", rows)
            least("mvmq_words", words)
            if source != Mem.VECTOR_RF:
                least("operand_columns", columns)
        if source == Mem.NET_Q:
            least("net_in", columns * config.vector_words if product else words)
        if Mem.NET_Q in written:
            least("net_out", words)
        held += words * iterations * ((Mem.MVM_Q in written) - (source == Mem.MVM_Q))
        least("mvmq_words", held)
    return dict(found)


def _chains(program: Sequence[Instruction], rows: int) -> Iterator[tuple[list[Instruction], int, int, int]]:
    """The chains of a program in order, each with Rows, Columns and Iterations."""
    registers, chain = dict(zip(_SIZES, (rows, 1, 1), strict=True)), []
    for instruction in program:
        if instruction.op == Op.S_WR:
            registers[Reg(instruction.mem)] = instruction.a
        elif instruction.op == Op.END_CHAIN:
            rows, columns, iterations = (registers[register] for register in _SIZES)
            yield chain, rows, columns, iterations
            chain = []
        elif instruction.op not in (Op.LOOP, Op.END_LOOP, Op.END, Op.S_ADD):
            chain.append(instruction)
