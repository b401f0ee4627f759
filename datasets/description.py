"""The TOML text that says how a data set is read from its files."""

import math
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from fractions import Fraction
from pathlib import Path

from concord.datasets.samples import Task
from concord.lib.input_axes import Order
from concord.lib.names import cleaned

#: Parts that `inputs`, `labels` and `lengths` may name one by one.
PARTS = ("train", "test", "calibration")
#: Table that records what was read; it is written, and ignored when it is read.
ORIGIN = "origin"


class ImageLayout(StrEnum):
    """Order of the axes of an image."""

    CHW = "chw"  #: channels, rows, columns
    HWC = "hwc"  #: rows, columns, channels


@dataclass(frozen=True, kw_only=True, slots=True)
class Preprocessing:
    """How raw numbers x become inputs of the network: (x * scale - mean) / std.

    Attributes:
        scale, mean, std: One number for all elements, or one for each channel of an image or each element of a vector.
            A scale of None is 1, or 1/255 for files of images.
        layout: Order of the axes of an image; None where the axes are those of `order`.
        order:  Order of the axes of a sample without `layout`.
        shape:  Shape of one sample, or of one time step where lengths are given, before `layout` is applied; None for
            that of the file.
        size:   Rows and columns to which files of images are scaled; None for their own.
    """

    scale: tuple[float, ...] | None = None
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    layout: ImageLayout | None = None
    order: Order = Order.FILE
    shape: tuple[int, ...] | None = None
    size: tuple[int, int] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Description:
    """How a data set is read.

    Attributes:
        folder:      Folder where relative paths begin.
        data:        Path or module:callable; empty if `inputs` names files.
        name:        Name of the data set; empty for that of its file.
        task:        What a network does with a sample; None to tell from the labels.
        inputs:      Name of the inputs, by part in a mapping, or names of several columns; None for the usual ones.
        labels:      The same for the labels.
        lengths:     The same for the lengths of sequences.
        classes:     Names of the classes; empty for those in the data.
        test:        File of the test set, or its share of the samples; None for the usual.
        calibration: File of the calibration set, or its number of samples; None for none.
        seed:        Seed of the split.
        sequence:    Whether the first axis of a sample is time.
        borrowed:    Whether it is a model's, used for other data: arrays and labels that it names may be missing.
        delimiter:   Character between the columns of a CSV file; empty to tell from its first line.
        preprocessing: How raw numbers become inputs.
    """

    folder: Path = Path()
    data: str = ""
    name: str = ""
    task: Task | None = None
    inputs: str | tuple[str, ...] | Mapping[str, str] | None = None
    labels: str | tuple[str, ...] | Mapping[str, str] | None = None
    lengths: str | Mapping[str, str] | None = None
    classes: tuple[str, ...] = ()
    test: str | float | None = None
    calibration: str | int | None = None
    seed: int = 0
    sequence: bool = False
    borrowed: bool = False
    delimiter: str = ""
    preprocessing: Preprocessing = field(default_factory=Preprocessing)

    def path(self, name: str) -> Path:
        """The path that a name in the description stands for."""
        return self.folder / name


def parse(text: str, location: str, folder: Path) -> Description:
    """Read the TOML text of a description.

    Args:
        text:     The text.
        location: Where it stands, for messages.
        folder:   Folder where relative paths begin.

    Raises:
        ValueError: it is not TOML, or a key is unknown or has a value of the wrong kind.
    """
    try:
        record = tomllib.loads(text)
    except ValueError as error:  # also numbers of too many digits
        raise ValueError(f"{location}: not TOML ({error})") from error
    except RecursionError as error:
        raise ValueError(f"{location}: not a description of data: its values are nested too deeply") from error
    record.pop(ORIGIN, None)
    inner = record.pop("preprocessing", {})
    if not isinstance(inner, dict):
        raise ValueError(f"{location}: preprocessing is a table: write [preprocessing] and its keys below it")
    values = _checked(record, _KEYS, location, "")
    values["preprocessing"] = Preprocessing(**_checked(inner, _PREPROCESSING, location, "preprocessing."))
    return Description(folder=folder, **values)


def record(description: Description) -> dict:
    """The values of a description that are not those by default, as TOML has them."""
    found, inner = _changed(description), _changed(description.preprocessing)
    del found["folder"], found["preprocessing"]
    found.pop("borrowed", None)
    return found | ({"preprocessing": inner} if inner else {})


def _changed(record: Description | Preprocessing) -> dict:
    """The fields that differ from the default, and always folder and preprocessing."""
    standard = type(record)()
    return {item.name: _plain(value) for item in fields(record)
            if (value := getattr(record, item.name)) != getattr(standard, item.name)
            or item.name in ("folder", "preprocessing")}


def _plain(value):
    if isinstance(value, StrEnum):
        return value.value
    if isinstance(value, tuple):
        return value[0] if len(value) == 1 and isinstance(value[0], float) else list(value)
    return dict(value) if isinstance(value, Mapping) else value


