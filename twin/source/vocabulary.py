"""The source of the functions that a script calls, read from a file of `twin/vocabulary/` without importing it."""

import ast
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path


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
        paths: The files; those after the first one hold what few scripts need, or take the place of functions of the
            first one that have the same names.
    """

    def __init__(self, paths: Iterable[Path]):
        texts = [path.read_text() for path in paths]
        body = [node for text in texts for node in ast.parse(text).body]
        self._functions = {node.name: node for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
        self._sources = {node.name: _source(text, node) for text in texts for node in ast.parse(text).body
                         if isinstance(node, ast.FunctionDef | ast.ClassDef)}
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
def vocabulary(framework: str, *, unquantised: bool = False) -> Vocabulary:
    """The vocabulary of a framework, such as "numpy", for twins with quantisers or without them."""
    folder = Path(__file__).parents[1] / "vocabulary"
    more = f"unquantised_{framework}.py" if unquantised else f"generic_{framework}.py"
    paths = [folder / f"{framework}_functions.py", folder / more]
    return Vocabulary(path for path in paths if path.exists())
