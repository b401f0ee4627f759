"""Choices by name, names that a terminal can show, and functions and classes of the user by name."""

import importlib
import sys
from collections.abc import Callable, Iterable
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

Kind = TypeVar("Kind", bound=StrEnum)


def cleaned(text: str, kept: str = "") -> str:
    """A text with control characters, such as those that move a terminal's cursor, as escapes; `kept` ones stay."""
    return "".join(sign if sign.isprintable() or sign in kept else sign.encode("unicode_escape").decode()
                   for sign in text)


def check_printable(what: str, names: Iterable[str]):
    """Refuse names with control characters.

    Raises:
        ValueError: a sentence that shows the first of them, cleaned.
    """
    for name in names:
        if not name.isprintable():
            raise ValueError(f"{what} '{cleaned(name)}' holds a control character, such as one that moves a terminal's "
                             "cursor; rename it")


def named(kind: type[Kind], name: str) -> Kind:
    """The member of a table of names.

    Raises:
        ValueError: there is none of this name.
    """
    if name not in list(kind):
        raise ValueError(f"{name!r}: choose one of {', '.join(kind)}")
    return kind(name)


def callable_of(where: str, name: str, folder: Path) -> Callable:
    """The callable of a name.

    Args:
        where:  How errors begin.
        name:   A name of the form module:callable.
        folder: Folder where the module is looked for first.

    Raises:
        ValueError: there is no such module or callable.
    """
    module, _, member = name.partition(":")
    here = str(folder.resolve())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        made = getattr(importlib.import_module(module), member, None)
    except Exception as error:
        raise ValueError(f"{where}: module {module!r} cannot be imported: {error}; it is looked for in {here} and "
                         "where Python looks") from error
    if not callable(made):
        raise ValueError(f"{where}: module {module!r} has no function or class {member!r}")
    return made


def called(where: str, made: Callable):
    """Calls a user's function without arguments, and returns its result.

    Raises:
        ValueError: it fails.
    """
    try:
        return made()
    except Exception as error:
        raise ValueError(f"{where}: calling it fails with {type(error).__name__} ({error}); it is called without "
                         "arguments") from error
