"""Random lists of commands for accelerators of one to four cores: golden beside the Verilated machine.

Of ten lists, seven end, and three have a command that fails in its core; each runs after a reset on the machine that
has run the one before. Golden must refuse lists with a race.
`nox -s accelerator_lists -- --lists 1000 --refusals` runs many, and one for each command that is refused before it
moves anything; `--accelerator two --seed 3 --number 17` repeats one.
"""

from collections import Counter
from typing import Annotated

import numpy as np
import typer
from concord.golden.accelerator.races import Race
from concord.lib.processes import side_by_side
from concord.nnp.lib.errors import sentences
from concord.sim.machines.accelerator_scoreboard import compare, play
from concord.sim.machines.accelerators import AcceleratorMachine, accelerator_machine
from concord.sim.machines.host import MachineTimeout
from concord.sim.machines.library import Memory
from concord.sim.stimulus.command_faults import IN_CORES, failing_list, refusals, refused_list
from concord.sim.stimulus.command_lists import ACCELERATORS, CommandList, random_list
from concord.sim.stimulus.command_races import raced_list
from concord.spec.accelerator.commands import CommandError
from concord.spec.accelerator.registers import AcceleratorRegister
from rich.console import Console

CHUNK = 10  #: Lists that one process runs on one machine.
#: The memory of each chunk, in turns.
MEMORIES = (Memory(), Memory(latency=1, stall=0.3, mixed=True), Memory(latency=400, stall=0.1))


def made(name: str, seed: int, number: int) -> CommandList:
    """A random list: three in ten fail in a core, by turns with each error; below 0, one with one of `refusals`."""
    accelerator, rng = ACCELERATORS[name], np.random.default_rng([seed, abs(number)])
    kind, turn = number % 10, number // 10
    if number < 0:
        return refused_list(accelerator, rng, *refusals(accelerator)[-1 - number][1:])
    if kind in (5, 7, 9):
        return failing_list(accelerator, rng, IN_CORES[(3 * turn + kind // 2) % len(IN_CORES)])
    return random_list(accelerator, rng)


def wrong_end(one: CommandList, golden: AcceleratorMachine) -> str:
    """A sentence if golden has not ended as the list was made; otherwise nothing."""
    ended = golden.error(), golden.read_register(AcceleratorRegister.ERROR_INDEX) if one.error else 0
    if ended == (one.error, one.index):
        return ""
    return (f"golden ends with {ended[0].name} at command {ended[1]}, and the list was made to end with "
            f"{one.error.name} at {one.index}")


def differences(kind: str, name: str, seed: int, numbers: list[int]) -> tuple[list[str], Counter]:
    """Sentences on lists for which golden and a machine differ, and numbers of lists by their error."""
    found, ended = [], Counter()
    memory = MEMORIES[numbers[0] // CHUNK % len(MEMORIES)]
    with accelerator_machine("golden", ACCELERATORS[name]) as golden, \
            accelerator_machine(kind, ACCELERATORS[name], seed=seed, memory=memory) as other:
        for number in numbers:
            one = made(name, seed, number)
            try:
                differing = compare(one, golden, other)
                texts = [wrong_end(one, golden), differing.text]
                ended["bytes"] += differing.memory
            except (AssertionError, MachineTimeout) as error:
                texts = [str(error)]
            ended[one.error] += 1
            again = f"nox -s accelerator_lists -- --accelerator {name} --seed {seed} --number {number}"
            found += [f"{name}, list {number}, latency {memory.latency}: {text}; repeat with: {again}"
                      for text in texts if text]
    return found, ended


def unrefused(name: str, seed: int, numbers: range) -> list[int]:
    """Numbers of lists with a race that golden does not refuse."""
    missed = []
    with accelerator_machine("golden", ACCELERATORS[name]) as golden:
        for number in numbers:
            try:
                play(raced_list(ACCELERATORS[name], np.random.default_rng([seed, number]), number), golden)
                missed.append(number)
            except Race:
                continue
    return missed


@sentences
def main(
    lists: Annotated[int, typer.Option(help="Number of lists, over all accelerators.", min=1)] = 200,
    races: Annotated[int, typer.Option(help="Number of lists with a race, over all accelerators.")] = 100,
    seed: Annotated[int, typer.Option(help="Seed of the lists.")] = 1,
    accelerator: Annotated[str, typer.Option(help=f"One of {', '.join(ACCELERATORS)}; all by default.")] = "",
    refused: Annotated[bool, typer.Option(
        "--refusals", help="Run a list for each command that is refused, too.")] = False,
    number: Annotated[int | None, typer.Option(help="The one list to run.")] = None,
    machine: Annotated[str, typer.Option(help="The machine beside golden; golden runs it alone.")] = "library",
    processes: Annotated[int, typer.Option("-n", help="Number of simulations that run at the same time.")] = 2,
) -> None:
    """Run lists; the exit code is 1 if one differs, or one with a race is not refused."""
    console, names = Console(soft_wrap=True), [accelerator] if accelerator else list(ACCELERATORS)
    if not ACCELERATORS.keys() >= {*names}:
        raise ValueError(f"--accelerator {accelerator}: choose one of {', '.join(ACCELERATORS)}")
    for name in names:
        accelerator_machine(machine, ACCELERATORS[name]).close()  # builds it
    share = -(-lists // len(names))
    jobs = [(machine, name, seed, [number]) for name in names if number is not None] or [
        (machine, name, seed, list(range(first, min(first + CHUNK, share)))) for first in range(0, share, CHUNK)
        for name in names]
    jobs += [(machine, name, seed, list(range(-len(refusals(ACCELERATORS[name])), 0))) for name in names if refused]
    found, ended = [], Counter()
    for texts, counts in side_by_side("lists", differences, jobs, console, processes):
        found += texts
        ended.update(counts)
    for text in found:
        console.print(text)
    missed = {name: unrefused(name, seed, range(-(-races // len(names)))) for name in names if number is None}
    for name, numbers in missed.items():
        if numbers:
            console.print(f"{name}: golden does not refuse the race of lists {numbers}")
    errors = ", ".join(f"{ended[error]} {error.name}" for error in CommandError if ended[error])
    console.print(f"{sum(map(len, (numbers for *_, numbers in jobs)))} lists ({errors}): {len(found)} differing, "
                  f"{ended['bytes']} bytes of memory; {sum(map(len, missed.values()))} of "
                  f"{-(-races // len(names)) * len(missed)} races not refused")
    if found or any(missed.values()):
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
