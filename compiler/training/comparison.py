"""A training on a machine whose server memory is compared with golden's after each program."""

from collections.abc import Iterator
from itertools import islice

import numpy as np
from concord.compiler.training.graph import Product, Split, StepValue
from concord.compiler.training.images import read_exponent, read_images, read_parameters
from concord.compiler.training.program import TrainingProgram
from concord.compiler.training.session import TrainingSession
from concord.golden.trainer.cores import TrainerCores, golden_machine
from concord.spec.trainer.config import LANES


class TrainingDiffers(RuntimeError):
    """A machine differs from golden after a program.

    Attributes:
        session: The session.
        programs: The program of each core, which loads all that it needs from server memory.
        memory:  Server memory before it, uint8[words, 16].
        wrong:   Words of server memory that are wrong behind it.
    """

    def __init__(
        self, text: str, session: "ComparedSession", programs: list[list[int]], memory: np.ndarray, wrong: np.ndarray
    ):
        super().__init__(text)
        self.session, self.programs, self.memory, self.wrong = session, programs, memory, wrong


class WrittenWords:
    """Server memory of one of golden's cores, and a note of what it has written.

    Args:
        words:   The words, uint8[words, 16].
        writers: 1 and the number of the core that has written each byte last, uint8[words, 16].
        core:    Number of the core.
    """

    def __init__(self, words: np.ndarray, writers: np.ndarray, core: int):
        self._words, self._writers, self._core = words, writers, core

    def __len__(self) -> int:
        return len(self._words)

    def __getitem__(self, index) -> np.ndarray:
        return self._words[index]

    def __setitem__(self, index, values: np.ndarray):
        self._words[index], self._writers[index] = values, 1 + self._core


class ComparedSession(TrainingSession):
    """A `TrainingSession` whose machine must leave the server memory that golden leaves; Arguments are the same."""

    _steps = 0

    def _run(self, made: TrainingProgram, work: str):
        """Run a program.

        Raises:
            TrainingDiffers: the machine leaves another memory than golden, or stops.
        """
        programs, given = made.words(work), self.memory.copy()
        self._steps += work == "forward"
        after = given.copy()
        golden = golden_machine(self.config, after, self.cores)
        self.write_rates(golden)
        golden.load(*programs)
        golden.run(*self.copies)
        try:
            super()._run(made, work)
            text = ""
            if not np.array_equal(after, self.memory):
                first, writers = self.copies[work == "backward"], self._writers(programs, given.copy())
                text = first_difference(made, after, self.memory, first, writers)
        except (RuntimeError, AssertionError) as error:
            text = str(error)
        if text:
            wrong = np.flatnonzero((after != self.memory).any(1))
            raise TrainingDiffers(f"step {self._steps}, {work}: {text}", self, programs, given, wrong)

    def _writers(self, programs: list[list[int]], memory: np.ndarray) -> np.ndarray | None:
        """Which core has written what, as `WrittenWords` notes it; None for a core that works alone."""
        golden = golden_machine(self.config, memory, self.cores)
        if not isinstance(golden, TrainerCores):
            return None
        writers = np.zeros_like(memory)
        for number, trainer in enumerate(golden.trainers):
            trainer.core.server = WrittenWords(memory, writers, number)
        self.write_rates(golden)
        golden.load(*programs)
        golden.run(*self.copies)
        return writers


def first_difference(
    made: TrainingProgram, golden: np.ndarray, other: np.ndarray, first: int, writers: np.ndarray | None = None
) -> str:
    """The first number of a step that differs, in the order in which a step makes them, as a sentence.

    Args:
        made:    Programs of the step.
        golden:  Server memory behind golden, uint8[words, 16].
        other:   That of another machine.
        first:   First word of the copy of the parameters that was written last.
        writers: Which of several cores writes each byte, as `WrittenWords` notes it.

    Returns:
        The sentence; empty if no bit differs.
    """
    if np.array_equal(golden, other):
        return ""
    seen = zip(*(_numbers(made, memory, first) for memory in (golden, other)), strict=True)
    for number, ((name, expected), (_, found)) in enumerate(seen):
        wrong = np.argwhere(expected != found)
        if len(wrong):
            at = tuple(map(int, wrong[0]))
            where = f", element [{', '.join(map(str, at))}]," if at else ""
            core = ""
            if writers is not None and at:  # the low byte of an element made of writers is one of them
                _, elements = next(islice(_numbers(made, writers, first), number, None))
                core = f", where core {(int(elements[at]) & 255) - 1} writes it"
            return (
                f"{name}{where} is {expected[at]} on golden and {found[at]} on the machine{core}; {len(wrong):,} of "
                f"{expected.size:,} differ"
            )
    word, lane = map(int, np.argwhere(golden != other)[0])
    return (
        f"word {word}, lane {lane} of server memory is {golden[word, lane]} on golden and {other[word, lane]} on the "
        "machine"
    )


def _numbers(made: TrainingProgram, memory: np.ndarray, first: int) -> Iterator[tuple[str, np.ndarray]]:
    """Exponents and mantissas of the tensors of a step, with their names; images are [samples, channels, y, x]."""
    memory_map, names = made.memory_map, _names(made)
    for value, region in memory_map.values.items():
        yield f"the exponent of {names[value]}", np.array(read_exponent(memory, memory_map.scales[value]))
        yield names[value], read_images(memory, region, value.channels)
    for operation, region in memory_map.chosen.items():
        yield f"the choice of {operation.name!r}", read_images(memory, region, region.blocks * LANES)
    for value, region in memory_map.gradients.items():
        name = f"the gradient of {names[value]}"
        yield f"the exponent of {name}", np.array(read_exponent(memory, memory_map.gradient_scales[value]))
        yield name, read_images(memory, region, value.channels)
    parameters, momenta = read_parameters(memory, made, first)
    for name, kept in parameters.items():
        yield f"the exponent of the momentum of {name!r}", momenta[name].exponent
        yield f"the momentum of {name!r}", momenta[name].mantissas
        yield f"the exponent of {name!r}", np.array(kept.exponent)
        yield f"{name!r}", kept.mantissas
        yield f"the residual of {name!r}", kept.residuals


def _names(made: TrainingProgram) -> dict[StepValue, str]:
    """What each value of a step is called."""
    found = {made.graph.x: "the input"}
    for operation in made.graph.operations:
        if isinstance(operation, Split):
            found |= {operation.a: f"the input of {operation.name}.body"}
            found |= {operation.b: f"the input of {operation.name}.shortcut"}
        else:
            found[operation.y] = f"the output of layer {operation.name!r}"
        if isinstance(operation, Product) and operation.patch:
            found[operation.x] = f"the patches of layer {operation.name!r}"
    return found
