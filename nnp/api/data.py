"""Data sets as the Python API takes them: places, arrays, and data sets that were read before."""

import os
from collections.abc import Mapping

from concord.model.data.read import data_of, read_data
from concord.model.data.samples import DataSet

#: A place as `--data` takes it; arrays x_train, y_train, x_test and y_test, or x and y, by these names or as a tuple in
#: this order; or a data set. The arrays are [samples, ...], those of sequences [samples, time, ...].
Data = str | os.PathLike | Mapping | tuple | DataSet


def data_set(data: Data | None) -> DataSet | None:
    """The data set that an argument means.

    Raises:
        ValueError: there are no such data, or they are damaged.
    """
    if data is None or isinstance(data, DataSet):
        return data
    if isinstance(data, str | os.PathLike):
        return read_data(os.fspath(data))
    return data_of(data)


def place_of(data: Data | None) -> str | None:
    """Words for where data come from, as messages and commands name them."""
    if isinstance(data, str | os.PathLike):
        return os.fspath(data)
    return None if data is None else data.name if isinstance(data, DataSet) else "arrays"
