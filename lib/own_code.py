"""Functions and classes of the user, named as module:callable."""

import importlib
import sys
from collections.abc import Callable
from pathlib import Path


def found(where: str, name: str, folder: Path) -> Callable:
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
