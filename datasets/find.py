"""Finds the samples at a location: its description, and the reader of its kind; or arrays that a function returns."""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import tomli_w
from concord.datasets import arrays, dataset
from concord.datasets.arrays import Archive, as_array, mapping
from concord.datasets.description import Description, parse
from concord.datasets.raw import Found
from concord.datasets.samples import DataSet, Task
from concord.lib.names import callable_of, called

FORMS = ("a .toml, .npz, .npy or .csv file, a folder of images by class, of .npy files, of IDX files or of .ts files, "
         "or module:callable")


def described(location: str, like: str) -> Description:
    """The description of a location: its TOML text, or that of its model, or none but the location itself."""
    if not location or "://" in location or "\0" in location:
        raise ValueError(f"{location!r} is no location of data: a URL must be downloaded first; data are {FORMS}")
    path = Path(location)
    if path.suffix == ".toml":
        if not path.is_file():
            raise ValueError(f"{path}: there is no such file")
        if path.stat().st_size > 2**20:
            raise ValueError(f"{path}: more than 1 MiB of text; a description of data is shorter")
        try:
            text = path.read_text(encoding="utf-8-sig")
        except UnicodeDecodeError as error:
            raise ValueError(f"{path}: not a text file in UTF-8") from error
        description = parse(text, str(path), path.parent)
        if not description.data and description.inputs is None:
            raise ValueError(f"{path}: it names no data: write `data = \"FILE\"`, or `inputs = \"x.npy\"`")
        _check_array(description, path)
        return description
    if not like:
        return Description(data=location)
    description = parse(like, "the model's description of its data", Path())
    same = Path(description.data).name == path.name
    # Files and functions that a model names are neither opened nor run: only the location is, which the user gave.
    test, calibration = (None if isinstance(value, str) or not same else value for value in (
        description.test, description.calibration))
    whole = not same or isinstance(description.test, str)
    return replace(description, borrowed=True, data=location, name=description.name if same else "",
                   test=1.0 if whole else test, calibration=calibration)


def _check_array(description: Description, path: Path):
    """Refuse names of arrays beside one array, in which they name nothing.

    Raises:
        ValueError: there are some.
    """
    for key in "inputs", "labels", "lengths":
        if Path(description.data).suffix.lower() == ".npy" and getattr(description, key) is not None:
            raise ValueError(f"{path}: `{key}` names an array, but `data` is the only array in {description.data}; "
                             f"leave `data` out, and write `inputs = \"{description.data}\"` beside the other files")


def find(description: Description) -> Found | DataSet:
    """What the reader of a location finds there.

    Raises:
        ValueError: nothing that can be read is there.
    """
    try:
        return _found(description)
    except OSError as error:  # a name that is too long, or a file that may not be read
        raise ValueError(f"{description.path(description.data)}: it cannot be read ({error.strerror})") from error


def _found(description: Description) -> Found | DataSet:
    name, path = description.data, description.path(description.data)
    if not name:
        return _npy_files(description)
    if FUNCTION.fullmatch(name) and not path.exists():
        made = returned(name, description.folder)
        return made if isinstance(made, DataSet) else arrays.found(made, description)
    if path.is_dir():
        return _folder(path, description)
    if name in dataset.SHIPPED and not path.exists():
        return _shipped(name)
    if not path.is_file():
        raise ValueError(f"{path}: there is no such file or folder; data are {FORMS}")
    if path.suffix.lower() not in FILES:
        raise ValueError(f"{path}: this kind of file is not read; data are {FORMS}")
    return FILES[path.suffix.lower()](path, description)


def _npz(path: Path, description: Description) -> Found:
    return arrays.found(arrays.npz(path), description)


def _npy(path: Path, description: Description) -> Found:
    archive = arrays.Archive(str(path), ["x"], lambda _: arrays.npy(path))
    return arrays.found(archive, replace(description, inputs="x", labels=None))


def _table(path: Path, description: Description) -> Found:
    from concord.datasets import table

    return table.found(path, description)


#: Suffixes of tables, whose columns have names.
TABLES = (".csv", ".tsv")
#: Reader of each kind of file, by its suffix.
FILES = {".npz": _npz, ".npy": _npy} | dict.fromkeys(TABLES, _table)


def _npy_files(description: Description) -> Found:
    """Arrays in .npy files that the description names one by one."""
    names = []
    for wanted in description.inputs, description.labels, description.lengths:
        names += wanted.values() if isinstance(wanted, Mapping) else [wanted] if isinstance(wanted, str) else []
    archive = arrays.Archive(str(description.folder), names, lambda name: arrays.npy(description.path(name)))
    return arrays.found(archive, description)


def _folder(folder: Path, description: Description) -> Found:
    if dataset.is_published(folder):
        return dataset.published(folder)
    if any(folder.glob("*.npy")):
        return arrays.found(arrays.npy_folder(folder), description)
    from concord.datasets import pictures

    return pictures.found(folder, description)


def _shipped(name: str) -> DataSet:
    samples = dataset.load(name)
    shape = (1, 28, 28) if name == "fashion-mnist" else samples.inputs.shape[2:]
    return DataSet(name=name, task=Task.CLASSIFICATION, shape=shape, train=None, test=samples,
                   calibration=None, description=tomli_w.dumps({"data": name}), image=len(shape) == 3)


FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
_RETURNED = ("a DataSet, a dict of arrays (x_train, y_train, x_test, y_test, or x, y), or a tuple of them in this "
             "order is needed")


def returned(name: str, folder: Path) -> DataSet | Archive:
    """What the callable of a name returns when it is called without arguments.

    Args:
        name:   A name of the form module:callable.
        folder: Folder where the module is looked for first.

    Raises:
        ValueError: there is no such callable, it fails, or it returns no arrays.
    """
    value = called(name, callable_of(name, name, folder))
    return value if isinstance(value, DataSet) else as_archive(name, value)


def as_archive(name: str, value) -> Archive:
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
        raise ValueError(f"{name}: there is a {type(value).__name__}, but {_RETURNED}")
    flat = [item for pair in value for item in pair] if all(
        isinstance(item, tuple) and len(item) == 2 for item in value) else list(value)
    names = {2: ("x", "y"), 4: ("x_train", "y_train", "x_test", "y_test")}.get(len(flat))
    if names is None:
        raise ValueError(f"{name}: there are {len(flat)} values, but {_RETURNED}")
    return mapping({key: as_array(item, f"{name}, {key}") for key, item in zip(names, flat, strict=True)}, name)
