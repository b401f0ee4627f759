"""A pytest plugin for the testbenches of units: options choose units, configurations and seeds, tables show coverage.

It sets the parameter `job` of `tests/sim/test_units.py`. The ordinary tests run each unit in few configurations.
`nox -s regress -- --unit quantizer --seed 7 --waves` runs one unit in all of its configurations and keeps waveforms.
"""

import argparse
import json
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest
from concord.spec.machine.machine_file import ENDING, find_config, machine_name


@dataclass(frozen=True, slots=True)
class Coverage:
    """Coverage points (blocks of lines, and branches) of one Verilog text, and how often each was executed.

    Attributes:
        counts: Number of executions of each point; a point is a tuple (module, line, kind).
    """

    counts: Counter

    @property
    def hit(self) -> int:
        """Number of points that were executed at least once."""
        return sum(count > 0 for count in self.counts.values())

    @property
    def missed(self) -> list[tuple[str, int, str]]:
        """Points that were never executed, in the order of their lines."""
        return sorted((point for point, count in self.counts.items() if not count), key=lambda point: point[1])

    def __len__(self) -> int:
        return len(self.counts)


def merge(paths: Iterable[Path]) -> Coverage:
    """Add up the coverage files of several runs of one build."""
    counts = Counter()
    for path in paths:
        for line in path.read_text(errors="replace").splitlines():
            if line.startswith("C '"):
                key, count = line[3:].rsplit("' ", 1)
                fields = dict(item.split("\x02", 1) for item in key.split("\x01") if "\x02" in item)
                counts[fields["h"], int(fields["l"]), fields["o"]] += int(count)
    return Coverage(counts)


@dataclass(frozen=True, kw_only=True, slots=True)
class BenchJob:
    """One run of a testbench.

    Attributes:
        unit:     Name of the unit.
        config:   Name of the preset, or TOML file of the machine.
        seed:     Seed of the testbench's random stimulus.
        waves:    Whether to write dump.vcd.
        coverage: Whether to count executed lines into coverage.dat.
    """

    unit: str
    config: str
    seed: int
    waves: bool = False
    coverage: bool = False

    def __str__(self):
        return f"{self.unit}-{machine_name(self.config)}-{self.seed}"

    @property
    def command(self) -> str:
        """The command that repeats the run and writes a waveform."""
        return f"nox -s regress -- --unit {self.unit} --config {self.config} --seed {self.seed} --waves"

    def run(self) -> Path:
        """Build and run the testbench, and return the folder of its log, waveform and coverage.

        Raises:
            AssertionError: a test failed.
            RuntimeError:   the unit could not be built.
        """
        from concord.sim.units import TESTBENCHES

        return TESTBENCHES[self.unit].run(find_config(self.config), seed=self.seed, waves=self.waves,
                                          coverage=self.coverage)


