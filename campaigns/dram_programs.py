"""Random programs with memory outside the chip: golden beside the Verilated machine at three latencies.

Tiles come from there, from the host and from vectors; the pairs of chains that meet at the latter are counted.
`nox -s dram_programs -- --programs 5000` runs many; `--config wide --seed 3 --program 17` repeats one.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Annotated

import numpy as np
import typer
from concord.lib.processes import side_by_side
from concord.sim.machines.host import HardwareMachine, build
from concord.sim.machines.library import Library, Memory
from concord.sim.machines.scoreboard import compare
from concord.sim.stimulus.programs import Case, random_illegal, random_program
from concord.sim.stimulus.tile_hazards import HAZARDS, tile_hazards
from concord.spec.isa.chain import Chain
from concord.spec.isa.check import Sequencer
from concord.spec.isa.rules import Violation
from concord.spec.machine.config import Config, preset
from rich.console import Console

#: Machines by the name of their preset: words of Dram and bytes of its bus, wider and narrower than a word.
MACHINES: dict[str, Config] = {name: replace(preset(name), dram_words=words, dram_bus=bus) for name, words, bus in (
    ("tiny", 1 << 20, 8), ("serial", 1 << 20, 4), ("wide", 1 << 24, 16))}
#: Memories, one of them with stalls and beats of two IDs by turns.
MEMORIES = (Memory(latency=1, stall=0.3, mixed=True), Memory(latency=40), Memory(latency=400, stall=0.1))
CHUNK = 25  #: Programs that one process runs.
FAULTY = 5  #: One program in FAULTY stops with an error.


def case(name: str, seed: int, number: int) -> Case:
    """A random program."""
    rng = np.random.default_rng([seed, number])
    return (random_illegal if number % FAULTY == FAULTY - 1 else random_program)(MACHINES[name], rng)


def hazards(name: str, seed: int, numbers: Iterable[int]) -> Counter[str]:
    """Numbers of pairs of chains in random programs that meet where tiles are made of vectors."""
    found = Counter(dict.fromkeys(HAZARDS, 0))
    for number in numbers:
        program = case(name, seed, number)
        found.update(tile_hazards(chains_of(program)))
    return found


def chains_of(program: Case) -> Iterator[Chain]:
    """The chains of a program, up to the one that stops it."""
    with suppress(Violation):
        yield from Sequencer(program.config, list(program.program), list(program.modes)).walk()


def differences(name: str, seed: int, numbers: list[int]) -> list[str]:
    """Sentences on the programs for which golden and the machine differ."""
    return list(_differences(name, seed, numbers))


def _differences(name: str, seed: int, numbers: list[int]) -> Iterator[str]:
    for memory in MEMORIES:
        with HardwareMachine(Library(MACHINES[name], seed=seed, memory=memory)) as nnp:
            for number in numbers:
                found = compare(case(name, seed, number), nnp, late=number % 2 == 1)
                if found:
                    yield (f"{name}, program {number}, latency {memory.latency}: {found}; repeat with: nox -s "
                           f"dram_programs -- --config {name} --seed {seed} --program {number}")


def main(
    programs: Annotated[int, typer.Option(help="Number of programs, over all machines.")] = 300,
    seed: Annotated[int, typer.Option(help="Seed of the programs.")] = 1,
    config: Annotated[str, typer.Option(help=f"One of {', '.join(MACHINES)}; all by default.")] = "",
    program: Annotated[int | None, typer.Option(help="The one program to run.")] = None,
    processes: Annotated[int, typer.Option("-n", help="Number of simulations that run at the same time.")] = 2,
) -> None:
    """Run programs; the exit code is 1 if one differs."""
    console, names = Console(soft_wrap=True), [config] if config else list(MACHINES)
    for name in names:
        build("library", MACHINES[name])
    share = -(-programs // len(names))
    chunks = [[program]] if program is not None else [
        list(range(first, min(first + CHUNK, share))) for first in range(0, share, CHUNK)]
    jobs = [(name, seed, numbers) for numbers in chunks for name in names]
    found = [text for part in side_by_side("programs", differences, jobs, console, processes) for text in part]
    for text in found:
        console.print(text)
    met = sum((hazards(*job) for job in jobs), Counter())
    for kind in HAZARDS:
        console.print(f"{met[kind]:8,} {kind}")
    count = sum(len(numbers) for _, _, numbers in jobs)
    console.print(f"{count} programs at latencies {', '.join(str(one.latency) for one in MEMORIES)}: "
                  f"{len(found)} differing")
    if found:
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
