"""Data sets in CSV files, whose first line names the columns."""

import csv
import re
from collections.abc import Mapping
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path

import numpy as np
from concord.datasets.description import Description
from concord.datasets.raw import LIMIT, Found, Raw, check_size

#: Names of the column of labels, if the description has none.
LABELS = ("label", "labels", "class", "target", "y")
DELIMITERS = ",;\t"


def found(path: Path, description: Description) -> Found:
    """The samples of a CSV file.

    Raises:
        ValueError: there is no such file, a column is missing, or a cell is no number.
    """
    if description.borrowed:  # a name for each part is one of arrays, which a CSV file does not have
        arrays = [key for key in ("inputs", "labels") if isinstance(getattr(description, key), Mapping)]
        description = replace(description, **dict.fromkeys(arrays))
    if description.lengths is not None and not description.borrowed:
        raise ValueError(f"{path}: a CSV file has no sequences of different lengths; leave `lengths` out, or save "
                         "arrays with numpy.savez")
    raw, notes = _table(path, description)
    return Found(parts={"all": raw}, notes=notes)


def _table(path: Path, description: Description) -> tuple[Raw, tuple[str, ...]]:
    if not path.is_file():
        raise ValueError(f"{path}: there is no such file")
    if path.stat().st_size > LIMIT:
        raise ValueError(f"{path}: a CSV file of more than {LIMIT // 2**30} GiB; save arrays with numpy.savez")
    try:
        with path.open(newline="", encoding="utf-8-sig") as stream:
            header = stream.readline()
            delimiter = description.delimiter or _delimiter(header, path)
            stream.seek(0)
            return _rows(csv.reader(stream, delimiter=delimiter, strict=True), path, description)
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not a text in UTF-8 ({error.reason} at byte {error.start})") from error
    except csv.Error as error:
        raise ValueError(f"{path}: not a CSV file ({error})") from error


def _delimiter(header: str, path: Path) -> str:
    """The character between columns, by the first line; those in quoted names of columns do not count."""
    bare = re.sub(r'"[^"]*"', "", header)
    return "\t" if "\t" in bare and path.suffix.lower() == ".tsv" else max(DELIMITERS, key=bare.count)


def _rows(reader, path: Path, description: Description) -> tuple[Raw, tuple[str, ...]]:
    columns = [name.strip() for name in next(reader, [])]
    _check_header(columns, path)
    labels, notes = _labels(columns, path, description)
    inputs, unknown = _inputs(columns, labels, path, description)
    notes += unknown
    if not inputs:
        raise ValueError(f"{path}: no column is left for the inputs")
    numbers, texts, lines, values = [columns.index(n) for n in inputs], [columns.index(n) for n in labels], [], []
    named, size = [], 0
    for row in reader:
        if not row:
            continue
        if len(row) != len(columns):
            raise ValueError(f"{path}, line {reader.line_num}: {len(row)} values, but line 1 names {len(columns)} "
                             "columns")
        values.append(_floats(row, numbers, columns, path, reader.line_num))
        named.append([row[index].strip() for index in texts])
        lines.append(reader.line_num)
        size += 1
        if size == 1 or size % 65536 == 0:
            check_size(str(path), (size, len(inputs)), 8)
    if not values:
        raise ValueError(f"{path}: it has no line below the names of its columns")
    given = _label_values(np.array(named), labels, lines, path) if labels else None
    return Raw(inputs=np.stack(values), labels=given, lengths=None, location=str(path), columns=tuple(inputs),
               numbers=np.array(lines), unit="line"), notes


def _check_header(columns: list[str], path: Path):
    if not columns or columns == [""]:
        raise ValueError(f"{path}: it is empty; its first line must name the columns")
    if twice := next((name for name in columns if columns.count(name) > 1 and len(columns) < 10_000), None):
        raise ValueError(f"{path}, line 1: two columns are called {twice!r}; give each a name of its own")
    if all(_is_number(name) for name in columns):
        raise ValueError(f"{path}, line 1: it holds numbers; it must name the columns: put a line of names above it")


