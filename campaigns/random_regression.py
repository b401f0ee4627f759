"""Random regression: runs many random programs on golden and on the Verilated library, and compares what they do.

`nox -s nightly -- --programs 100000 -n 2` runs many; `--config tiny --seed 3 --program 17` repeats one.
`--scheduler` takes the workers of a Dask cluster (docs/cluster.md), and `--results FILE` keeps results, from which the
same command goes on.
"""

import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from concord.campaigns.results_file import recorded
from concord.campaigns.shrink import shrink
from concord.lib.progress import Show, shown
from concord.nnp.lib.errors import sentences
from concord.nnp.lib.options import Scheduler
from concord.sim.machines.host import MachineTimeout, build, machine
from concord.sim.machines.scoreboard import compare
from concord.sim.stimulus.functional_coverage import all_bins, bins
from concord.sim.stimulus.programs import Case, random_illegal, random_program
from concord.sim.units import CONFIGURATIONS
from concord.spec.machine.config import Config
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
    def record(self) -> dict:
        """These totals in values of JSON."""
        return {"programs": self.programs, "cycles": self.cycles, "bins": {name: dict(sorted(counts.items()))
                for name, counts in self.bins.items()}, "failures": list(map(asdict, self.failures))}

    @classmethod
    def of(cls, record: dict) -> "Totals":
        """The totals of a record."""
        return cls(programs=record["programs"], cycles=record["cycles"],
                   bins={config: Counter(counts) for config, counts in record["bins"].items()},
                   failures=[Failure(**failure) for failure in record["failures"]])

    @property
    def missed(self) -> dict[str, list[str]]:
        """For each configuration, the bins that no program hit."""
        return {config: sorted(name for name, count in counts.items() if not count)
                for config, counts in self.bins.items()}


def case(config: Config, seed: int, program: int) -> Case:
    """Make random program number `program` of a seed."""
    rng = np.random.default_rng([seed, program])
    return (random_illegal if program % FAULTY == FAULTY - 1 else random_program)(config, rng)


def chunk(name: str, config: Config, seed: int, programs: Iterable[int], trace: Path | None = None) -> dict:
    """Run programs one after another on one machine. The first that fails is shrunk, and ends the chunk.

    Args:
        name:     Name of the configuration, or its file.
        config:   Its machine.
        seed:     Seed of the regression.
        programs: Numbers of the programs.
        trace:    Where a waveform is written; None for none.

    Returns:
        The record of `Totals`.
    """
    programs, found = list(programs), Totals(bins={name: Counter()})
    with _machine(config, seed, programs[0], trace) as hardware:
        for program in programs:
            one = case(config, seed, program)
            found.programs += 1
            found.bins[name].update(bins(one))
            if sentence := first_difference(one, hardware, program):
                found.failures.append(Failure(config=name, seed=seed, program=program, sentence=sentence,
                                              text=_smaller(one, seed, program).text if trace is None else one.text))
                break
        found.cycles = hardware.link.cycles
    return found.record


def _machine(config: Config, seed: int, program: int, trace: Path | None = None):
    """A machine whose stalls depend on the chunk that `program` is in."""
    number = program // CHUNK
    gap, stall = STALLS[number % len(STALLS)]
    return machine("library", config, seed=seed + number, gap=gap, stall=stall, trace=trace)


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


def run_programs(configs: Iterable[str], programs: int, *, seed: int = 1, processes: int = 1, scheduler: str = "",
                 file: Path | None = None, progress: Show = lambda *step: None) -> Totals:
    """Run `programs` random programs, shared out evenly over `configs`.

    Args:
        scheduler: Address of the scheduler of a cluster, whose workers build machines; empty for this computer.
        file:      File that keeps the results of batches; None for none.
        progress:  Called before each build, and with the number of programs that have ended.
    """
    machines, found, total, ended = {name: find_config(name) for name in configs}, {}, Totals(), 0
    for number, (name, config) in enumerate(machines.items() if not scheduler else ()):
        progress("builds", number, len(machines), machine_name(name))
        build("library", config)
    share = -(-programs // len(machines))
    jobs = [(name, config, seed, range(first, min(first + CHUNK, share)))
            for first in range(0, share, CHUNK) for name, config in machines.items()]
    head = {"campaign": "random programs", "programs": share, "seed": seed,
            "machines": {name: f"{config.digest:08x}" for name, config in machines.items()}}
    for number, record in recorded(chunk, jobs, file, head, processes=processes, scheduler=scheduler, extra="sim"):
        found[number] = Totals.of(record)
        ended += found[number].programs
        progress("programs", ended, share * len(machines), "")
    for _, done in sorted(found.items()):
        total.add(done)
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


@sentences
def main(
    programs: Annotated[int, typer.Option(help="Number of random programs, over all configurations.", min=1)] = 10_000,
    seed: Annotated[int, typer.Option(help="Seed of the programs.")] = 1,
    config: Annotated[list[str] | None, typer.Option(
        help="Name of a preset, or TOML file of a machine. May be repeated.")] = None,
    program: Annotated[int | None, typer.Option(help="Run only the program of this number, with a waveform.")] = None,
    processes: Annotated[int, typer.Option("-n", help="Number of simulations that run at the same time.")] = 1,
    results: Annotated[Path | None, typer.Option(
        metavar="FILE", help="File of the results; an interrupted run goes on from it.", show_default=False)] = None,
    scheduler: Scheduler = "",
) -> None:
    """Run random programs on golden and on the Verilated library, and compare."""
    console, began = Console(), time.monotonic()
    configs = config or CONFIGURATIONS
    try:
        for machine in configs:
            find_config(machine).require_hardware()
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    if program is not None:
        trace = Path("build") / f"{machine_name(configs[0])}-{seed}-{program}.vcd"
        trace.parent.mkdir(exist_ok=True)
        found = Totals()
        found.add(Totals.of(chunk(configs[0], find_config(configs[0]), seed, [program], trace)))
        console.print(case(find_config(configs[0]), seed, program).text, markup=False)
        console.print(f"waveform: {trace}", soft_wrap=True)
    else:
        with shown(console) as show:
            found = run_programs(configs, programs, seed=seed, processes=processes, scheduler=scheduler, file=results,
                                 progress=show)
    tell(found, time.monotonic() - began, console)
    raise typer.Exit(bool(found.failures))


if __name__ == "__main__":
    typer.run(main)
