"""The test set of a network: the shipped one that it names, or one at a place; refused if it does not fit."""

import tomllib

from concord.datasets import dataset
from concord.datasets.description import ORIGIN
from concord.datasets.fitting import Interface, fitted
from concord.datasets.measures import scored
from concord.datasets.read import digest, read_data
from concord.datasets.samples import NO_DATA, DataSet, Samples, Task
from concord.firmware.firmware import Firmware
from concord.lib.input_axes import InputAxes, Order
from concord.net.model import Model


def interface(network: Firmware | Model) -> Interface:
    """What a network takes and gives. One that comes from no file takes what its first layers take."""
    axes = network.axes or InputAxes(shape=network.image or (network.inputs,))
    return Interface(name=network.name, axes=axes, sequence=network.recurrent, outputs=network.outputs,
                     steps=network.steps, classes=tuple(network.classes))


def fitting(network: Firmware | Model, place: str | None, data: DataSet | None = None, order: Order | None = None
            ) -> DataSet:
    """A data set with test samples that fit a network.

    Args:
        network: The network. Its description says how a place is read that has none of its own.
        place:   Place as `read_data` takes it; None for the shipped set that the network names.
        data:    The data set at this place, if it was read already.
        order:   Order of the axes of a sample; None for that of the description.

    Raises:
        ValueError: there are no such data, or they do not fit the network.
    """
    if place is None and network.data not in dataset.SHIPPED:
        has = "no test set" if network.data == NO_DATA else f"the test set of {network.data}, which is not shipped"
        raise ValueError(f"{network.name} has {has}: give inputs with --inputs FILE.npy, or a test set with --data "
                         "PLACE")
    where = place or network.data
    if data is None:
        data = read_data(network.data) if place is None else read_data(place, network.description, order)
    tested(data, where)
    task = getattr(network, "task", data.task)
    if data.test.labels is not None and task is not data.task and network.data != NO_DATA:
        raise ValueError(f"{where}: the data are for {data.task}, but {network.name} was made for {task}; write "
                         f"`task = \"{task}\"` in a TOML file that describes them, or name other data")
    data = fitted(data, interface(network), where)
    if data.test.labels is not None:
        _check_labels(network, data, where)
    return data


def tested(data: DataSet, place: str) -> Samples:
    """The test samples of a data set.

    Raises:
        ValueError: there are none.
    """
    if data.test is None:
        raise ValueError(f"{place}: it holds no test set; with `test = 1` in a TOML file all samples are one")
    return data.test


def is_own(model: Model, data: DataSet) -> bool:
    """Whether the test samples are those for which a model keeps the predictions of its float networks."""
    known = _digest(model.description)
    return data.name == model.data if known is None else known == (_digest(data.description) or digest(data.test))


def _digest(description: str) -> str | None:
    """The digest of the test set that a description records."""
    try:
        return tomllib.loads(description).get(ORIGIN, {}).get("test_digest")
    except (tomllib.TOMLDecodeError, AttributeError):
        return None


def _check_labels(network: Firmware | Model, data: DataSet, place: str):
    """Refuse labels that the network's outputs cannot have."""
    labels = data.test.labels
    match data.task:
        case Task.CLASSIFICATION if labels.max() >= network.outputs:
            raise ValueError(f"{place}: the test set has class {labels.max()}, {network.name} has {network.outputs} "
                             "outputs; name another one with --data")
        case Task.REGRESSION if labels.shape[1] != network.outputs:
            raise ValueError(f"{place}: each sample has {labels.shape[1]} targets, {network.name} has "
                             f"{network.outputs} outputs; name the columns of the targets as `labels` in a TOML file")
        case Task.ANOMALY if not scored(network.outputs, data.test):
            raise ValueError(f"{place}: anomalies are scored by one output, or by as many as there are inputs; "
                             f"{network.name} has {network.outputs}")
