"""The source of the functions that a script calls, read from files of `twin/vocabulary/` without importing them."""

import ast
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from concord.twin.source.frameworks import FORMS, Framework


@dataclass(frozen=True, kw_only=True, slots=True)
class Selection:
    """What a source needs of a vocabulary.

    Attributes:
        imports:   Names of modules, and lines that import them.
        functions: Source text of each function and class, in the order of the vocabulary.
    """

    imports: tuple[str, ...]
    functions: tuple[str, ...]


class Vocabulary:
    """Parsed files of functions.

    Args:
        paths:  The files; functions take the place of those of earlier files that have the same names. What only the
            first file has comes last in a source.
        module: Name by which functions call the module of their framework; it takes the place of `xp`.
    """

    def __init__(self, paths: Iterable[Path], module: str):
        texts = [_of_module(path.read_text(), module) for path in paths]
        body = [node for text in texts for node in ast.parse(text).body]
        self._functions = {node.name: node for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
        shared, *own = [{node.name: _source(text, node) for node in ast.parse(text).body
                         if isinstance(node, ast.FunctionDef | ast.ClassDef)} for text in texts]
        self._sources: dict[str, str] = {}
        for found in (*own, {name: each for name, each in shared.items() if not any(name in other for other in own)}):
            self._sources.update(found)
        self._imports = {(alias.asname or alias.name).partition(".")[0]: (node, alias) for node in body
                         if isinstance(node, ast.Import | ast.ImportFrom) for alias in node.names
                         if (alias.asname or alias.name) not in self._functions}

    def select(self, names: Iterable[str]) -> Selection:
        """The functions of these names, and everything that they need."""
        needed, waiting = set(), list(names)
        while waiting:
            name = waiting.pop()
            if name not in needed:
                needed.add(name)
                if name in self._functions:
                    waiting += _globals(self._functions[name])
        functions = tuple(text for name, text in self._sources.items() if name in needed)
        return Selection(imports=tuple(_line(*found) for name, found in self._imports.items() if name in needed),
                         functions=functions)

    def defaults(self, name: str) -> dict:
        """Default values of the parameters of a function."""
        arguments = self._functions[name].args
        named = arguments.args[len(arguments.args) - len(arguments.defaults):]
        return {each.arg: ast.literal_eval(value) for each, value in zip(named, arguments.defaults, strict=True)}

    @property
    def names(self) -> frozenset[str]:
        """Names of all functions and classes."""
        return frozenset(self._functions)


def _of_module(text: str, module: str) -> str:
    """The text of functions whose namespace `xp` is a module, without the function that finds the namespace."""
    text = re.sub(r"def namespace\(.*\n(    .*\n)*", "", text)
    return re.sub(r"\bxp\.", f"{module}.", re.sub(r"    xp = namespace\(.*\)\n", "", text))


def _source(text: str, node) -> str:
    first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
    return "\n".join(text.splitlines()[first - 1 : node.end_lineno])


def _globals(function) -> set[str]:
    """Names that a function or class reads and does not make itself."""
    nodes = list(ast.walk(function))
    own = {node.arg for node in nodes if isinstance(node, ast.arg)}
    names = [node for node in nodes if isinstance(node, ast.Name)]
    own |= {node.id for node in names if isinstance(node.ctx, ast.Store)}
    return {node.id for node in names} - own


def _line(node, alias) -> str:
    text = f"import {alias.name}" if isinstance(node, ast.Import) else f"from {node.module} import {alias.name}"
    return f"{text} as {alias.asname}" if alias.asname else text


@cache
def vocabulary(framework: Framework, *, unquantized: bool = False) -> Vocabulary:
    """The vocabulary of a framework, for twins with quantisers or without them."""
    folder = Path(__file__).parents[1] / "vocabulary"
    more = f"unquantized_{framework}.py" if unquantized else f"generic_{framework}.py"
    paths = [folder / name for name in ("shared.py", f"{framework}_functions.py", more)]
    return Vocabulary((path for path in paths if path.exists()), FORMS[framework].module)
