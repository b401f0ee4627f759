"""The source of the functions that a script calls, read from files of `twin/vocabulary/` without importing them."""

import ast
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from concord.twin.source.frameworks import FORMS, RUNTIMES, Framework

_FOLDER = Path(__file__).parents[1] / "vocabulary"
_NUMPY = ("layout", "codes", "numpy_functions")  #: Files in numpy, from which other frameworks take what they can.
_OF_NUMPY = r"\bnp\."  #: What a function says that no other framework takes.
_SPELLED = r"^def (cast|straight|dimensions)\("  #: Functions that each framework spells, or has of its own.


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
    """Parsed functions.

    Args:
        texts: Source texts; functions replace those of earlier texts that have the same names, and come
            before all others in a source.
    """

    def __init__(self, texts: Iterable[str]):
        self._functions: dict[str, ast.FunctionDef | ast.ClassDef] = {}
        self._sources: dict[str, str] = {}
        self._imports: dict[str, tuple[ast.Import | ast.ImportFrom, ast.alias]] = {}
        for text in reversed(list(texts)):
            for node in ast.parse(text).body:
                if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name not in self._functions:
                    self._functions[node.name], self._sources[node.name] = node, _source(text, node)
                elif isinstance(node, ast.Import | ast.ImportFrom):
                    self._imports |= {(alias.asname or alias.name).partition(".")[0]: (node, alias)
                                      for alias in node.names}

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
        return Selection(imports=tuple(_line(*found) for name, found in self._imports.items()
                                       if name in needed - self._functions.keys()), functions=functions)

    def defaults(self, name: str) -> dict:
        """Default values of the parameters of a function."""
        arguments = self._functions[name].args
        named = arguments.args[len(arguments.args) - len(arguments.defaults):]
        return {each.arg: ast.literal_eval(value) for each, value in zip(named, arguments.defaults, strict=True)}

    @property
    def names(self) -> frozenset[str]:
        """Names of all functions and classes."""
        return frozenset(self._functions)


def _without(text: str, pattern: str) -> str:
    """A text without the statements that have a pattern."""
    sources = [_source(text, node) for node in ast.parse(text).body]
    return "\n".join(each for each in sources if not re.search(pattern, each))


def _source(text: str, node) -> str:
    first = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", ()))])
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
    form = FORMS[framework]
    files = *_NUMPY, *(["unquantized"] if unquantized else ["word_functions"] * RUNTIMES[framework].words)
    texts = [_without((_FOLDER / f"{name}.py").read_text(), _SPELLED) for name in files]
    if framework == Framework.NUMPY:
        return Vocabulary(map(form.spelled, texts))
    own = [path.read_text() for path in sorted(_FOLDER.glob(f"{framework}_*.py"))]
    real = [_without(text, r"^def (?!real_)").replace("def real_", "def ") for text in own] if unquantized else []
    return Vocabulary([*(form.spelled(_without(text, _OF_NUMPY)) for text in texts),
                       *(_without(text, r"^def real_") for text in own), *real])
