"""The units of the machine by name: every component that has a file of its own in hw/."""

import ast
import importlib
import inspect
from collections.abc import Callable
from pathlib import Path

from amaranth.lib.wiring import Component
from concord.spec.config import Config
from concord.spec.training import LazyFormat

HW = Path(__file__).parents[2] / "hw"

#: What a unit's parameters are in a machine, where they are not the configuration itself.
PARAMETERS: dict[str, Callable[[Config], object]] = {
    "config": lambda config: config,
    "fmt": lambda config: config.activations,
    "lanes": lambda config: config.mfu_lanes,
    "size": lambda config: config.native_dim,
    "tiles": lambda config: config.matrix_tiles,
    "count": lambda config: config.native_dim,
    "width": lambda config: config.sum_bits,
    "bits": lambda config: config.output_bits,
    "sum_bits": lambda config: 62,
    "shape": lambda config: 16 * config.mfu_lanes,
    "depth": lambda config: config.net_in,
    "space": lambda config: config.mvmq_words,
    "tag": lambda config: 1,
}

DEFAULTS = {LazyFormat: LazyFormat()}  #: What a parameter of such a type is, whatever the machine.


def names() -> list[str]:
    """Units that can be generated alone."""
    return sorted(path.stem for path in HW.rglob("*.py") if _class_name(path))


def component(name: str, config: Config) -> Component:
    """The unit called `name` of the machine `config`.

    Raises:
        ValueError: there is no such unit, or it is not generated for such a machine.
    """
    path = next((path for path in HW.rglob("*.py") if path.stem == name), None)
    kind = path and _class_name(path)
    if kind is None:
        raise ValueError(f"there is no unit {name!r}: choose one of {', '.join(names())}")
    made = getattr(importlib.import_module(".".join(("concord.hw", *path.relative_to(HW).with_suffix("").parts))), kind)
    return made(**{p.name: DEFAULTS.get(p.annotation, PARAMETERS[p.name](config)) for p in _required(made)})


def _required(made: type) -> list[inspect.Parameter]:
    parameters = inspect.signature(made).parameters.values()
    return [parameter for parameter in parameters if parameter.default is parameter.empty]


def _class_name(path: Path) -> str | None:
    """The one public component of a file whose parameters a machine determines."""
    for node in ast.parse(path.read_text()).body:
        bases = [ast.unparse(base) for base in node.bases] if isinstance(node, ast.ClassDef) else []
        if "wiring.Component" in bases or "Component" in bases:
            return node.name if _parameters(node) <= PARAMETERS.keys() else None
    return None


def _parameters(node: ast.ClassDef) -> set[str]:
    """Names of the parameters without default of `__init__`."""
    for item in node.body:
        if isinstance(item, ast.FunctionDef) and item.name == "__init__":
            given = item.args
            plain = given.args[1 : len(given.args) - len(given.defaults)]
            keyword = [arg for arg, default in zip(given.kwonlyargs, given.kw_defaults, strict=True) if default is None]
            return {arg.arg for arg in [*plain, *keyword]}
    return set()
