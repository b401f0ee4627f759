"""Random programs on machines and on the same machines without their numbers: every cycle and every counter is equal.

`nox -s timing_programs -- --programs 5000` runs many; `--config wide --seed 3 --program 17` repeats one.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Annotated

import numpy as np
import typer
from concord.campaigns.dram_programs import MACHINES, MEMORIES
from concord.campaigns.random_regression import CHUNK, FAULTY, STALLS
from concord.hw.timing import OF_NUMBERS
from concord.lib.processes import side_by_side
from concord.nnp.lib.errors import sentences
from concord.sim.machines.host import HardwareMachine, Machine, build, machine
from concord.sim.machines.scoreboard import play
from concord.sim.machines.timing_library import timing_machine
from concord.sim.stimulus.programs import Case, random_illegal, random_program
from concord.spec.host.registers import Status
from concord.spec.machine.config import PRESETS, Config
from concord.spec.machine.machine_file import find_config
from rich.console import Console

#: Presets, machines with Dram, and machines whose units have other proportions.
CONFIGS: dict[str, Config] = {
    **{name: config for name, config in PRESETS.items() if not config.native_dim & config.native_dim - 1},
    **{f"{name}_with_dram": config for name, config in MACHINES.items()},
    "narrow": replace(PRESETS["wide"], mfu_lanes=2, message_bytes=4, mvmq_words=8, chain_queue=1),
    "engines": replace(PRESETS["tiny"], tile_engines=8, matrix_tiles=64, count_overflows=False),
    "three": replace(
        PRESETS["tiny"], tile_engines=3, lanes=2, matrix_tiles=99, operand_columns=12, vector_rf=0, partial_sums=3
    ),
    "shallow": replace(PRESETS["serial"], mfu_registers=3, net_in=16, net_out=16),
}


def case(config: Config, seed: int, number: int) -> Case:
    """A random program; one in FAULTY stops with an error."""
    rng = np.random.default_rng([seed, number])
    if number % FAULTY == FAULTY - 1:
        return random_illegal(config, rng)
    return random_program(config, rng, tiles=bool(config.dram_words) and number % 2 == 0)


def seen(one: Case, on: Machine, *, late: bool) -> dict[str, object]:
    """All that does not depend on numbers in a run of a program: state, counters, messages and clock cycles."""
    found = play(one, on, late=late)
    counters = {counter.name: count for counter, count in on.counters().items() if counter not in OF_NUMBERS}
    return counters | {
        "STATUS": found.status & ~(Status.INVALID_VECTOR | Status.INVALID_MATRIX),
        "ERROR": (found.error, found.address),
        "words of messages": [message.count for message in found.outputs],
        "words of memories": [len(words) for words in found.memories.values()],
        "clock cycles": on.cycles,
    }


def differences(name: str, seed: int, numbers: Iterable[int]) -> list[str]:
    """Run programs one after another on both machines: a sentence about the first one in which they differ."""
    config, numbers = find_config(name) if name not in CONFIGS else CONFIGS[name], list(numbers)
    part = numbers[0] // CHUNK
    gap, stall = STALLS[part % len(STALLS)]
    options = {"seed": seed + part, "gap": gap, "stall": stall}
    if config.dram_words:
        options["memory"] = MEMORIES[part % len(MEMORIES)]
    with machine("library", config, **options) as whole, timing_machine(config, **options) as timing:
        return _differences(name, config, seed, numbers, whole, timing)


def _differences(
    name: str, config: Config, seed: int, numbers: list[int], whole: Machine, timing: HardwareMachine
) -> list[str]:
    for number in numbers:
        one = case(config, seed, number)
        left, right = (seen(one, on, late=number % 2 == 1) for on in (whole, timing))
        wrong = [
            f"{what} is {left[what]} on the machine and {right[what]} without its numbers"
            for what in left
            if left[what] != right[what]
        ]
        if wrong:
            repeat = f"nox -s timing_programs -- --config {name} --seed {seed} --program {number}"
            return [f"{name}, seed {seed}, program {number}: {'; '.join(wrong)}. Repeat with: {repeat}"]
    return []


@sentences
def main(
    programs: Annotated[int, typer.Option(help="Number of programs, over all machines.", min=1)] = 400,
    seed: Annotated[int, typer.Option(help="Seed of the programs.")] = 1,
    config: Annotated[str, typer.Option(help=f"One of {', '.join(CONFIGS)}; all by default.")] = "",
    program: Annotated[int | None, typer.Option(help="The one program to run.")] = None,
    processes: Annotated[int, typer.Option("-n", help="Number of simulations that run at the same time.")] = 2,
) -> None:
    """Run programs; the exit code is 1 if a cycle or a counter differs."""
    if config and config not in CONFIGS:
        raise ValueError(f"there is no machine {config!r}: choose of {', '.join(CONFIGS)}")
    console, names = Console(soft_wrap=True), [config] if config else list(CONFIGS)
    for name in names:
        build("library", CONFIGS[name])
        timing_machine(CONFIGS[name]).close()
    share = -(-programs // len(names))
    chunks = (
        [[program]]
        if program is not None
        else [list(range(first, min(first + CHUNK, share))) for first in range(0, share, CHUNK)]
    )
    jobs = [(name, seed, numbers) for numbers in chunks for name in names]
    found = [text for texts in side_by_side("programs", differences, jobs, console, processes) for text in texts]
    for text in found:
        console.print(text, markup=False)
    console.print(
        f"{sum(len(numbers) for _, _, numbers in jobs):,} programs on {len(names)} machines: "
        f"{len(found)} runs with a difference"
    )
    raise typer.Exit(bool(found))


if __name__ == "__main__":
    typer.run(main)
