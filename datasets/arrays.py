"""Data sets in arrays: .npz files, .npy files, and what a function returns. Nothing is unpickled."""

import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from concord.datasets import arrays
from concord.datasets.description import PARTS, Description
from concord.datasets.raw import Found, Raw, check_size

#: Usual names of the inputs and labels of a whole data set; after `_train`, they are those of a part.
INPUTS, LABELS, LENGTHS = ("x", "data", "inputs"), ("y", "target", "labels"), ("lengths",)
_ENDS = ("", *(f"_{part}" for part in PARTS))
_ADVICE = "name the arrays in a TOML file, as `inputs = \"NAME\"` and `labels = \"NAME\"`"


class Archive:
    """Arrays by name, each read when it is needed.

    Attributes:
        location: File or function that they come from, for messages.
        names:    Their names.
    """

    def __init__(self, location: str, names: list[str], fetch: Callable[[str], np.ndarray]):
        self.location, self.names, self._fetch = location, names, fetch
        self._lower = {name.lower(): name for name in reversed(names)}

    def read(self, name: str) -> np.ndarray:
        """The array of a name.

        Raises:
            ValueError: it holds Python objects, or no array at all.
        """
        array = self._fetch(name)
        where = f"{self.location}, {name}" if name in self.names and len(self.names) > 1 else self.location
        if array.dtype.kind not in "biufUS":
            raise ValueError(f"{where}: numbers or texts are needed, not {array.dtype}; arrays of Python objects are "
                             "not read, because they would be unpickled")
        if array.ndim == 0:
            raise ValueError(f"{where}: an array [samples, ...] is needed, not a single value")
        return array

    def usual(self, name: str) -> str | None:
        """The name that is equal to `name` but for capital letters; None if there is none."""
        return self._lower.get(name)


def npz(path: Path) -> Archive:
    """The arrays of an .npz file.

    Raises:
        ValueError: it is no such file.
    """
    names = npy_names(path)
    if not names:
        raise ValueError(f"{path}: a zip archive without arrays of numpy; save them with numpy.savez")

    def fetch(name: str) -> np.ndarray:
        try:
            with zipfile.ZipFile(path) as archive, archive.open(f"{name}.npy") as stream:
                return _array(stream, f"{path}, {name}", archive.getinfo(f"{name}.npy").file_size)
        except ValueError:
            raise
        except Exception as error:  # see `npy_names`
            raise ValueError(f"{path}, {name}: not a whole array ({error})") from error

    return Archive(str(path), names, fetch)


