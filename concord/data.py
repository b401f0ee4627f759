"""Data sets as the Python API takes them: locations, arrays, and data sets that were read before."""

import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from concord.datasets.fitting import fitted
from concord.datasets.read import data_of, read_data
from concord.datasets.samples import DataSet
from concord.lib.input_axes import Order
from concord.lib.names import named

if TYPE_CHECKING:
    from concord.objects import Network

#: A location as `--data` takes it; arrays x_train, y_train, x_test and y_test, or x and y, by these names or as a tuple
#: in this order; or a data set. The arrays are [samples, ...], those of sequences [samples, time, ...].
Data = str | os.PathLike | Mapping | tuple | DataSet


def data_set(data: Data, order: str | None = None) -> DataSet:
    """The data set that an argument means.

    Args:
        data:  The argument.
        order: Order of the axes of a sample: "file", as the network's file takes them, or "machine"; None for that of
            the data's description.

    Raises:
        ValueError: there are no such data, or they are damaged.
    """
    axes = None if order is None else named(Order, order)
    if isinstance(data, DataSet):
        return data if axes is None else replace(data, order=axes)
    if isinstance(data, str | os.PathLike):
        return read_data(os.fspath(data), order=axes)
    return data_of(data, order=axes)


def said(notes: Iterable[str]):
    """Say on stderr what was chosen by default, such as the order of axes that fit two orders."""
    for note in notes:
        print(f"concord: {note}", file=sys.stderr)


def data_for(data: Data, network: "Network", order: str | None = None) -> DataSet:
    """The data set that an argument means, as a network takes it; the order of axes is said where two orders fit.

    Raises:
        ValueError: there are no such data, they do not fit, or the network's own tool gives other outputs.
    """
    from concord.workflows.original import of_data

    found = data_set(data, order)
    made = fitted(found, network.floating.interface)
    said(made.notes[len(found.notes):])
    if network.original:
        of_data(network.floating, network.original, found)
    return made


def location_of(data: Data) -> str:
    """Words for where data come from, as messages and commands name them."""
    if isinstance(data, str | os.PathLike):
        return os.fspath(data)
    return data.name if isinstance(data, DataSet) else "arrays"
