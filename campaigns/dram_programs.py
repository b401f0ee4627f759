"""Random programs with memory outside the chip: golden beside the Verilated machine at three latencies.

Tiles come from there, from the host and from vectors. Pairs of chains that meet in a memory are counted, too.
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
from concord.nnp.lib.errors import sentences
from concord.sim.machines.host import HardwareMachine, build
from concord.sim.machines.library import Library, Memory
from concord.sim.machines.scoreboard import compare
from concord.sim.stimulus.memory_hazards import BESIDE, PAIRS, memory_hazards
from concord.sim.stimulus.programs import Case, random_illegal, random_program
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
TILES = (0, 2)  #: Of FAULTY programs, those with loops that make tiles of vectors.


def case(name: str, seed: int, number: int) -> Case:
    """A random program."""
    rng = np.random.default_rng([seed, number])
    if number % FAULTY == FAULTY - 1:
        return random_illegal(MACHINES[name], rng)
    return random_program(MACHINES[name], rng, tiles=number % FAULTY in TILES)


def hazards(name: str, seed: int, numbers: Iterable[int]) -> Counter[tuple[str, str, str]]:
    """Numbers of pairs of chains in random programs that meet in a memory."""
    found = Counter(dict.fromkeys((*PAIRS, BESIDE), 0))
    for number in numbers:
        found.update(memory_hazards(chains_of(case(name, seed, number))))
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


def _run(name: str, seed: int, numbers: list[int]) -> tuple[list[str], dict[str, Counter]]:
    """The sentences, and the pairs of the machine, as a process finds them."""
    return differences(name, seed, numbers), {name: hazards(name, seed, numbers)}


def show(met: dict[str, Counter], console: Console) -> list[tuple[str, str, str]]:
    """Print how often each pair was met on each machine. Returns the pairs that none has met."""
    console.print(" ".join(f"{name:>8}" for name in met))
    for pair in (*PAIRS, BESIDE):
        counts = " ".join(f"{counts[pair]:8,}" for counts in met.values())
        console.print(f"{counts}  {pair[0]}: {pair[1]}, then {pair[2]}")
    return [pair for pair in (*PAIRS, BESIDE) if not any(counts[pair] for counts in met.values())]


@sentences
def main(
    programs: Annotated[int, typer.Option(help="Number of programs, over all machines.")] = 300,
    seed: Annotated[int, typer.Option(help="Seed of the programs.")] = 1,
    config: Annotated[str, typer.Option(help=f"One of {', '.join(MACHINES)}; all by default.")] = "",
    program: Annotated[int | None, typer.Option(help="The one program to run.")] = None,
    processes: Annotated[int, typer.Option("-n", help="Number of simulations that run at the same time.")] = 2,
) -> None:
    """Run programs; the exit code is 1 if one differs, or if programs of all machines do not meet each pair."""
    if config and config not in MACHINES:
        raise ValueError(f"there is no machine {config!r}: choose of {', '.join(MACHINES)}")
    console, names = Console(soft_wrap=True), [config] if config else list(MACHINES)
    for name in names:
        build("library", MACHINES[name])
    share = -(-programs // len(names))
    chunks = [[program]] if program is not None else [
        list(range(first, min(first + CHUNK, share))) for first in range(0, share, CHUNK)]
    jobs = [(name, seed, numbers) for numbers in chunks for name in names]
    found, met = [], {name: Counter() for name in names}
    for texts, pairs in side_by_side("programs", _run, jobs, console, processes):
        found += texts
        for name, counts in pairs.items():
            met[name].update(counts)
    for text in found:
        console.print(text)
    missed, some = show(met, console), bool(config) or program is not None
    for pair in () if some else missed:
        console.print(f"no program has {pair[1]} and then {pair[2]} in {pair[0]}: run more programs")
    count = sum(len(numbers) for _, _, numbers in jobs)
    console.print(f"{count} programs at latencies {', '.join(str(one.latency) for one in MEMORIES)}: "
                  f"{len(found)} differing, {len(missed)} of {len(PAIRS) + 1} pairs not met")
    if found or missed and not some:
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
