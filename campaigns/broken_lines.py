"""Copies of the repository in which one line is broken: a testbench or a monitor must notice."""

import shutil
from dataclasses import dataclass
from pathlib import Path

from concord.sim.machines.build import ROOT
from concord.sim.units import Testbench

TESTS = "tests/sim/test_units.py"  #: The tests that run testbenches.
TREE = ("concord", "spec", "golden", "hw", "sim", "campaigns", TESTS, "pyproject.toml")  #: What a copy has.
DEFAULT = "tiny"  #: The preset of most mutants.


@dataclass(frozen=True, kw_only=True, slots=True)
class Mutant:
    """One broken line. A testbench lists its own in `MUTANTS`, with the attributes that follow `unit`.

    Attributes:
        unit:   Name of the unit whose testbench must notice.
        old:    Text that occurs once in the file.
        new:    Text that replaces it and breaks the unit.
        file:   Path of the file, from the root of the repository.
        config: Preset in which the testbench notices; DEFAULT, or the unit's first one if its testbench lacks that.
        test:   Function in TESTS that notices, with its parameters in brackets, where no preset has the line; empty for
                `test_unit` in `config`.
    """

    unit: str
    old: str
    new: str
    file: str
    config: str = DEFAULT
    test: str = ""

    @property
    def words(self) -> list[str]:
        """What pytest is told to run."""
        if self.test:
            return [f"{TESTS}::{self.test}"]
        return [f"{TESTS}::test_unit", "--unit", self.unit, "--config", self.config]


def mutants_of(bench: Testbench) -> list[Mutant]:
    """The mutants that a testbench lists."""
    config = DEFAULT if DEFAULT in bench.configurations else next(iter(bench.configurations), "")
    return [Mutant(unit=bench.name, **{"file": f"hw/{bench.path}.py", "config": config, **record})
            for record in bench.mutants]


def tree(folder: Path, mutant: Mutant) -> None:
    """Copy the repository to `folder`, and break the line of the mutant there.

    Raises:
        ValueError: the text `old` does not occur exactly once in the file.
    """
    shutil.rmtree(folder, ignore_errors=True)
    for name in TREE:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, symlinks=True,
                            ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, folder / name)
    replace_once(folder, mutant.file, mutant.old, mutant.new, f"MUTANTS of the testbench of {mutant.unit}")


def replace_once(folder: Path, file: str, old: str, new: str, where: str) -> None:
    """Replace a text in a file of a copy of the repository; `where` says where the text is listed.

    Raises:
        ValueError: the text `old` does not occur exactly once in the file.
    """
    text = (folder / file).read_text()
    if text.count(old) != 1:
        raise ValueError(f"{file} has {text.count(old)} times {old!r}, not once: choose another line in {where}")
    (folder / file).write_text(text.replace(old, new))