def jobs(*, unit: list[str], config: list[str], seed: list[int], regress: bool = False, waves: bool = False,
         coverage: bool = False) -> list[BenchJob]:
    """The runs that the options ask for, in the order of the registry. An empty list stands for the default choice.

    Raises:
        ValueError: one of the names is unknown or has nothing to run; the sentence lists the choices.
    """
    from concord.hw.units import holds
    from concord.sim.units import TESTBENCHES

    every = bool(regress or unit or config)
    benches = {name: bench.configurations if every else bench.tested for name, bench in TESTBENCHES.items()}
    for name in unit:
        if name not in benches:
            raise ValueError(f"there is no testbench of a unit {name!r}: choose one of {', '.join(sorted(benches))}")
    files = {path: find_config(path) for path in config if path.endswith(ENDING)}
    for machine in files.values():
        machine.require_hardware()
    # A machine of a file runs every testbench of a unit that it holds.
    chosen = {name: (*benches[name], *(path for path, machine in files.items() if holds(machine, name)))
              for name in unit or benches}
    known = dict.fromkeys(label for labels in chosen.values() for label in labels)
    for label in config:
        if label not in known:
            whose = f"{', '.join(unit)} has no" if unit else "no unit has a"
            raise ValueError(f"{whose} configuration {label!r}: choose one of {', '.join(known)}, or a TOML file")
    for name in unit:
        if config and not set(config) & set(chosen[name]):
            raise ValueError(f"{name} has no configuration {', '.join(config)}: "
                             f"choose one of {', '.join(chosen[name])}")
    return [BenchJob(unit=name, config=label, seed=number, waves=waves, coverage=coverage)
            for name, labels in chosen.items() for label in labels if not config or label in config
            for number in seed or [1]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """How a job went.

    Attributes:
        outcome: "passed" or "failed".
        folder:  Folder of its log, waveform and coverage; None if the run failed.
    """

    unit: str
    config: str
    seed: int
    outcome: str
    seconds: float
    folder: Path | None = None


def tables(results: list[Result]) -> Iterable:
    """The tables that the regression prints: runs, line coverage, bins of functional coverage."""
    from rich.table import Table

    runs = Table("unit", "configuration", "seed", "result", "seconds", title="Runs")
    for result in results:
        runs.add_row(result.unit, result.config, str(result.seed), result.outcome, f"{result.seconds:.1f}")
    yield runs
    lines = Table("unit", "lines and branches", "executed", "share", title="Line coverage")
    for name, parts in _coverage(results).items():
        total, hit = sum(len(part) for part in parts), sum(part.hit for part in parts)
        lines.add_row(name, str(total), str(hit), f"{100 * hit / max(total, 1):.1f} %")
    if lines.row_count:
        yield lines
    for name, counted in _bins(results).items():
        missed = sorted(label for label, count in counted.items() if not count)
        yield (f"Bins of {name}: {len(counted) - len(missed)} of {len(counted)} hit"
               + (f"; not {', '.join(missed)}" if missed else ""))


def _coverage(results: Iterable[Result]) -> dict[str, list[Coverage]]:
    """For each unit, the line coverage in each of its configurations."""
    files = defaultdict(list)
    for result in results:
        if result.folder and (result.folder / "coverage.dat").exists():
            files[result.unit, result.config].append(result.folder / "coverage.dat")
    merged = defaultdict(list)
    for (name, _), paths in files.items():
        merged[name].append(merge(paths))
    return merged


def _bins(results: Iterable[Result]) -> dict[str, Counter]:
    """How often each bin was hit, for every unit whose testbench counts bins."""
    counted = defaultdict(Counter)
    for result in results:
        if result.folder and (result.folder / "bins.json").exists():
            counted[result.unit].update(json.loads((result.folder / "bins.json").read_text()))
    return counted


def pytest_addoption(parser):
    """Add the options of the regression to pytest."""
    group = parser.getgroup("units", "testbenches of units")
    group.addoption("--regress", action="store_true",
                    help="Run testbenches in every configuration, count executed lines, and print tables.")
    group.addoption("--unit", action="append", default=[], metavar="NAME",
                    help="Unit whose testbench runs, in every configuration; all if left out. May be repeated.")
    group.addoption("--config", action="append", default=[], metavar="MACHINE",
                    help="Preset, or TOML file of a machine, in which testbenches run. May be repeated.")
    group.addoption("--seed", action="append", default=[], type=int, metavar="N",
                    help="Seed of the testbenches; 1 if left out. May be repeated.")
    group.addoption("--seeds", type=int, metavar="N", help="Run the seeds 1 to N.")
    group.addoption("--waves", action="store_true", help="Write dump.vcd in the folder of each testbench's run.")
    group.addoption("--coverage", action=argparse.BooleanOptionalAction,
                    help="Count executed lines, as --regress does.")


def _chosen(option) -> list[BenchJob]:
    if option.seeds is not None and option.seeds < 1:
        raise ValueError(f"--seeds takes a positive number, not {option.seeds}")
    seed = option.seed + list(range(1, 1 + (option.seeds or 0)))
    coverage = option.regress if option.coverage is None else option.coverage
    return jobs(unit=option.unit, config=option.config, seed=seed, regress=option.regress, waves=option.waves,
                coverage=coverage)


def pytest_configure(config):
    """Refuse units and configurations that do not exist."""
    option = config.option
    if option.unit or option.config or option.seeds is not None:
        try:
            _chosen(option)
        except ValueError as error:
            pytest.exit(str(error), returncode=2)


def pytest_generate_tests(metafunc):
    """Give the test's parameter `job` one value for each run."""
    if "job" in metafunc.fixturenames:
        metafunc.parametrize("job", _chosen(metafunc.config.option), ids=str)


def pytest_terminal_summary(terminalreporter):
    """Print the tables after the tests."""
    if not terminalreporter.config.option.regress:
        return
    from rich.console import Console

    found = [(report, dict(report.user_properties)) for outcome in ("passed", "failed")
             for report in terminalreporter.getreports(outcome) if report.when == "call"]
    results = {f"{told['unit']}-{told['config']}-{told['seed']}": Result(
        unit=told["unit"], config=told["config"], seed=told["seed"], outcome=report.outcome, seconds=report.duration,
        folder=Path(told["folder"]) if "folder" in told else None) for report, told in found if "unit" in told}
    console = Console()
    with console.capture() as printed:
        for part in tables([results[str(job)] for job in _chosen(terminalreporter.config.option)
                            if str(job) in results]):
            console.print(part)
    terminalreporter.write(printed.get())
