"""The regression: every unit in its configurations, with as many seeds as asked for.

`nox -s regress -- --unit quantizer --seed 7 --waves` runs one unit with one seed and keeps waveforms.
"""

import json
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated
from xml.etree import ElementTree

import typer
from concord.sim.campaigns.coverage import Coverage, merge
from concord.sim.machines.build import run
from concord.sim.units import UNITS, testbench, unit
from concord.spec.config import preset
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

REPORT = Path("build/regress")  #: Results and summary.


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """One run of a testbench."""

    unit: str
    config: str
    seed: int
    waves: bool = False
    coverage: bool = True

    @property
    def command(self) -> str:
        """What repeats it, with a waveform."""
        return f"nox -s regress -- --unit {self.unit} --config {self.config} --seed {self.seed} --waves"


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """How a job went.

    Attributes:
        folder: Where its log, waveform and coverage are.
        failure: What went wrong, or "".
        bins:   How often the testbench has met each bin, for those that count bins.
    """

    job: Job
    seconds: float
    folder: Path | None = None
    failure: str = ""
    bins: dict[str, int] = field(default_factory=dict)


def work(job: Job) -> Result:
    """Do one job; a build that fails is a failure like any other."""
    began, chosen = time.monotonic(), unit(job.unit)
    try:
        dut = chosen.component(preset(job.config))
        folder = run(dut, testbench(job.unit), seed=job.seed, waves=job.waves, coverage=job.coverage,
                     CONFIG=job.config, **chosen.environment(dut))
    except (AssertionError, RuntimeError, ValueError) as error:
        return Result(job=job, seconds=time.monotonic() - began, failure=str(error))
    bins = folder / "bins.json"
    return Result(job=job, seconds=time.monotonic() - began, folder=folder,
                  bins=json.loads(bins.read_text()) if bins.exists() else {})


def work_all(jobs: list[Job], processes: int, console: Console) -> list[Result]:
    """Do all jobs, the first of each build before the others."""
    results = []
    with Progress(console=console, transient=True) as progress, \
            ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        task = progress.add_task("regression", total=len(jobs))
        for done in as_completed([pool.submit(work, job) for job in jobs]):
            results.append(done.result())
            progress.advance(task)
    order = {job: place for place, job in enumerate(jobs)}
    return sorted(results, key=lambda result: order[result.job])


def coverage(results: Iterable[Result]) -> dict[str, list[Coverage]]:
    """Line coverage of each unit, one for each of its configurations."""
    files = defaultdict(list)
    for result in results:
        if result.folder and (result.folder / "coverage.dat").exists():
            files[result.job.unit, result.job.config].append(result.folder / "coverage.dat")
    merged = defaultdict(list)
    for (name, _), paths in files.items():
        merged[name].append(merge(paths))
    return merged


def junit(results: list[Result], path: Path) -> None:
    """Write JUnit XML: a suite for each unit, a case for each configuration and seed."""
    root = ElementTree.Element("testsuites")
    for name in dict.fromkeys(result.job.unit for result in results):
        mine = [result for result in results if result.job.unit == name]
        suite = ElementTree.SubElement(root, "testsuite", name=name, tests=str(len(mine)),
                                       failures=str(sum(bool(result.failure) for result in mine)),
                                       time=f"{sum(result.seconds for result in mine):.1f}")
        for result in mine:
            case = ElementTree.SubElement(suite, "testcase", classname=f"sim.{name}", time=f"{result.seconds:.1f}",
                                          name=f"{result.job.config}-{result.job.seed}")
            if result.failure:
                ElementTree.SubElement(case, "failure", message=result.failure.splitlines()[0]).text = "".join(
                    letter for letter in result.failure if letter.isprintable() or letter == "\n")
    ElementTree.ElementTree(root).write(path, encoding="unicode", xml_declaration=True)


def tell(results: list[Result], console: Console) -> None:
    """Print the tables: runs, line coverage, bins, and how to repeat what failed."""
    runs = Table("unit", "configuration", "seed", "result", "seconds", title="Runs")
    for result in results:
        runs.add_row(result.job.unit, result.job.config, str(result.job.seed), "FAIL" if result.failure else "pass",
                     f"{result.seconds:.1f}")
    console.print(runs)
    lines = Table("unit", "lines and branches", "executed", "share", title="Line coverage")
    for name, parts in coverage(results).items():
        total, hit = sum(len(part) for part in parts), sum(part.hit for part in parts)
        lines.add_row(name, str(total), str(hit), f"{100 * hit / max(total, 1):.1f} %")
    console.print(lines)
    for name in dict.fromkeys(result.job.unit for result in results if result.bins):
        counted = Counter()
        for result in results:
            counted.update(result.bins if result.job.unit == name else {})
        missed = sorted(label for label, count in counted.items() if not count)
        console.print(f"Bins of {name}: {len(counted) - len(missed)} of {len(counted)} hit"
                      + (f"; not {', '.join(missed)}" if missed else ""))
    for result in results:
        if result.failure:
            console.print(f"FAIL {result.failure}\nRepeat with: {result.job.command}", markup=False, soft_wrap=True)


def main(
    unit: Annotated[list[str] | None, typer.Option(help="Unit to run; all where left out. May be repeated.")] = None,
    config: Annotated[list[str] | None, typer.Option(help="Configuration; all of the unit's where left out.")] = None,
    seed: Annotated[list[int] | None, typer.Option(help="Seed; 1 where left out. May be repeated.")] = None,
    waves: Annotated[bool, typer.Option("--waves", help="Write dump.vcd in the folder of each run.")] = False,
    coverage: Annotated[bool, typer.Option(help="Count executed lines.")] = True,
    processes: Annotated[int, typer.Option("-n", help="Simulations at a time.")] = 1,
) -> None:
    """Run testbenches and report."""
    unknown = [name for name in unit or () if name not in UNITS]
    if unknown:
        raise typer.BadParameter(f"there is no unit {unknown[0]!r}: choose of {', '.join(UNITS)}")
    jobs = [Job(unit=name, config=label, seed=number, waves=waves, coverage=coverage)
            for name in unit or UNITS for label in UNITS[name].configurations if not config or label in config
            for number in seed or [1]]
    REPORT.mkdir(parents=True, exist_ok=True)
    console = Console(record=True)
    began = time.monotonic()
    results = work_all(jobs, processes, console)
    tell(results, console)
    failed = sum(bool(result.failure) for result in results)
    console.print(f"{len(results)} runs, {failed} failed, in {time.monotonic() - began:.0f} s; "
                  f"JUnit XML in {REPORT / 'junit.xml'}", soft_wrap=True)
    junit(results, REPORT / "junit.xml")
    console.save_text(str(REPORT / "summary.txt"))
    raise typer.Exit(failed > 0)


if __name__ == "__main__":
    typer.run(main)
