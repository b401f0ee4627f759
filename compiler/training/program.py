"""A step of training as two programs and a map of server memory."""

from collections.abc import Sequence
from dataclasses import dataclass

from concord.compiler.training.backward import Backward
from concord.compiler.training.emitter import Emitter, WorkPart
from concord.compiler.training.forward import Forward, exponent_words
from concord.compiler.training.graph import StepGraph, graph
from concord.compiler.training.memory_map import MemoryMap, map_memory
from concord.golden.lazy.tensor_network import Layer
from concord.spec.trainer.config import TrainerConfig
from concord.spec.trainer.instructions import Space

MOST_CORES = 8  #: Cores that a mask names.


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreProgram:
    """What one core runs for one step of a batch.

    Attributes:
        forward, backward: Instruction words.
        parts:   Instructions of both, by layer and work.
    """

    forward: list[int]
    backward: list[int]
    parts: list[WorkPart]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingProgram:
    """What trainers run for one step of a batch.

    The host runs `forward` on all cores, gives the gradient of the output, and runs `backward`. R0 is the first word of
    the old parameters in both, R1 that of the new ones in `backward`: they are exchanged after each step.

    Attributes:
        graph:      The step.
        memory_map: Server memory.
        cores:      Programs of each core.
        config:     A core.
    """

    graph: StepGraph
    memory_map: MemoryMap
    cores: tuple[CoreProgram, ...]
    config: TrainerConfig

    def words(self, work: str) -> list[list[int]]:
        """Instruction words of each core of the program `work`, "forward" or "backward"."""
        return [getattr(core, work) for core in self.cores]


def compile_training(
    layers: Sequence[Layer], shape: Sequence[int], batch: int, config: TrainerConfig, cores: int = 1
) -> TrainingProgram:
    """Make the programs of a step.

    Args:
        layers: Layers of `golden.lazy.tensor_network`.
        shape:  Shape of one sample: [inputs] or [channels, rows, columns].
        batch:  Number of samples; a last batch that is smaller has programs of its own, and the same parameters.
        config: A core.
        cores:  Number of cores that share the samples; those for which no sample is left do nothing.

    Raises:
        ValueError: the network cannot be trained on a trainer, or the core is too small for it; the sentence says what
            is missing.
    """
    if batch < 1:
        raise ValueError(f"a batch of {batch} samples: give it 1 or more")
    if not 1 <= cores <= MOST_CORES:
        raise ValueError(f"cores = {cores}: programs of a step are made for 1 to {MOST_CORES} cores")
    made, members = graph(layers, shape), min(cores, batch)
    lowered = [_lowered(made, batch, config, False, core, members) for core in range(members)]
    if lowered[0][0].numbers > config.exponents:
        lowered = [_lowered(made, batch, config, True, core, members) for core in range(members)]
    memory_map = lowered[0][0]
    if memory_map.numbers > config.exponents:
        raise ValueError(
            f"a step of this network has {memory_map.numbers} exponents, and the core has {config.exponents}: "
            "give it more, or train a network of fewer layers"
        )
    programs = [
        CoreProgram(
            forward=_words("forward", forward, config),
            backward=_words("backward", backward, config),
            parts=forward.emitter.parts + backward.emitter.parts,
        )
        for _, forward, backward in lowered
    ]
    nothing = Emitter().program(config)
    programs += [CoreProgram(forward=nothing, backward=nothing, parts=[])] * (cores - members)
    return TrainingProgram(graph=made, memory_map=memory_map.together(), config=config, cores=tuple(programs))


def _lowered(
    made: StepGraph, batch: int, config: TrainerConfig, shared: bool, core: int, cores: int
) -> tuple[MemoryMap, Forward, Backward]:
    memory_map = map_memory(made, batch, config, shared, core, cores)
    forward = Forward(memory_map, config)
    _exponents(forward, memory_map, True)
    for operation in made.operations:
        forward.operation(operation)
    _exponents(forward, memory_map, False)
    backward = Backward(memory_map, config, made.y)
    _exponents(backward, memory_map, True)
    for operation in reversed(made.operations):
        backward.operation(operation)
    _exponents(backward, memory_map, False)
    return memory_map, forward, backward


def _exponents(way: Forward | Backward, memory_map: MemoryMap, first: bool):
    """Load all exponents ahead of a program, whose own are cleared with it, and let core 0 store them behind it."""
    spaces = (Space.EXPONENTS, Space.SERVER) if first else (Space.SERVER, Space.EXPONENTS)
    way.emitter.part("exponents", "load" if first else "store")
    if first or not memory_map.core:
        way.emitter.copy(*(exponent_words(memory_map, space) for space in spaces))


def _words(name: str, way: Forward | Backward, config: TrainerConfig) -> list[int]:
    try:
        return way.emitter.program(config)
    except ValueError as error:
        raise ValueError(f"the {name} program: {error}") from None