def npy_names(path: Path) -> list[str]:
    """Names of the arrays in a zip archive.

    Raises:
        ValueError: it is no zip archive.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            return [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]
    except Exception as error:  # zipfile raises errors of many classes for damaged archives
        raise ValueError(f"{path}: not a whole .npz file ({error})") from error


def npy(path: Path) -> np.ndarray:
    """The array of an .npy file.

    Raises:
        ValueError: there is no such file, or it is none.
    """
    if not path.is_file():
        raise ValueError(f"{path}: there is no such file")
    with path.open("rb") as stream:
        return _array(stream, str(path), path.stat().st_size)


def npy_folder(folder: Path) -> Archive:
    """The .npy files of a folder by their names without suffix."""
    return Archive(str(folder), sorted(path.stem for path in folder.glob("*.npy")),
                   lambda name: npy(folder / f"{name}.npy"))


def mapping(values: Mapping, location: str) -> Archive:
    """Arrays in a mapping, such as a dict or a Bunch of scikit-learn; other values are left out."""
    names = [name for name, value in values.items() if isinstance(name, str) and hasattr(value, "__len__")
             and not isinstance(value, str | Mapping)]
    return Archive(location, names, lambda name: as_array(values[name], f"{location}, {name}"))


def as_array(value, location: str) -> np.ndarray:
    """A value that is like an array, as one.

    Raises:
        ValueError: it is none.
    """
    try:
        return np.asarray(value)
    except Exception as error:
        raise ValueError(f"{location}: {type(value).__name__} is no array of numbers ({error})") from error


def _array(stream, location: str, size: int) -> np.ndarray:
    """Read an array, whose header is compared with the `size` of the file before memory is taken."""
    form = np.lib.format
    try:
        version = form.read_magic(stream)
        headers = {(1, 0): form.read_array_header_1_0, (2, 0): form.read_array_header_2_0}
        shape, _, dtype = headers.get(version, form.read_array_header_2_0)(stream)
        if dtype.hasobject:
            raise ValueError("it holds Python objects, which are not unpickled; save numbers")
        check_size(location, shape, max(1, dtype.itemsize))
        if np.prod(shape, dtype=object) * dtype.itemsize > size:
            raise ValueError(f"{dtype}{list(shape)} does not fit into {size:,} bytes")
        stream.seek(0)
        return form.read_array(stream, allow_pickle=False)
    except Exception as error:  # numpy's reader raises errors of many classes for damaged headers
        if str(error).startswith(location):
            raise
        raise ValueError(f"{location}: not a whole .npy file of numbers ({error})") from error


def found(archive: Archive, description: Description) -> Found:
    """The parts of a data set in an archive, by the names in its description, or by the usual ones.

    Args:
        archive:     The arrays.
        description: Names of inputs, labels and lengths.

    Raises:
        ValueError: a name is not there, or there are no inputs.
    """
    parts, used = {}, []
    wanted = [_present(archive, names) if description.borrowed else names for names in (
        description.inputs, description.labels, description.lengths)]
    for part in ("all", *PARTS):
        names = [_name(archive, given, standard, part) for given, standard in zip(
            wanted, (INPUTS, LABELS, LENGTHS), strict=True)]
        if (inputs := names[0]) is not None:
            others = (None if name is None else archive.read(name) for name in names[1:])
            parts[part] = _raw(archive.read(inputs), *others, f"{archive.location}, {inputs}", description)
            used += filter(None, names)
    if not parts:
        raise ValueError(f"{archive.location}: it holds {', '.join(archive.names) or 'nothing'}, and no x_train, "
                         f"x_test or x; {_ADVICE}")
    left = [name for name in archive.names if name not in used]
    notes = (f"{archive.location}: read {', '.join(dict.fromkeys(used))}, not {', '.join(left)}",) if left else ()
    return Found(parts=parts, notes=notes)


def _raw(inputs: np.ndarray, labels, lengths, location: str, description: Description) -> Raw:
    """Arrays that belong together.

    Raises:
        ValueError: they have different numbers of samples, or inputs are no numbers.
    """
    if inputs.dtype.kind not in "biuf":
        raise ValueError(f"{location}: inputs are numbers, not {inputs.dtype}")
    if not inputs.size:
        raise ValueError(f"{location}: at least one sample is needed, not {inputs.dtype}{list(inputs.shape)}")
    for name, array in ("labels", labels), ("lengths", lengths):
        if array is not None and len(array) != len(inputs):
            raise ValueError(f"{location}: {len(inputs)} samples, but {len(array)} {name}")
    return Raw(inputs=inputs, labels=labels, lengths=lengths, location=location)


def _present(archive: Archive, wanted):
    """The names of a description of other data that are there, too; None, for the usual ones, if there are none."""
    if isinstance(wanted, Mapping):
        return {part: name for part, name in wanted.items() if name in archive.names} or None
    there = isinstance(wanted, str) and any(f"{wanted}{end}" in archive.names for end in _ENDS)
    return wanted if there else None


def _name(archive: Archive, wanted, standard: tuple[str, ...], part: str) -> str | None:
    """The name of an array of a part in an archive; None if the archive has none.

    Raises:
        ValueError: the description names one that is not there.
    """
    if isinstance(wanted, tuple):
        raise ValueError(f"{archive.location}: several names stand for columns of a CSV file; name one array, or a "
                         "table of arrays for train, test and calibration")
    if isinstance(wanted, Mapping):
        name = wanted.get(part)
        if name is not None and name not in archive.names:
            raise ValueError(f"{archive.location}: there is no {name}; there are {', '.join(archive.names)}")
        return name
    behind = "" if part == "all" else f"_{part}"
    if wanted is None:
        return next(filter(None, (archive.usual(f"{name}{behind}") for name in standard)), None)
    if not any(f"{wanted}{end}" in archive.names for end in _ENDS):
        raise ValueError(f"{archive.location}: there is no {wanted}; there are {', '.join(archive.names)}")
    return f"{wanted}{behind}" if f"{wanted}{behind}" in archive.names else None


_ONE_ARRAY = "save one array with numpy.save('inputs.npy', array), and name that file"


def read_numbers(path: Path) -> np.ndarray:
    """Read the array of a file.

    Raises:
        ValueError: there is no such file, or it does not hold exactly one array of numbers.
    """
    path = Path(path)
    loaded = _only(path) if zipfile.is_zipfile(path) else arrays.npy(path)
    if loaded.dtype.kind not in "fiu" or not loaded.size:
        needed = "numbers are" if loaded.size else "at least one number is"
        raise ValueError(f"{path}: {needed} needed, not {loaded.dtype}{list(loaded.shape)}")
    return loaded


def _only(path: Path) -> np.ndarray:
    """The only array of an archive."""
    names = arrays.npy_names(path)
    if not names:
        raise ValueError(f"{path}: a zip archive without arrays of numpy, such as PyTorch writes; {_ONE_ARRAY}")
    if len(names) > 1:
        raise ValueError(f"{path}: it holds {len(names)} arrays, {', '.join(sorted(names))}; {_ONE_ARRAY}")
    return arrays.npz(path).read(names[0])
