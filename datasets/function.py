"""Data sets that a function of the user returns, named as module:callable."""

import re
from collections.abc import Mapping
from pathlib import Path

from concord.datasets.arrays import Archive, as_array, mapping
from concord.datasets.samples import DataSet
from concord.lib.own_code import called, found

NAME = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
_NEEDED = ("a DataSet, a dict of arrays (x_train, y_train, x_test, y_test, or x, y), or a tuple of them in this order "
           "is needed")


def returned(name: str, folder: Path) -> DataSet | Archive:
    """What the callable of a name returns when it is called without arguments.

    Args:
        name:   A name of the form module:callable.
        folder: Folder where the module is looked for first.

    Raises:
        ValueError: there is no such callable, it fails, or it returns no arrays.
    """
    value = called(name, found(name, name, folder))
    return value if isinstance(value, DataSet) else archive(name, value)


def archive(name: str, value) -> Archive:
    """Arrays by their usual names, from a mapping or a tuple.

    Args:
        name:  Where they come from, for messages.
        value: The mapping, or a tuple of x and y, or of x_train, y_train, x_test and y_test, or of two pairs.

    Raises:
        ValueError: these are no arrays.
    """
    if isinstance(value, Mapping):
        return mapping(value, name)
    if not isinstance(value, tuple | list):
        raise ValueError(f"{name}: there is a {type(value).__name__}, but {_NEEDED}")
    flat = [item for pair in value for item in pair] if all(
        isinstance(item, tuple) and len(item) == 2 for item in value) else list(value)
    names = {2: ("x", "y"), 4: ("x_train", "y_train", "x_test", "y_test")}.get(len(flat))
    if names is None:
        raise ValueError(f"{name}: there are {len(flat)} values, but {_NEEDED}")
    return mapping({key: as_array(item, f"{name}, {key}") for key, item in zip(names, flat, strict=True)}, name)
