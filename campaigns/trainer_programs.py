"""Random programs for a core that trains: golden beside the Verilated machine.

On-chip memory, accumulators, server memory, exponents, bases, counters, errors and their addresses must be the same
after each. Of three programs, one is damaged, and with `--damaged` each: a bit is flipped, or a field is at or beyond a
limit.
`nox -s trainer_programs -- --programs 10000` runs many; `--seed 3 --program 17` repeats one, and says behind which
instruction the machines differ.
"""

from collections import Counter
from typing import Annotated

import numpy as np
import typer
from concord.lib.processes import side_by_side
from concord.nnp.lib.errors import sentences
from concord.sim.machines.library import Memory
from concord.sim.machines.trainer_library import library
from concord.sim.machines.trainer_scoreboard import compared, empty_trainers, explained
from concord.sim.stimulus.trainer_damage import damaged
from concord.sim.stimulus.trainer_parts import SMALL
from concord.sim.stimulus.trainer_programs import TrainerProgram, random_program
from rich.console import Console

CHUNK = 25  #: Programs that one process runs on one machine.
DAMAGED = 3  #: One program in DAMAGED is damaged, if not all are.
KEPT = 4  #: One program in KEPT begins with what the one before has left: bases, exponents, sums of exponents.
MOST = 20  #: Most sentences that are printed.
#: The memory of each chunk, in turns.
MEMORIES = (Memory(), Memory(latency=1, stall=0.3), Memory(latency=400, stall=0.1))


def is_damaged(number: int, every: int) -> bool:
    """Whether a program is damaged, of which one in `every` is."""
    return number % every == every - 1


def made(seed: int, number: int, every: int = DAMAGED) -> TrainerProgram:
    """A random program; one in `every` is damaged."""
    rng = np.random.default_rng([seed, number])
    found = random_program(rng, int(rng.integers(1, 12)))
    return damaged(rng, found) if is_damaged(number, every) else found


def memory_of(number: int) -> Memory:
    """The memory of the chunk of a program."""
    return MEMORIES[number // CHUNK % len(MEMORIES)]


def differences(seed: int, numbers: list[int], every: int = DAMAGED) -> tuple[list[str], Counter]:
    """Sentences on programs for which golden and the library differ, and numbers of programs by their error."""
    found, ended = [], Counter()
    golden, other = empty_trainers(seed=seed, memory=memory_of(numbers[0]))
    for number in numbers:
        one = made(seed, number, every)
        # Views of damaged programs write no word twice in a core that begins with nothing.
        if number % KEPT or is_damaged(number, every):
            golden.reset()
            other.reset()
        text, error = compared(one, golden, other)
        ended[error.name] += 1
        if text:
            again = f"nox -s trainer_programs -- --seed {seed} --program {number}{' --damaged' * (every == 1)}"
            found.append(f"program {number}: {text}; repeat with: {again}")
            other.close()
            golden, other = empty_trainers(seed=seed, memory=memory_of(number))
    other.close()
    return found, ended


@sentences
def main(
    programs: Annotated[int, typer.Option(help="Number of programs.", min=1)] = 300,
    seed: Annotated[int, typer.Option(help="Seed of the programs.")] = 1,
    program: Annotated[int | None, typer.Option(help="The one program to run.")] = None,
    all_damaged: Annotated[bool, typer.Option("--damaged", help="Damage every program, and not one in three.")] = False,
    jobs: Annotated[int, typer.Option("--jobs", "-n", help="Number of simulations at the same time.", min=1)] = 2,
) -> None:
    """Run programs; the exit code is 1 if one differs."""
    console, every = Console(soft_wrap=True), 1 if all_damaged else DAMAGED
    library(SMALL)  # which is built before processes ask for it
    if program is not None:
        text = explained(made(seed, program, every), seed=seed, memory=memory_of(program))
        console.print(text or f"program {program}: no bit differs", markup=False, highlight=False)
        raise typer.Exit(bool(text))
    chunks = [(seed, list(range(first, min(first + CHUNK, programs))), every) for first in range(0, programs, CHUNK)]
    found, ended = [], Counter()
    for texts, errors in side_by_side("programs", differences, chunks, console, jobs):
        found += texts
        ended.update(errors)
    for text in found[:MOST]:
        console.print(text, markup=False, highlight=False)
    errors = ", ".join(f"{count} {name}" for name, count in sorted(ended.items()))
    console.print(f"{programs} programs ({errors}): {len(found)} differing")
    raise typer.Exit(bool(found))


if __name__ == "__main__":
    typer.run(main)