def _checked(record: dict, keys: Mapping[str, tuple[Callable, str]], location: str, prefix: str) -> dict:
    """The values of a table, each made by the function that `keys` names for it."""
    found = {}
    for key, value in record.items():
        if key not in keys:
            advice = "; write it below [preprocessing]" if key in _PREPROCESSING else f"; there are {', '.join(keys)}"
            raise ValueError(f"{location}: there is no key {prefix}{key}{advice}")
        make, words = keys[key]
        try:
            found[key] = make(value)
        except (TypeError, ValueError, ZeroDivisionError, OverflowError) as error:
            raise ValueError(f"{location}: {prefix}{key} = {value!r}, but {words} is needed") from error
    return found


def _refuse(*_):
    raise TypeError


def _text(value) -> str:
    return value if isinstance(value, str) and value and value.isprintable() else _refuse()


def _integer(value) -> int:
    return value if type(value) is int and value >= 0 else _refuse()


def _flag(value) -> bool:
    return value if isinstance(value, bool) else _refuse()


def _number(value) -> float:
    """A real number, also as the text of a fraction such as "1/255"."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise TypeError
    if isinstance(value, str):
        return float(Fraction(value)) if re.fullmatch(r"\d{1,15}/\d{1,15}", value, re.ASCII) else _refuse()
    return number if math.isfinite(number := float(value)) else _refuse()


def _numbers(value) -> tuple[float, ...]:
    values = tuple(map(_number, value if isinstance(value, list) else [value]))
    return values or _refuse()


def _divisors(value) -> tuple[float, ...]:
    return values if all(values := _numbers(value)) else _refuse()


def _texts(value) -> tuple[str, ...]:
    return tuple(map(_text, value)) if isinstance(value, list) and value else _refuse()


def _classes(value) -> tuple[str, ...]:
    """Names of classes, whose control characters become escapes, as those of labels do."""
    return _distinct([cleaned(name) if isinstance(name, str) else name for name in value]
                     if isinstance(value, list) else value)


def _distinct(value) -> tuple[str, ...]:
    return values if len(set(values := _texts(value))) == len(values) else _refuse()


def _names(value):
    """A name, several, or one for each part."""
    if isinstance(value, dict):
        return {key: _text(name) for key, name in value.items()} if value and set(value) <= {*PARTS} else _refuse()
    return _distinct(value) if isinstance(value, list) else _text(value)


def _name(value) -> str | dict[str, str]:
    """A name, or one for each part."""
    return _refuse() if isinstance(value, list) else _names(value)


def _sizes(value) -> tuple[int, ...]:
    sizes = tuple(map(_integer, value)) if isinstance(value, list) else _refuse()
    return sizes if sizes and all(sizes) and math.prod(sizes) < 2**32 else _refuse()


def _pair(value) -> tuple[int, int]:
    return sizes if len(sizes := _sizes(value)) == 2 else _refuse()


def _file_or_share(value) -> str | float:
    return _text(value) if isinstance(value, str) else share if 0 <= (share := _number(value)) <= 1 else _refuse()


def _file_or_count(value) -> str | int:
    return _text(value) if isinstance(value, str) else count if (count := _integer(value)) else _refuse()


def _character(value) -> str:
    return value if isinstance(value, str) and len(value) == 1 and value not in '"\r\n' else _refuse()


_NAMES = "a name, a list of names, or a table of names for train, test and calibration"
#: For each key, the function that makes its value or fails, and what is needed in words.
_KEYS = {
    "data": (_text, "a path or module:callable"),
    "name": (_text, "a text without control characters"),
    "task": (Task, f"one of {', '.join(Task)}"),
    "inputs": (_names, _NAMES),
    "labels": (_names, _NAMES),
    "lengths": (_name, "a name, or a table of names for train, test and calibration"),
    "classes": (_classes, "a list of different names"),
    "test": (_file_or_share, "a path, or a share in 0..1"),
    "calibration": (_file_or_count, "a path, or a number of samples"),
    "seed": (_integer, "an integer from 0"),
    "sequence": (_flag, "true or false"),
    "delimiter": (_character, "one character"),
}
_PREPROCESSING = {
    "scale": (_numbers, "a number, a fraction such as \"1/255\", or a list of them"),
    "mean": (_numbers, "a number, or a list of numbers"),
    "std": (_divisors, "a number that is not 0, or a list of such numbers"),
    "layout": (ImageLayout, "\"chw\" (channels, rows, columns) or \"hwc\" (rows, columns, channels)"),
    "order": (Order, "\"file\" (as the network's file takes them) or \"machine\" (channels, rows, columns)"),
    "shape": (_sizes, "a list of sizes from 1"),
    "size": (_pair, "the list of rows and columns"),
}
