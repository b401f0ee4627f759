"""Random regression: runs many random programs on golden and on the Verilated library, and compares what they do.

`nox -s nightly -- --programs 100000 -n 2` runs many; `--config tiny --seed 3 --program 17` repeats one.
"""

import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from concord.campaigns.shrink import shrink
from concord.lib.processes import calls
from concord.lib.progress import Show, shown
from concord.sim.machines.host import MachineTimeout, build, machine
from concord.sim.machines.scoreboard import compare
from concord.sim.stimulus.functional_coverage import all_bins, bins
from concord.sim.stimulus.programs import Case, random_illegal, random_program
from concord.sim.units import CONFIGURATIONS
from concord.spec.machine.machine_file import find_config, machine_name
from rich.console import Console
from rich.table import Table

CHUNK = 25  #: Programs that one simulated machine runs in a row, each after a reset.
FAULTY = 5  #: One program in FAULTY stops with an error.
STALLS = ((0.0, 0.0), (0.3, 0.0), (0.0, 0.5), (0.4, 0.4))  #: (idle, stalled): probabilities of a cycle of the streams.


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    """A program for which golden and hardware differ.

    Attributes:
        config:   Name of the configuration.
        seed:     Seed of the regression.
        program:  Number of the program under that seed.
        sentence: Describes the first difference.
        text:     Text of a smaller program that fails too.
    """

    config: str
    seed: int
    program: int
    sentence: str
    text: str

    def __str__(self):
        return (f"{self.config}, seed {self.seed}, program {self.program}: {self.sentence}\n"
                f"Repeat with: nox -s nightly -- --config {self.config} --seed {self.seed} --program {self.program}\n"
                f"A smaller program that fails too:\n{self.text}")


@dataclass(kw_only=True, slots=True)
class Totals:
    """Totals over many programs.

    Attributes:
        programs: Number of programs that were run.
        cycles:   Number of simulated clock cycles.
        bins:     For each configuration, how many programs hit each bin of functional coverage.
        failures: Programs for which golden and hardware differ.
    """

    programs: int = 0
    cycles: int = 0
    bins: dict[str, Counter] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)

    def add(self, other: "Totals") -> None:
        """Add other totals to these."""
        self.programs += other.programs
        self.cycles += other.cycles
        self.failures += other.failures
        for config, counts in other.bins.items():
            self.bins.setdefault(config, Counter(dict.fromkeys(all_bins(find_config(config)), 0))).update(counts)

    @property
    def missed(self) -> dict[str, list[str]]:
        """For each configuration, the bins that no program hit."""
        return {config: sorted(name for name, count in counts.items() if not count)
                for config, counts in self.bins.items()}


def case(config: str, seed: int, program: int) -> Case:
    """Make random program number `program` of a seed."""
    rng = np.random.default_rng([seed, program])
    return (random_illegal if program % FAULTY == FAULTY - 1 else random_program)(find_config(config), rng)


def chunk(config: str, seed: int, programs: Iterable[int], trace: Path | None = None) -> Totals:
    """Run programs one after another on one machine. The first that fails is shrunk, and ends the chunk."""
    programs, found = list(programs), Totals(bins={config: Counter()})
    with _machine(config, seed, programs[0], trace) as hardware:
        for program in programs:
            one = case(config, seed, program)
            found.programs += 1
            found.bins[config].update(bins(one))
            if sentence := first_difference(one, hardware, program):
                found.failures.append(Failure(config=config, seed=seed, program=program, sentence=sentence,
                                              text=_smaller(one, seed, program).text if trace is None else one.text))
                break
        found.cycles = hardware.link.cycles
    return found


def _machine(config: str, seed: int, program: int, trace: Path | None = None):
    """A machine whose stalls depend on the chunk that `program` is in."""
    number = program // CHUNK
    gap, stall = STALLS[number % len(STALLS)]
    return machine("library", find_config(config), seed=seed + number, gap=gap, stall=stall, trace=trace)


def first_difference(one: Case, hardware, program: int) -> str | None:
    try:
        return compare(one, hardware, late=program % 2 == 1)
    except (AssertionError, MachineTimeout) as error:
        return str(error)
    except Exception as error:  # an exception in golden or in the host fails this program only
        return f"{type(error).__name__}: {error}"


def _smaller(one: Case, seed: int, program: int) -> Case:
    def fails(candidate: Case) -> bool:
        with machine("library", one.config) as hardware:
            return first_difference(candidate, hardware, program) is not None

    return shrink(one, fails) if fails(one) else one


def run_programs(configs: Iterable[str], programs: int, *, seed: int = 1, processes: int = 1,
           progress: Show = lambda *step: None) -> Totals:
    """Run `programs` random programs, shared out evenly over `configs`.

    Args:
        progress: Called before each build, and with the number of programs that have ended.
    """
    configs, total = list(configs), Totals()
    for number, config in enumerate(configs):
        progress("builds", number, len(configs), machine_name(config))
        build("library", find_config(config))
    share = -(-programs // len(configs))
    jobs = [(config, seed, range(first, min(first + CHUNK, share)))
            for first in range(0, share, CHUNK) for config in configs]
    for _, done in calls(chunk, jobs, processes):
        total.add(done)
        progress("programs", total.programs, share * len(configs), "")
    return total


def tell(found: Totals, seconds: float, console: Console) -> None:
    """Print the table of bins, the failures and a summary."""
    table = Table("bin", *found.bins, title="Programs that hit each bin")
    for name in sorted(set().union(*found.bins.values())):
        table.add_row(name, *(str(counts[name]) if name in counts else "-" for counts in found.bins.values()))
    console.print(table)
    for failure in found.failures:
        console.print(str(failure), markup=False, soft_wrap=True)
    console.print(f"{found.programs} programs, {len(found.failures)} mismatches, {found.cycles:,} cycles, "
                  f"{seconds:.0f} s; bins not hit: {sum(map(len, found.missed.values()))}")


def main(
    programs: Annotated[int, typer.Option(help="Number of random programs, over all configurations.")] = 10_000,
    seed: Annotated[int, typer.Option(help="Seed of the programs.")] = 1,
    config: Annotated[list[str] | None, typer.Option(
        help="Name of a preset, or TOML file of a machine. May be repeated.")] = None,
    program: Annotated[int | None, typer.Option(help="Run only the program of this number, with a waveform.")] = None,
    processes: Annotated[int, typer.Option("-n", help="Number of simulations that run at the same time.")] = 1,
) -> None:
    """Run random programs on golden and on the Verilated library, and compare."""
    console, began = Console(), time.monotonic()
    configs = config or CONFIGURATIONS
    try:
        for place in configs:
            find_config(place).require_hardware()
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    if program is not None:
        trace = Path("build") / f"{machine_name(configs[0])}-{seed}-{program}.vcd"
        trace.parent.mkdir(exist_ok=True)
        found = Totals()
        found.add(chunk(configs[0], seed, [program], trace))
        console.print(case(configs[0], seed, program).text, markup=False)
        console.print(f"waveform: {trace}", soft_wrap=True)
    else:
        with shown(console) as show:
            found = run_programs(configs, programs, seed=seed, processes=processes, progress=show)
    tell(found, time.monotonic() - began, console)
    raise typer.Exit(bool(found.failures))


if __name__ == "__main__":
    typer.run(main)
