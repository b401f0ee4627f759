"""The testbenches of all units, which say in their files in which configurations they run."""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from types import MappingProxyType

from amaranth.lib.wiring import Component
from concord.hw import units
from concord.sim.drivers.configs import to_text
from concord.sim.machines.build import run
from concord.spec.machine.config import Config

ROOM = Path(__file__).parent
CONFIGURATIONS = ("tiny", "serial", "wide")  #: Presets that differ in every parameter.
WITH_SOFTMAX = "tiny_softmax"  #: A preset with a softmax unit.
WITH_REDUCTIONS = "tiny_vector"  #: A preset with reductions and held operands.


@dataclass(frozen=True, kw_only=True)
class Testbench:
    """The testbench of one unit.

    It is read as text here, because it can be imported only where cocotb is. Its file may define

    - `CONFIGURATIONS`, presets in which the regression runs it; `CONFIGURATIONS` of this file if left out;
    - `TESTED`, the presets that the ordinary tests run; the last one if left out. Only arithmetic units depend on
      formats and widths. Units that move and order words are exercised most by several engines and the widest beats,
      which the last configuration has;
    - `MUTANTS`, lines of hardware that the campaign `mutants` breaks;
    - `component(config)`, which makes what the testbench drives, where that is not the unit of the machine.

    Each of the first three is the value of a plain assignment at the outermost level of the file, and the last one is a
    `def` there.

    Attributes:
        path: Path of its file in sim and of the unit in hw, without the suffix: "mvm/quantizer".
    """

    path: str

    @property
    def name(self) -> str:
        """The last part of the path, which no other unit has."""
        return self.path.rpartition("/")[2]

    @property
    def module(self) -> str:
        """The name of the module of cocotb tests."""
        return "concord.sim." + self.path.replace("/", ".")

    @cached_property
    def _body(self) -> list[ast.stmt]:
        tree = ast.parse((ROOM / f"{self.path}.py").read_text())
        body, bound = tree.body, list(_bound(tree))
        for name in ("CONFIGURATIONS", "TESTED", "MUTANTS", "component"):
            plain = [line for line in body if _binds(line, name)]
            if bound.count(name) > len(plain) or len(plain) > 1:
                form = f"one `def {name}`" if name == "component" else f"one plain assignment `{name} = ...`"
                raise ValueError(f"sim/{self.path}.py binds {name} in a way that is not read here: write {form} at "
                                 "the outermost level of the file")
        return body

    def _constant(self, name: str, default: tuple) -> tuple:
        return next((ast.literal_eval(line.value) for line in self._body
                     if isinstance(line, ast.Assign) and _binds(line, name)), default)

    @property
    def configurations(self) -> tuple[str, ...]:
        """Presets in which the regression runs the testbench."""
        return self._constant("CONFIGURATIONS", CONFIGURATIONS)

    @property
    def tested(self) -> tuple[str, ...]:
        """Presets in which the ordinary tests run it."""
        return self._constant("TESTED", self.configurations[-1:])

    @property
    def mutants(self) -> tuple[Mapping[str, str], ...]:
        """Lines that must matter to it, as the attributes of `campaigns.mutants.Mutant`."""
        return self._constant("MUTANTS", ())

    def component(self, config: Config) -> Component:
        """What the testbench drives."""
        if any(_binds(line, "component") for line in self._body):
            return import_module(self.module).component(config)
        return units.component(self.name, config)

    def run(self, config: Config, **options) -> Path:
        """Build the unit and run the testbench on it; options and result are those of `sim.machines.build.run`."""
        return run(self.component(config), self.module, CONFIG=to_text(config), **options)


def _binds(line: ast.stmt, name: str) -> bool:
    """Whether a line of a file binds the name of a testbench in the way that is read here."""
    if name == "component":
        return isinstance(line, ast.FunctionDef) and line.name == name
    return isinstance(line, ast.Assign) and name in map(ast.unparse, line.targets)


def _bound(tree: ast.AST) -> Iterator[str]:
    """The names that a file binds anywhere, once for each time."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.alias(name=name, asname=other):
                yield other or name


def _testbenches() -> dict[str, Testbench]:
    files = [*ROOM.glob("*.py"), *sorted(ROOM.glob("*/*.py"))]
    paths = [path.relative_to(ROOM).with_suffix("") for path in files if "\n@cocotb.test" in path.read_text()]
    return {path.name: Testbench(path=str(path)) for path in paths if path.parent.name != "machines"}


#: All testbenches by the names of their units. The server in `machines` answers another process and tests nothing.
TESTBENCHES: Mapping[str, Testbench] = MappingProxyType(_testbenches())