def _labels(columns: list[str], path: Path, description: Description) -> tuple[list[str], tuple[str, ...]]:
    """Columns of labels, and a sentence if they were not named."""
    wanted = description.labels
    if wanted is None:
        lower = {name.lower(): name for name in reversed(columns)}
        usual = next((lower[name] for name in LABELS if name in lower), None)
        return ([usual] if usual else []), (
            f"{path}: column {usual!r} holds the labels" if usual else
            f"{path}: without labels, as no column is called {', '.join(LABELS)}; `labels` in a TOML file names one",)
    if description.borrowed and not {wanted, *([] if isinstance(wanted, str) else wanted)} & {*columns}:
        return [], (f"{path}: without labels, as it has no column {wanted!r}",)
    return _present(wanted, columns, path, "labels"), ()


def _inputs(columns: list[str], labels: list[str], path: Path, description: Description
            ) -> tuple[list[str], tuple[str, ...]]:
    """Columns of inputs, and a sentence if a model's description names others, such as those of arrays."""
    wanted = description.inputs
    known = wanted is not None and {*([wanted] if isinstance(wanted, str) else wanted)} & {*columns}
    if wanted is None or description.borrowed and not known:
        return [name for name in columns if name not in labels], () if wanted is None else (
            f"{path}: its columns are taken in their order, as none has a name of the model's inputs",)
    inputs = _present(description.inputs, columns, path, "inputs")
    if both := set(inputs) & set(labels):
        raise ValueError(f"{path}: column {min(both)!r} is both an input and a label")
    return inputs, ()


def _present(wanted, columns: list[str], path: Path, key: str) -> list[str]:
    """Checks that the columns exist, and returns their names."""
    if isinstance(wanted, dict):
        raise ValueError(f"{path}: {key} of a CSV file is the name of a column or a list of them; name the files of "
                         "train and test as `data` and `test`")
    names = [wanted] if isinstance(wanted, str) else list(wanted)
    if missing := [name for name in names if name not in columns]:
        shown = ", ".join(columns[:20]) + (", ..." if len(columns) > 20 else "")
        close = get_close_matches(missing[0], columns, 1)
        meant = f" (did you mean {close[0]!r}?)" if close else ""
        raise ValueError(f"{path}: there is no column {missing[0]!r}{meant}; there are {shown}")
    return names


def _floats(row: list[str], numbers: list[int], columns: list[str], path: Path, line: int) -> np.ndarray:
    """Numbers of a line, float64[inputs]."""
    cells = [row[index] for index in numbers]
    try:
        if "_" in "".join(cells):  # which Python, unlike other readers of CSV files, allows between digits
            raise ValueError
        return np.array(cells, np.float64)
    except ValueError:
        index = next(index for index in numbers if not _is_number(row[index]))
        raise ValueError(f"{path}, line {line}, column {columns[index]!r}: {row[index]!r} is no number") from None


def _label_values(texts: np.ndarray, labels: list[str], lines: list[int], path: Path) -> np.ndarray:
    """Labels as integers if all are, else as real numbers if all are, else as texts; several columns are numbers."""
    if (texts == "").any():
        row, column = np.argwhere(texts == "")[0]
        raise ValueError(f"{path}, line {lines[row]}, column {labels[column]!r}: the label is missing")
    for kind in () if (np.char.find(texts, "_") >= 0).any() else (np.int64, np.float64):
        try:
            found = texts.astype(kind)
            return found[:, 0] if len(labels) == 1 else found
        except (ValueError, OverflowError):
            pass
    if len(labels) == 1:
        return texts[:, 0]
    row, column = next(index for index in np.argwhere(texts != "") if not _is_number(texts[tuple(index)]))
    raise ValueError(f"{path}, line {lines[row]}, column {labels[column]!r}: {str(texts[row, column])!r} is no number")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text
